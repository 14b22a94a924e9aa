import contextlib
import threading
import types

import pytest
import torch

from penaltylab import emu


def test_work_of_one_stream_runs_in_order_and_of_two_streams_at_once(module: types.ModuleType) -> None:
    side = module.Stream()
    emu.start_log()
    emu.busy(1, "a")
    emu.busy(1, "b")
    with module.stream(side):
        emu.busy(1, "c")
    by_name = {op.name: op for op in emu.stop_log().device_ops}
    assert by_name["a"].start_us == 5 + 6
    assert by_name["b"].start_us == by_name["a"].start_us + 1000 + 1
    assert by_name["c"].start_us == 20 + 5 + 6
    assert (by_name["a"].stream, by_name["c"].stream) == (7, side.stream_id)


def test_wait_stream_holds_later_work_until_earlier_work_of_the_other_is_done(module: types.ModuleType) -> None:
    side = module.Stream()
    emu.start_log()
    with module.stream(side):
        emu.busy(1, "first")
    module.current_stream().wait_stream(side)
    with module.stream(side):
        emu.busy(1, "not waited for")
    emu.busy(1, "second")
    by_name = {op.name: op for op in emu.stop_log().device_ops}
    assert by_name["second"].start_us == by_name["first"].start_us + 1000 + 1


def test_an_event_stands_for_the_point_where_it_was_recorded(module: types.ModuleType) -> None:
    event = module.Event()
    assert event.query()  # nothing recorded, nothing to wait for
    emu.busy(1)
    event.record()
    emu.busy(5)
    assert not event.query()
    event.synchronize()
    assert emu.now_us() == pytest.approx(1 + 1000 + 11 + 8)
    assert event.query()
    assert not module.current_stream().query()


def test_an_event_recorded_again_leaves_earlier_waits_alone(module: types.ModuleType) -> None:
    side, event = module.Stream(), module.Event()
    emu.busy(1)
    event.record()
    side.wait_event(event)
    emu.busy(5)
    event.record()
    with module.stream(side):
        emu.busy(0.001)
    side.synchronize()
    assert emu.now_us() < 1100


def test_elapsed_time_is_virtual_milliseconds(module: types.ModuleType) -> None:
    start, end = module.Event(enable_timing=True), module.Event(enable_timing=True)
    start.record()
    emu.busy(3)
    end.record()
    with pytest.raises(RuntimeError, match="must be completed"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(3, abs=0.02)
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(module.Event())


def test_synchronize_returns_after_the_last_work(module: types.ModuleType) -> None:
    emu.busy(1)
    module.current_stream().synchronize()
    assert emu.now_us() == 11 + 1000 + 8
    assert emu.blocked_us() == pytest.approx(1000 + 11 + 8 - 10 - 1)
    module.current_stream().synchronize()
    assert emu.now_us() == 11 + 1000 + 8 + 1


def test_both_ways_to_enter_a_stream_nest(module: types.ModuleType) -> None:
    one, other = module.Stream(), module.Stream()
    assert module.current_stream() == module.default_stream()
    with one:
        assert module.current_stream() == one
        with module.stream(other), other:
            assert module.current_stream() == other
        with module.stream(None):
            assert module.current_stream() == one
    assert module.current_stream().stream_id == 7


def test_each_thread_has_its_own_current_stream(module: types.ModuleType) -> None:
    seen: list[int] = []
    with module.Stream():
        thread = threading.Thread(target=lambda: seen.append(module.current_stream().stream_id))
        thread.start()
        thread.join()
    assert seen == [7]


def test_one_stream_can_be_entered_by_two_threads_at_once(module: types.ModuleType) -> None:
    stream, entered, leave = module.Stream(), threading.Event(), threading.Event()

    def other() -> None:
        with stream:
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with module.Stream() as outer:
        thread.start()
        entered.wait(10)
        with stream:
            leave.set()
            thread.join()
        assert module.current_stream() == outer


def test_threads_that_enqueue_at_once_lose_nothing(module: types.ModuleType) -> None:
    def work(stream: torch.Stream) -> None:
        with module.stream(stream):
            x = torch.zeros(4, device="emu")
            for _ in range(100):
                x.add_(1)
            results.append(x)

    results: list[torch.Tensor] = []
    threads = [threading.Thread(target=work, args=(module.Stream(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert emu.now_us() == 4 * (2 + 10 + 100 * 10)  # empty, fill_, a hundred add_
    module.synchronize()
    assert [x.tolist() for x in results] == [[100.0] * 4] * 4
    assert emu.hazards() == []


def test_the_pool_gives_out_its_32_streams_again(module: types.ModuleType) -> None:
    streams = [module.Stream() for _ in range(33)]
    assert streams[32] == streams[0]
    assert len({stream.stream_id for stream in streams}) == 32
    assert module.Stream(priority=-1).priority == -1


def test_names_are_the_streams_and_reach_the_log(module: types.ModuleType) -> None:
    stream = module.Stream()
    stream.name = "forward stream"
    emu.start_log()
    with stream:
        assert module.current_stream().name == "forward stream"
        emu.busy(1)
    assert emu.stop_log().stream_names == {stream.stream_id: "forward stream"}
    assert "forward stream" in repr(stream)


def test_torch_stream_and_event_are_ours_on_this_device(module: types.ModuleType) -> None:
    stream, event = torch.Stream(device="emu"), torch.Event(device="emu", enable_timing=True)
    assert isinstance(stream, module.Stream)
    assert isinstance(stream, torch.Stream)
    assert isinstance(event, module.Event)
    assert isinstance(event, torch.Event)
    emu.busy(1)
    event.record()
    stream.wait_event(event)
    assert not stream.query()
    assert torch.accelerator.current_stream() == module.current_stream()
    torch.accelerator.synchronize()
    assert stream.query()


def test_torch_stream_and_event_of_another_device_are_pytorchs(module: types.ModuleType) -> None:
    with contextlib.suppress(RuntimeError, ValueError):  # some builds refuse, others make one that is never used
        assert not isinstance(torch.Event(device="cuda"), module.Event)
    assert not isinstance(torch.cuda.Stream, module.Stream)
    with pytest.raises(RuntimeError, match="not made from an id"):
        torch.Stream(stream_id=3, device_index=0, device_type=20)


def test_record_stream_takes_streams_of_this_device(module: types.ModuleType) -> None:
    torch.zeros(3, device="emu").record_stream(module.Stream())


def test_device_synchronize_waits_for_all_streams(module: types.ModuleType) -> None:
    with module.Stream():
        emu.busy(4)
    emu.busy(1)
    torch.emu.synchronize()
    assert emu.now_us() == 5 + 6 + 4000 + 8

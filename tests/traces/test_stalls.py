"""Every kind of stall and every rule by which one is told from a copy that did not wait."""

import io
from typing import Any

import pytest

from penaltylab.traces.findings import Findings, findings
from penaltylab.traces.read import read_trace
from penaltylab.traces.stalls import Stall, analyse, find_stalls
from penaltylab.traces.waits import Wait

from .build import AMD, HOST, Json, blocking_copy, call, frame, kernel, memcpy, note, op, slice_, written


def found(*events: Json | list[Json], **top: Any) -> Findings:
    return findings(analyse(read_trace(io.BytesIO(written(*events, **top)))))


def stalls(*events: Json | list[Json], **top: Any) -> list[Stall]:
    return found(*events, **top).stalls


def anchor(ts: float = 0.0) -> Json:
    """An event that fixes where time begins."""
    return note("anchor", ts, 1)


def test_a_copy_followed_by_its_synchronize_inside_one_operator_blocks() -> None:
    result = found(
        anchor(), kernel("forward", 50, 2350, 1), call("cudaLaunchKernel", 40, 5, 1), blocking_copy(100, 2300, 2)
    )
    (stall,) = result.stalls
    assert (stall.kind, stall.start_us, stall.stall_us, stall.copy_us) == ("blocking-h2d", 101, 2306, 2)
    assert (stall.bytes, stall.memory, stall.stream, stall.call) == (64, "pageable", 7, "cudaMemcpyAsync")
    assert stall.waited_on == [Wait("forward", 7, 2299)]
    assert (result.copies.h2d, result.copies.h2d_blocking, result.copies.h2d_bytes) == (1, 1, 64)
    assert result.stall_us["blocking-h2d"] == 2306
    assert result.stall_us["stream-sync"] == 0


def test_old_files_whose_external_id_is_the_correlation_are_told_by_the_operator_alone() -> None:
    events = [
        op("aten::copy_", 100, 60, 1),
        call("cudaMemcpyAsync", 101, 5, 7, ext=7),
        call("cudaStreamIsCapturing", 107, 1, 8, ext=8),
        call("cudaStreamSynchronize", 109, 50, 9, ext=9),
        memcpy("HtoD (Pageable -> Device)", 140, 2, 7),
    ]
    assert [(stall.kind, stall.stall_us) for stall in stalls(events)] == [("blocking-h2d", 58)]


def test_a_synchronize_of_the_users_own_is_not_part_of_the_copy() -> None:
    events = [
        op("aten::copy_", 100, 20, 1),
        call("cudaMemcpyAsync", 101, 5, 7, ext=1),
        memcpy("HtoD (Pinned -> Device)", 110, 2, 7),
        call("cudaStreamSynchronize", 130, 50, 8),
    ]
    result = found(events)
    assert [(stall.kind, stall.stall_us) for stall in result.stalls] == [("stream-sync", 50)]
    assert (result.copies.h2d_blocking, result.copies.h2d_pinned) == (0, 1)


def test_without_operators_in_the_file_the_synchronize_must_follow_at_once() -> None:
    copy = [call("cudaMemcpyAsync", 101, 5, 7), memcpy("HtoD (Pageable -> Device)", 140, 2, 7)]
    assert [stall.kind for stall in stalls(copy, call("cudaStreamSynchronize", 107, 50, 8))] == ["blocking-h2d"]
    assert [stall.kind for stall in stalls(copy, call("cudaStreamSynchronize", 207, 50, 8))] == ["stream-sync"]


def test_a_synchronize_on_another_thread_belongs_to_nobody() -> None:
    events = [
        op("aten::copy_", 100, 60, 1),
        call("cudaMemcpyAsync", 101, 5, 7, ext=1),
        memcpy("HtoD (Pageable -> Device)", 110, 2, 7),
        call("cudaStreamSynchronize", 108, 50, 8, tid=555),
    ]
    assert [stall.kind for stall in stalls(events)] == ["stream-sync"]


@pytest.mark.parametrize(("name", "at"), [("aten::copy_", 2), ("aten::_to_copy", 5)])
def test_recorded_arguments_tell_non_blocking(name: str, at: int) -> None:
    def copy(flag: str) -> list[Json]:
        arguments = {"Concrete Inputs": ["", *[""] * (at - 1), flag]}
        return [
            op(name, 100, 90, 1, **arguments),
            call("cudaMemcpyAsync", 101, 5, 7, ext=1),
            memcpy("HtoD (Pageable -> Device)", 150, 2, 7),
        ]

    assert [(stall.kind, stall.stall_us) for stall in stalls(copy("False"))] == [("blocking-h2d", 89)]
    assert stalls(copy("True")) == []
    told = found(copy("True"), call("cudaStreamSynchronize", 110, 40, 8, ext=1))
    assert (told.copies.h2d_blocking, [stall.kind for stall in told.stalls]) == (0, ["stream-sync"])


def test_rocm_blocks_in_the_call_itself_and_memory_is_unknown() -> None:
    events = [
        op("aten::copy_", 0, 600, 1),
        call("hipMemcpyWithStream", 5, 500, 7, ext=1, kind="1", bytes="60"),
        memcpy("HtoD (Host -> Device)", 495, 4, 7, size=60, stream=3),
        call("hipMemcpyAsync", 700, 5, 8, ext=2, kind="1"),
        memcpy("HtoD (Host -> Device)", 900, 4, 8, stream=3),
    ]
    result = found(events, device=AMD)
    assert [(stall.stall_us, stall.memory, stall.call) for stall in result.stalls] == [
        (500, "unknown", "hipMemcpyWithStream")
    ]
    assert (result.copies.h2d, result.copies.h2d_blocking, result.copies.h2d_unknown) == (2, 1, 2)


def test_rocm_item_reads_pinned_memory_under_the_name_dtod() -> None:
    events = [
        op("aten::_local_scalar_dense", 0, 60, 1),
        call("hipMemcpyWithStream", 5, 50, 7, ext=1, kind="2"),
        memcpy("DtoD (Device -> Device)", 45, 4, 7, size=8),
    ]
    (stall,) = stalls(events, device=AMD)
    assert (stall.kind, stall.bytes) == ("blocking-d2h", 8)
    assert "on the device" in stall.advice


def test_a_blocking_copy_whose_device_row_was_cropped_is_known_by_its_call() -> None:
    events = [
        call("hipMemcpyWithStream", 5, 5000, 7, kind="1", size="60"),
        call("hipLaunchKernel", 6000, 5, 8),
        kernel("k", 6010, 5, 8),
    ]
    (stall,) = stalls(events, device=AMD)
    assert (stall.kind, stall.stall_us, stall.bytes, stall.waited_on) == ("blocking-h2d", 5000, 60, "untraced work")


def test_a_sampled_file_without_synchronizations_shows_only_waits_that_leave_no_doubt() -> None:
    late = [
        op("aten::copy_", 0, 900, 1),
        call("cudaMemcpyAsync", 5, 5, 7),
        memcpy("HtoD (Pageable -> Device)", 800, 2, 7),
    ]
    idle = [
        op("aten::copy_", 0, 40, 1),
        call("cudaMemcpyAsync", 5, 5, 7),
        memcpy("HtoD (Pageable -> Device)", 11, 2, 7),
    ]
    gone = [
        op("aten::copy_", 0, 20, 1),
        call("cudaMemcpyAsync", 5, 5, 7),
        memcpy("HtoD (Pageable -> Device)", 800, 2, 7),
    ]
    assert [stall.stall_us for stall in stalls(late)] == [895]
    assert stalls(idle) == stalls(gone) == []
    assert any("no synchronization calls" in line for line in found(gone).warnings)


def test_a_large_pageable_copy_blocks_in_its_call_and_a_staged_one_does_not() -> None:
    def copy(size: int, what: str) -> list[Json]:
        return [op("aten::copy_", 0, 900, 1), call("cudaMemcpyAsync", 5, 500, 7), memcpy(what, 100, 400, 7, size=size),
                call("cudaStreamSynchronize", 5000, 1, 8)]  # fmt: skip

    def blocked(size: int, what: str) -> int:
        return len([stall for stall in stalls(copy(size, what)) if stall.kind.startswith("blocking")])

    assert blocked(1 << 20, "HtoD (Pageable -> Device)") == 1
    assert blocked(1 << 10, "HtoD (Pageable -> Device)") == 0
    assert blocked(1 << 20, "HtoD (Pinned -> Device)") == 0
    assert blocked(1 << 10, "DtoH (Device -> Pageable)") == 1


def test_item_is_a_blocking_copy_to_the_host() -> None:
    events = blocking_copy(100, 40, 7, "DtoH (Device -> Pinned)")
    events[0]["name"] = "aten::_local_scalar_dense"
    (stall,) = stalls(events)
    assert (stall.kind, stall.memory) == ("blocking-d2h", "pinned")
    assert "keep the number on the device" in stall.advice


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaStreamSynchronize", "stream-sync"),
        ("cudaStreamSynchronize_v3020", "stream-sync"),
        ("hipStreamSynchronize", "stream-sync"),
        ("cudaDeviceSynchronize", "device-sync"),
        ("hipDeviceSynchronize", "device-sync"),
        ("cuCtxSynchronize", "device-sync"),
        ("cudaEventSynchronize", "event-sync"),
        ("hipEventSynchronize", "event-sync"),
        ("cudaMemset", "memset-sync"),
        ("cudaMemsetAsync", None),
        ("cudaEventQuery", None),
        ("cudaStreamWaitEvent", None),
        ("cudaLaunchKernel", None),
    ],
)
def test_synchronizing_calls_have_their_kind(name: str, kind: str | None) -> None:
    events = [kernel("k", 0, 90, 1), call(name, 10, 85, 2)]
    assert [(stall.kind, stall.stall_us) for stall in stalls(events)] == ([(kind, 85)] if kind else [])


def test_the_wait_is_named_across_streams() -> None:
    """The copy's own stream waited, through an event, for a collective on another one."""
    events = [kernel("ncclKernel", 50, 1000, 1, stream=84), kernel("scatter", 60, 5, 2), blocking_copy(100, 960, 3)]
    (stall,) = stalls(events)
    assert stall.waited_on == [Wait("ncclKernel", 84, 949)]
    assert stall.stream == 7


def test_work_of_the_own_stream_comes_before_what_merely_ran_beside_it() -> None:
    events = [kernel("forward", 50, 1000, 1), kernel("beside", 50, 1000, 2, stream=9), blocking_copy(100, 960, 3)]
    (stall,) = stalls(events)
    assert stall.waited_on == [Wait("forward", 7, 949)]


def test_a_wait_for_what_the_file_does_not_hold_is_untraced_work_and_no_bubble() -> None:
    events = [blocking_copy(100, 5000, 3), call("cudaLaunchKernel", 5200, 5, 9), kernel("next", 5210, 50, 9)]
    (stall,) = stalls(events)
    assert stall.waited_on == "untraced work"
    assert stall.bubble_us == 5210 - 5103


def test_a_short_wait_is_the_copy_itself() -> None:
    assert [stall.waited_on for stall in stalls(blocking_copy(100, 12, 3))] == ["the copy itself"]
    staged = blocking_copy(100, 300, 3, size=4 << 20)
    staged[2]["dur"] = 200
    assert [stall.waited_on for stall in stalls(staged)] == ["the copy itself"]


def test_a_synchronization_event_names_the_stream() -> None:
    sync = slice_("cuda_sync", "Stream Sync", 10, 85, 0, 9, stream=9, correlation=2)
    events = [kernel("a", 0, 90, 5), kernel("b", 0, 92, 6, stream=9), call("cudaStreamSynchronize", 10, 85, 2), sync]
    (stall,) = stalls(events)
    assert (stall.stream, stall.waited_on) == (9, [Wait("b", 9, 82)])


def test_a_bubble_ends_with_the_next_work_that_the_thread_launches() -> None:
    copy = blocking_copy(100, 1000, 3)
    late = [call("cudaLaunchKernel", 1500, 5, 9), kernel("next", 1510, 50, 9)]
    queued = [call("cudaLaunchKernel", 90, 5, 8), kernel("queued", 1103, 5000, 8)]
    (stall,) = stalls(kernel("forward", 50, 1040, 1), copy, late)
    assert stall.bubble_us == 1510 - 1103
    (stall,) = stalls(kernel("forward", 50, 1040, 1), copy, queued)
    assert stall.bubble_us == 0
    assert stall.advice.startswith("costs nothing here")


def test_two_stalls_without_a_launch_between_them_share_their_bubble() -> None:
    next_work = [call("cudaLaunchKernel", 900, 5, 9), kernel("next", 910, 50, 9)]
    events = [
        kernel("forward", 0, 200, 1),
        call("cudaStreamSynchronize", 10, 195, 2),
        call("cudaStreamSynchronize", 400, 300, 3),
    ]
    bubbles = [stall.bubble_us for stall in stalls(events, next_work)]
    assert bubbles[0] == 195
    assert sum(bubbles) <= 910 - 200


def test_the_profilers_own_work_is_not_counted() -> None:
    overhead = slice_("overhead", "Activity Buffer Request", 20, 60, -1, 0)
    flush = slice_("overhead", "Buffer Flush", 20, 60, -1, 0)
    assert [stall.stall_us for stall in stalls(call("cudaDeviceSynchronize", 10, 85, 2), overhead)] == [25]
    assert [stall.stall_us for stall in stalls(call("cudaDeviceSynchronize", 10, 85, 2), flush)] == [85]


def test_the_line_is_the_innermost_frame_that_is_not_pytorchs() -> None:
    frames = [
        frame("threading.py(1032): _bootstrap", 0, 900),
        frame("/srv/engine/scheduler.py(12): event_loop", 1, 800),
        frame("/srv/engine/batch.py(443): init_new", 90, 500),
        frame("torch/utils/_contextlib.py(117): decorate_context", 95, 400),
        frame("<built-in method tensor of type object at 0x7f>", 99, 300),
    ]
    assert [stall.site for stall in stalls(frames, blocking_copy(100, 40, 7))] == ["batch.py(443): init_new"]
    assert [stall.site for stall in stalls(frames[3:], blocking_copy(100, 40, 7))] == [
        "_contextlib.py(117): decorate_context"
    ]
    assert [stall.site for stall in stalls(blocking_copy(100, 40, 7))] == [None]


def test_old_files_hold_the_stack_in_the_operator_and_ours_in_the_call() -> None:
    stack = "torch/tensor.py(9): to;C:\\code\\train.py(23): main;<module>(1): x"
    events = blocking_copy(100, 40, 7)
    events[0]["args"]["Call stack"] = stack
    assert [stall.site for stall in stalls(events)] == ["train.py(23): main"]
    events[1]["args"]["Call stack"] = "h2d.py(37): blocking"
    assert [stall.site for stall in stalls(events)] == ["h2d.py(37): blocking"]


def test_steps_are_the_programs_marks_or_the_profilers_or_graph_launches() -> None:
    copies = [one for k in range(4) for one in blocking_copy(1000 * k + 100, 40, 10 * k + 7)]

    def steps(*marks: Json) -> list[int | None]:
        return [stall.step for stall in stalls(anchor(), copies, list(marks))]

    assert steps(*(note(f"step {k + 5}", 1000 * k, 900) for k in range(4))) == [5, 6, 7, 8]
    assert steps(*(note(f"ProfilerStep#{k}", 1000 * k, 900) for k in range(4))) == [0, 1, 2, 3]
    assert steps(*(note(f"execute_{k}_context", 1000 * k, 300) for k in range(4))) == [0, 1, 2, 3]
    assert steps(*(call("cudaGraphLaunch", 1000 * k, 5, 90 + k) for k in range(4))) == [0, 1, 2, 3]
    assert steps() == [None] * 4


def test_find_stalls_returns_a_data_frame() -> None:
    frame = find_stalls(io.BytesIO(written(blocking_copy(100, 40, 7), blocking_copy(400, 90, 9))))
    assert list(frame.columns) == list(Stall.__struct_fields__)
    assert frame["stall_us"].tolist() == [46, 96]
    assert find_stalls(io.BytesIO(written(kernel("k", 0, 1, 1)))).empty


def test_advice_pins_only_where_size_makes_it_matter() -> None:
    def advice(size: int, wait: float, what: str = "HtoD (Pageable -> Device)") -> str:
        forward = [kernel("forward", 0, wait, 1), call("cudaLaunchKernel", 5000, 1, 2), kernel("n", 5010, 9, 2)]
        return stalls(forward, blocking_copy(100, wait, 7, what, size=size))[0].advice

    assert advice(64, 2000).startswith("drop the synchronization")
    assert "pinning changes little" in advice(64, 12)
    assert "from a pinned source" in advice(10 << 20, 2000)
    assert "do not overwrite it" in advice(64, 2000, "HtoD (Pinned -> Device)")


def test_xpu_copies_are_counted_and_the_rest_is_said_to_be_unknown() -> None:
    copy = memcpy("M2D", 10, 5, 7)
    runtime = slice_("xpu_runtime", "urEnqueueUSMMemcpy", 5, 4, HOST, HOST, correlation=7)
    result = found(copy, runtime, device=None)
    assert (result.copies.h2d, result.device.vendor) == (1, "intel")
    assert any("Intel XPU" in line for line in result.warnings)


def test_the_first_plugins_categories_are_read() -> None:
    events = [
        slice_("Runtime", "cudaMemcpyAsync", 5, 40, 1, 1, correlation=7),
        slice_("Memcpy", "Memcpy HtoD (Pageable -> Device)", 10, 5, 0, "stream 7", correlation=7, bytes=64),
        slice_("Kernel", "gemm", 50, 5, 0, "stream 7", correlation=8),
    ]
    result = found(events, device=None)
    assert (result.gpu_ops, result.copies.h2d) == (2, 1)
    assert any("first profiler plug-in" in line for line in result.warnings)

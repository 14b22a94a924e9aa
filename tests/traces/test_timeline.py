"""Timelines: what is drawn, as plain data and as texts of the figure."""

import io
from pathlib import Path
from typing import Any

import pytest

from penaltylab.errors import InputError
from penaltylab.traces import rows as kinds
from penaltylab.traces.read import read_trace
from penaltylab.traces.rows import duration, panel
from penaltylab.traces.stalls import analyse
from penaltylab.traces.timeline import plot_timelines
from penaltylab.traces.trace import Trace

from .build import HOST, Json, blocking_copy, call, document, kernel, memcpy, note, op, slice_, thread, written

FORWARD, SCHEDULE, COPY = 20, 16, 24
SIMULATED = {"device": {"id": 0, "name": "SIMULATED H100 (penaltylab emu)"}, "penaltylab": {"simulated": True}}


def decode_loop(steps: int, blocking: bool, names: bool = True) -> list[Json]:
    """Steps of 3 ms with a forward of 2.5 ms; the copy at the start of each waits for 400 us, or does not."""
    events: list[Any] = []
    for step in range(steps):
        at, ids = 1000.0 + 3000 * step, 100 * step
        events += [note(f"step {step}", at, 3000), kernel("forward", at + 450, 2500, ids + 1, FORWARD)]
        if blocking:
            events += blocking_copy(at + 10, 400, ids + 2, stream=SCHEDULE)
        else:
            events += [op("aten::copy_", at + 10, 20, ids), call("cudaMemcpyAsync", at + 12, 5, ids + 2, ext=ids),
                       memcpy("HtoD (Pinned -> Device)", at + 400, 2, ids + 2, stream=SCHEDULE)]  # fmt: skip
        events += [kernel("scatter", at + 420, 5, ids + 4, SCHEDULE), call("cudaLaunchKernel", at + 430, 4, ids + 1)]
        events += [memcpy("DtoH (Device -> Pinned)", at + 2960, 2, ids + 5, stream=COPY)]
        events += [call("cudaEventSynchronize", at + 500, 2400, ids + 6)]
    if names:
        events += [thread(0, FORWARD, "stream 20 forward stream"), thread(0, SCHEDULE, "stream 16 schedule stream")]
    return events


def loop(steps: int = 8, blocking: bool = True, names: bool = True, **top: Any) -> Trace:
    return read_trace(io.BytesIO(written(decode_loop(steps, blocking, names), **(top or SIMULATED))))


def texts(figure: Any) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_rows_are_host_schedule_stream_forward_stream_and_copies() -> None:
    shown = panel(analyse(loop()), None)
    assert [row.label for row in shown.rows] == ["host", "schedule stream", "forward stream", "copies"]
    assert [text for _, text in shown.marks] == ["step 2", "step 3", "step 4", "step 5"]
    assert shown.length == 4 * 3000
    forward = [block for block in shown.rows[2].blocks if block.text == "forward"]
    assert [(block.start, block.end) for block in forward] == [(450 + 3000 * k, 2950 + 3000 * k) for k in range(4)]
    assert {block.sort for block in shown.rows[3].blocks} == {kinds.H2D, kinds.D2H}


def test_a_stall_and_a_wait_for_a_result_are_told_apart() -> None:
    host = panel(analyse(loop()), (2, 2)).rows[0].blocks
    assert [(b.start, b.end, b.text) for b in host if b.sort == kinds.STALL] == [(11, 417, "406 us")]
    assert [(b.start, b.end, b.text) for b in host if b.sort == kinds.WAIT] == [(500, 2900, "2.40 ms")]
    after = panel(analyse(loop(blocking=False)), (2, 2)).rows[0].blocks
    assert not [block for block in after if block.sort == kinds.STALL]


def test_busy_is_the_share_of_the_window() -> None:
    shown = panel(analyse(loop()), (2, 3))
    assert shown.busy(shown.rows[2]) == pytest.approx(5000 / 6000)


def test_the_figure_says_what_nobody_may_miss(tmp_path: Path) -> None:
    figure = plot_timelines([loop(), loop(blocking=False)], ["before", "after"], steps=(2, 2), out=tmp_path / "a.png")
    said = texts(figure)
    assert len(figure.axes) == 2
    assert said.count("SIMULATED") == 2
    assert "406 us" in said
    assert [text for text in said if text in ("before", "after")] == ["before", "after"]
    assert any("host stalled by copies 406 us a step" in text for text in said)
    assert any("host never stalled by a copy" in text for text in said)
    assert figure.get_size_inches()[0] == pytest.approx(9.5)
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_real_device_is_not_called_simulated() -> None:
    real = loop(names=False, device={"id": 0, "name": "NVIDIA H100 80GB HBM3"})
    figure = plot_timelines([real])
    assert "SIMULATED" not in texts(figure)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["host", "stream 16", "stream 20", "copies"]


def test_a_trace_without_steps_is_shown_around_its_longest_stall() -> None:
    events = document(call("cudaLaunchKernel", 0, 5, 1), kernel("k", 5, 30_000, 1), blocking_copy(20_000, 10_000, 2))
    trace = read_trace(io.BytesIO(written(events["traceEvents"], call("cudaLaunchKernel", 90_000, 5, 9))))
    shown = panel(analyse(trace), None)
    assert shown.marks == []
    assert (shown.start, shown.length) == (20_001 - 10_006, 3 * 10_006)


def test_traces_with_nothing_to_draw_make_a_figure_all_the_same() -> None:
    for events in ([], [op("aten::add", 5, 1, 1)], [slice_("user_annotation", "ProfilerStep#1", 0, 10, HOST, HOST)]):
        trace = read_trace(io.BytesIO(written(events)))
        assert len(plot_timelines([trace]).axes) == 1


def test_names_from_a_file_are_drawn_as_plain_text() -> None:
    """A dollar sign starts mathematics in matplotlib, and half a formula is an error when drawing."""
    events = [note("step 0", 0, 1000), note("step 1", 1000, 1000), kernel(r"k$\frac{$", 100, 800, 1)]
    figure = plot_timelines([read_trace(io.BytesIO(written(events)))], labels=[r"$\oops"])
    figure.savefig(io.BytesIO(), format="png")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(([],), "no trace"), (([loop()], ["a", "b"]), "2 labels for 1"), (([loop()], None, (50, 60)), "it has 0 to 7")],
)
def test_bad_arguments_are_refused(arguments: Any, word: str) -> None:
    with pytest.raises(InputError, match=word):
        plot_timelines(*arguments)


def test_durations_for_people() -> None:
    assert [duration(us) for us in (0.4, 640, 999.6, 2420, 1_250_000)] == [
        "0 us",
        "640 us",
        "1.00 ms",
        "2.42 ms",
        "1.25 s",
    ]

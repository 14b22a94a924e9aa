"""From traces to a scene: the lanes of the figure, over the whole trace, on one clock."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penaltylab.errors import InputError
from penaltylab.traces.read import read_trace
from penaltylab.widgets import scene as sorts
from penaltylab.widgets.runs import scene_of
from penaltylab.widgets.scene import Lane, Scene, Track
from tests.traces.build import HOST, blocking_copy, call, kernel, note, op, slice_, written

from .build import HOSTILE, decode_trace


def lanes(scene: Scene, run: int = 0) -> dict[str, Lane]:
    return {lane.label: lane for lane in scene.runs[run].lanes}


def slices(lane: Lane, sort: int) -> list[tuple[float, float]]:
    return [(float(start), float(dur)) for track in lane.tracks
            for start, dur, kind in zip(track.start, track.dur, track.sort, strict=True) if kind == sort]  # fmt: skip


def named(scene: Scene, track: Track) -> list[str]:
    return [scene.names[code] for code in track.name.tolist()]


def test_a_run_has_the_lanes_of_the_figure_and_the_calls_of_its_host() -> None:
    scene = scene_of([decode_trace()])
    assert list(lanes(scene)) == ["host", "calls", "forward stream", "copies"]
    forward = lanes(scene)["forward stream"].tracks[0]
    assert named(scene, forward) == ["forward"] * 4
    assert forward.start.tolist() == [450 + 3000 * step for step in range(4)]
    assert scene.runs[0].steps == [(3000.0 * step, step) for step in range(4)]
    assert (scene.runs[0].window, scene.runs[0].simulated) == (12_000, True)


def test_all_of_the_trace_is_there_and_zero_is_where_the_shown_steps_begin() -> None:
    run = scene_of([decode_trace(steps=12)], steps=(8, 9)).runs[0]
    assert run.window == 6000
    assert run.extent == (-8 * 3000, 4 * 3000)
    assert len(run.steps) == 12


def test_stalls_and_waits_interrupt_the_running_host_and_say_what_they_waited_on() -> None:
    scene = scene_of([decode_trace(steps=2)])
    host = lanes(scene)["host"]
    assert slices(host, sorts.STALL) == [(11, 406), (3011, 406)]
    assert slices(host, sorts.WAIT) == [(500, 2400), (3500, 2400)]
    assert slices(host, sorts.RUNNING) == [(0, 11), (417, 83), (2900, 111), (3417, 83), (5900, 100)]
    stalls = host.tracks[1]
    assert scene.sites[stalls.site[0]] == "h2d.py(7): blocking"
    assert stalls.bytes[0] == 64
    assert scene.notes[stalls.note[0]].startswith("64 B of pageable memory; waited on")
    assert "non_blocking=True" in scene.notes[stalls.note[0]]


def test_calls_are_stacked_annotations_operators_runtime() -> None:
    calls = lanes(scene_of([decode_trace()]))["calls"]
    assert [set(track.sort.tolist()) for track in calls.tracks] == [{sorts.ANNOTATION}, {sorts.OPERATOR}, {sorts.CALL}]
    assert [track.row for track in calls.tracks] == [0, 1, 2]


def test_a_kernel_and_a_copy_know_the_line_that_launched_them() -> None:
    scene = scene_of([decode_trace()])
    for lane in ("forward stream", "copies"):
        track = lanes(scene)[lane].tracks[0]
        assert scene.sites[track.site[0]] == "h2d.py(7): blocking"
    copies = lanes(scene)["copies"]
    assert [(track.row, set(track.sort.tolist())) for track in copies.tracks] == [(0, {sorts.H2D}), (1, {sorts.D2H})]
    assert copies.tracks[0].bytes.tolist() == [64] * 4


def test_a_second_thread_that_stalls_has_lanes_of_its_own() -> None:
    other = [one | ({"tid": 200} if one["pid"] == HOST else {}) for one in blocking_copy(5000, 300, 50)]
    events = [op("aten::add", 0, 10, 1), *[call("cudaLaunchKernel", 20 * n, 5, n) for n in range(9)], *other]
    scene = scene_of([read_trace(io.BytesIO(written(events)))])
    assert [lane.label for lane in scene.runs[0].lanes] == ["host 200", "calls", "host 100", "calls", "copies"]
    assert slices(lanes(scene)["host 200"], sorts.STALL) != []
    assert slices(lanes(scene)["host 100"], sorts.STALL) == []


def test_tracks_are_in_order_and_do_not_overlap() -> None:
    crossing = [kernel("a", 0, 10, 1), kernel("b", 5, 10, 2), kernel("c", 8, 1, 3), kernel("d", 40, 1, 4)]
    scene = scene_of([read_trace(io.BytesIO(written(crossing)))])
    for lane in scene.runs[0].lanes:
        for track in lane.tracks:
            assert np.all(track.start[1:] >= (track.start + track.dur)[:-1] - 1e-3)
    assert sum(len(track) for track in lanes(scene)["stream 7"].tracks) == 3  # c, two deep, is left to Perfetto


def test_a_large_trace_keeps_what_is_nearest_to_the_shown_steps_and_says_so() -> None:
    trace = decode_trace(steps=200)
    whole, part = scene_of([trace]), scene_of([trace], most=500)
    assert whole.runs[0].note == ""
    assert part.runs[0].note.endswith("of 600.00 ms of the trace are shown")
    assert 500 <= part.slices <= 800 < whole.slices  # what the host does and its stalls come on top
    first, last = part.runs[0].extent
    assert first < 0 < part.runs[0].window < last
    assert np.isclose(-first, last - part.runs[0].window, rtol=0.2)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_names_become_harmless_names(text: str) -> None:
    # Half a surrogate pair cannot be written as JSON text, only escaped, which json does.
    scene = scene_of([decode_trace(name=text, site=f"{text[:50]}.py(1): f")], labels=[text])
    shown = [*scene.names, *scene.sites, *scene.notes, scene.runs[0].label, scene.runs[0].summary]
    assert max(map(len, shown)) < 3000
    assert not [one for one in shown if not one.replace("\n", "").isprintable()]


@pytest.mark.parametrize("events", [[], [op("aten::add", 5, 1, 1)], [note("step 1", 0, 10)],
                                    [slice_("python_function", "f", 0, 10)]])  # fmt: skip
def test_a_trace_with_nothing_to_show_makes_a_scene_all_the_same(events: list[Any]) -> None:
    scene = scene_of([read_trace(io.BytesIO(written(events)))])
    assert len(scene.runs) == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (([],), "no trace"),
        (([Path("a.json")] * 13,), "13 traces"),
        (([decode_trace()], ["a", "b"]), "2 labels for 1"),
        (([decode_trace()], None, (50, 60)), "it has 0 to 3"),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, word: str) -> None:
    with pytest.raises(InputError, match=word):
        scene_of(*arguments)

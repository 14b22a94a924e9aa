"""Scenes and traces for the tests of the timeline: small exact ones, large ones, hostile ones."""

import io

import numpy as np

from penaltylab.traces.read import read_trace
from penaltylab.traces.trace import Trace
from penaltylab.widgets import scene
from penaltylab.widgets.scene import Lane, Run, Scene, Track
from tests.traces.build import blocking_copy, call, frame, kernel, memcpy, note, op, thread, written

FORWARD, SCHEDULE = 20, 16
SIMULATED = {"device": {"id": 0, "name": "SIMULATED H100 (penaltylab emu)"}, "penaltylab": {"simulated": True}}

HOSTILE = {
    "markup": "<img src=x onerror=alert(1)><b>bold</b>",
    "script": "</script><script>window.scripted = true</script>",
    "comment": "<!-- <script> ]]> -->",
    "quotes": "\"' onmouseover='alert(2)' `${alert(3)}`",
    "template": "{{ 7 * 7 }}{% raw %}",
    "terminal": "\x1b]0;owned\x07\x1b[31mred",
    "direction": "\u202egnp.exe\u2066 \u200f",
    "surrogate": "half \ud83d of a pair",
    "nul": "a\x00b\r\nc\u2028d",
    "long": "x" * 1_000_000,
}


def decode_trace(
    steps: int = 4, blocking: bool = True, name: str = "forward", site: str = "h2d.py(7): blocking"
) -> Trace:
    """Steps of 3 ms with a forward of 2.5 ms; the copy at the start of each waits for 400 us, or does not."""
    return read_trace(io.BytesIO(decode_bytes(steps, blocking, name, site)))


def decode_bytes(
    steps: int = 4, blocking: bool = True, name: str = "forward", site: str = "h2d.py(7): blocking"
) -> bytes:
    """The file of `decode_trace`."""
    events = [thread(0, FORWARD, "stream 20 forward stream"), thread(0, SCHEDULE, "stream 16 schedule stream")]
    for step in range(steps):
        at, ids = 1000.0 + 3000 * step, 100 * step
        events += [note(f"step {step}", at, 3000), frame(site, at + 5, 450)]
        events += [op(name, at + 440, 20, 5000 + ids), call("cudaLaunchKernel", at + 445, 4, ids + 1)]
        events += [kernel(name, at + 450, 2500, ids + 1, FORWARD)]
        if blocking:
            events += blocking_copy(at + 10, 400, ids + 2, stream=SCHEDULE)
        events += [memcpy("DtoH (Device -> Pinned)", at + 2960, 2, ids + 5, stream=SCHEDULE)]
        events += [call("cudaEventSynchronize", at + 500, 2400, ids + 6)]
    return written(events, **SIMULATED)


def large_scene(slices: int = 200_000) -> Scene:
    """Two runs of as many slices in all: dense kernels on two streams, nested calls, and a stall every millisecond."""
    names = ["", *(f"kernel_{number}" for number in range(500))]
    return Scene([_large_run(f"run {at}", slices // 2, at) for at in range(2)], names, ["", "a.py(1): f"], [""])


def _large_run(label: str, slices: int, seed: int) -> Run:
    random = np.random.default_rng(seed)
    share = slices // 5
    lanes = [
        Lane("host", scene.HOST, [_dense(0, 500, 1.0, scene.STALL, random)]),
        Lane("calls", scene.CALLS, [_dense(row, share, 0.9, scene.OPERATOR, random) for row in range(3)]),
        Lane("schedule stream", scene.STREAM, [_dense(0, share, 0.5, scene.KERNEL, random)]),
        Lane("forward stream", scene.STREAM, [_dense(0, slices - 4 * share - 500, 0.99, scene.KERNEL, random)]),
    ]
    steps = [(1000.0 * step, step) for step in range(500)]
    return Run(label, "200,000 slices", True, 500_000.0, (0.0, 500_000.0), steps, lanes)


def _dense(row: int, count: int, full: float, sort: int, random: np.random.Generator) -> Track:
    """Slices of uneven lengths that fill `full` of half a second."""
    edges = np.sort(random.uniform(0, 500_000, count))
    lengths = np.diff(np.append(edges, 500_000.0)) * full
    names = random.integers(1, 501, count).astype(np.uint32)
    return Track.of(row, edges, lengths, sort, names, np.ones(count, np.uint32))

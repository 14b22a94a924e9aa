"""The rows of a timeline as plain data: which stretch of which row is busy with what, in a window of a trace."""

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penaltylab.errors import InputError
from penaltylab.traces import schema
from penaltylab.traces.copies import TO_DEVICE
from penaltylab.traces.stalls import Analysis, Stall
from penaltylab.traces.trace import Floats, Trace

RUNNING, STALL, WAIT, KERNEL, H2D, D2H = range(6)
"""Sorts of block. A WAIT is a synchronization that follows no copy: the wait for a result, for one."""

HOST, COPIES = "host", "copies"
STALL_KINDS: Final = ("blocking-h2d", "blocking-d2h", "memset-sync")
_MOST_STREAMS = 4
_DEFAULT_STEPS = 4
_NAMED = re.compile(r"stream \S+ (?P<name>\S.*)")
_FIRST = ("schedule", "forward")
_LONG = 1 / 60


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a row, in us from the start of the window."""

    start: float
    end: float
    sort: int
    text: str = ""

    @property
    def us(self) -> float:
        return self.end - self.start


@dataclass(slots=True)
class Row:
    label: str
    blocks: list[Block] = field(default_factory=list)


@dataclass(slots=True)
class Panel:
    """One run in one window: rows from the top down, step marks, and the stalls that are drawn."""

    trace: Trace
    start: float
    length: float
    rows: list[Row]
    marks: list[tuple[float, str]]
    stalls: list[Stall]

    def busy(self, row: Row) -> float:
        """The share of the window in which a row is busy, 0 to 1."""
        begins, ends = np.array([(one.start, one.end) for one in row.blocks]).reshape(-1, 2).T
        return sum(end - start for start, end in merged(begins, ends, 0.0, self.length, closed=0.0)) / self.length


def panel(analysis: Analysis, steps: tuple[int, int] | None) -> Panel:
    """Lay out a run. `steps` are the first and the last step shown; by default up to four from its middle."""
    trace = analysis.trace
    start, end, marks = _window(analysis, steps)
    host = _host_lane(analysis)
    stalls = [
        one
        for one, lane in zip(analysis.stalls, analysis.lanes, strict=True)
        if lane == host and one.start_us < end and one.start_us + one.stall_us > start
    ]
    rows = [_host(trace, host, start, end, stalls), *_streams(trace, start, end), _copies(analysis, start, end)]
    shown = [row for row in rows if row.blocks] or [Row("nothing to draw")]
    return Panel(trace, start, max(end - start, 1.0), shown, marks, stalls)


def _window(analysis: Analysis, chosen: tuple[int, int] | None) -> tuple[float, float, list[tuple[float, str]]]:
    steps = analysis.steps
    if not len(steps):
        return (*_around_the_longest_stall(analysis), [])
    if chosen is None:
        count = min(_DEFAULT_STEPS, len(steps))
        first = (len(steps) - count + 1) // 2
        inside = np.arange(first, first + count)
    else:
        inside = np.flatnonzero((steps.number >= chosen[0]) & (steps.number <= chosen[1]))
        if not inside.size:
            have = f"it has {steps.number.min()} to {steps.number.max()}"
            raise InputError(f"{analysis.trace.path}: no step from {chosen[0]} to {chosen[1]} in this trace: {have}")
    start, end = float(steps.start[inside[0]]), float(steps.end[inside[-1]])
    end = end if np.isfinite(end) else float(analysis.trace.gpu.end.max(initial=start))
    return start, end, [(float(steps.start[at]) - start, f"step {steps.number[at]}") for at in inside]


def _around_the_longest_stall(analysis: Analysis) -> tuple[float, float]:
    """A trace without steps: its longest stall with as much again on either side, or all of it."""
    trace = analysis.trace
    tables = [table for table in (trace.gpu, trace.runtime, trace.operators) if len(table)]
    first = min((float(table.start[0]) for table in tables), default=0.0)
    last = max((float(table.end.max()) for table in tables), default=1.0)
    if not analysis.stalls:
        return first, last
    longest = max(analysis.stalls, key=lambda stall: stall.stall_us)
    around = max(longest.stall_us, 100.0)
    return max(first, longest.start_us - around), min(last, longest.start_us + longest.stall_us + around)


def _host_lane(analysis: Analysis) -> int:
    """The thread that is drawn: the one that stands still longest, else the one that does most."""
    trace = analysis.trace
    if analysis.stalls:
        lost = np.bincount(analysis.lanes, [stall.stall_us for stall in analysis.stalls])
        return int(lost.argmax())
    table = trace.runtime if len(trace.runtime) else trace.operators
    return int(np.bincount(table.lane).argmax()) if len(table) else -1


def _host(trace: Trace, lane: int, start: float, end: float, stalls: list[Stall]) -> Row:
    """A host thread: running, stalled by a copy, or waiting for a result."""
    row = Row(HOST)
    tables = (trace.operators, trace.annotations, trace.runtime)
    begins = np.concatenate([table.start[table.lane == lane] for table in tables])
    ends = np.concatenate([table.end[table.lane == lane] for table in tables])
    row.blocks = [Block(a, b, RUNNING) for a, b in merged(begins, ends, start, end)]
    for stall in stalls:
        sort = STALL if stall.kind in STALL_KINDS else WAIT
        begin = max(stall.start_us, start)
        stop = min(stall.start_us + stall.stall_us, end)
        row.blocks.append(Block(begin - start, stop - start, sort, duration(stall.stall_us)))
    return row


def _streams(trace: Trace, start: float, end: float) -> list[Row]:
    lanes = stream_lanes(trace, start, end, _MOST_STREAMS)
    return [Row(stream_label(trace, lane), _kernels(trace, lane, start, end)) for lane in lanes]


def stream_lanes(trace: Trace, start: float, end: float, most: int) -> list[int]:
    """The busiest streams that run kernels, the schedule stream first, then the forward stream."""
    kernels = trace.gpu.kind == schema.KERNEL
    inside = kernels & (trace.gpu.start < end) & (trace.gpu.end > start)
    lanes, where = np.unique(trace.gpu.lane[inside], return_inverse=True)
    busy = np.bincount(where, trace.gpu.dur[inside], minlength=len(lanes))
    return sorted(lanes[np.argsort(-busy)][:most].tolist(), key=lambda lane: _rank(trace, lane))


def _kernels(trace: Trace, lane: int, start: float, end: float) -> list[Block]:
    """Long kernels by name; what is short and close together as one nameless block."""
    gpu = trace.gpu
    chosen = np.flatnonzero((gpu.lane == lane) & (gpu.kind != schema.MEMCPY) & (gpu.start < end) & (gpu.end > start))
    begins, ends = gpu.start[chosen], gpu.end[chosen]
    long = ends - begins > (end - start) * _LONG
    blocks = [
        Block(
            max(float(gpu.start[at]), start) - start,
            min(float(gpu.end[at]), end) - start,
            KERNEL,
            trace.names[gpu.name[at]],
        )
        for at in chosen[long].tolist()
    ]
    blocks += [Block(a, b, KERNEL) for a, b in merged(begins[~long], ends[~long], start, end)]
    return sorted(blocks, key=lambda block: block.start)


def _copies(analysis: Analysis, start: float, end: float) -> Row:
    """All copies between host and device, whichever stream they are on."""
    copies, gpu = analysis.copies, analysis.trace.gpu
    row = Row(COPIES)
    for at, direction in zip(copies.gpu.tolist(), copies.direction.tolist(), strict=True):
        begin, stop = float(gpu.start[at]), float(gpu.end[at])
        if begin < end and stop > start:
            sort = H2D if direction == TO_DEVICE else D2H
            row.blocks.append(Block(max(begin, start) - start, min(stop, end) - start, sort))
    return row


def merged(
    begins: Floats, ends: Floats, start: float, end: float, closed: float = 1 / 500
) -> list[tuple[float, float]]:
    """The union of intervals within the window; gaps of less than this part of the window are closed."""
    inside = (begins < end) & (ends > start)
    order = np.argsort(begins[inside], kind="stable")
    begins, reached = begins[inside][order], np.maximum.accumulate(ends[inside][order])
    if not len(begins):
        return []
    new = np.flatnonzero(np.append(True, begins[1:] - reached[:-1] > (end - start) * closed))
    stops = reached[np.append(new[1:] - 1, len(reached) - 1)]
    return [
        (max(a, start) - start, min(b, end) - start) for a, b in zip(begins[new].tolist(), stops.tolist(), strict=True)
    ]


def _rank(trace: Trace, lane: int) -> tuple[int, str]:
    label = stream_label(trace, lane)
    place = next((at for at, word in enumerate(_FIRST) if label.startswith(word)), len(_FIRST))
    return place, label.rjust(40)


def stream_label(trace: Trace, lane: int) -> str:
    """The stream's own name where the file gives one (`stream 20 forward stream`), else its number."""
    named = _NAMED.fullmatch(trace.lane_names.get(lane, ""))
    return named["name"] if named else f"stream {trace.stream_of(lane)}"


def summary(one: Panel) -> str:
    """What a panel shows, in a line: device, step, stalls, the busiest stream."""
    stalled = sum(stall.stall_us for stall in one.stalls if stall.kind in STALL_KINDS)
    parts = [one.trace.device.name]
    each = max(len(one.marks), 1)
    if one.marks:
        parts.append(f"{duration(one.length / each)} a step")
    share = f"{duration(stalled / each)} a step" if one.marks else f"{duration(stalled)} of {duration(one.length)}"
    parts.append(f"host stalled by copies {share}" if stalled else "host never stalled by a copy")
    streams = [row for row in one.rows if row.blocks and row.label not in (HOST, COPIES)]
    if streams:
        busiest = max(streams, key=one.busy)
        parts.append(f"{busiest.label} busy {one.busy(busiest):.0%}")
    return "   ·   ".join(parts)


def duration(us: float) -> str:
    """A length of time for a person: 640 us, 2.42 ms, 1.25 s."""
    if us >= 999_500:
        return f"{us / 1e6:.2f} s"
    return f"{us / 1e3:.2f} ms" if us >= 999.5 else f"{us:.0f} us"

"""Every place in a trace where the host stood still: the call, for how long, on what it waited, what that cost."""

from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penaltylab.traces.advice import KINDS, advise
from penaltylab.traces.bubbles import find_bubbles
from penaltylab.traces.calls import Role, roles
from penaltylab.traces.copies import MEMORY, TO_DEVICE, TO_HOST, Copies, call_of, find_copies
from penaltylab.traces.nesting import Index, Nest
from penaltylab.traces.read import read_trace
from penaltylab.traces.sites import find_sites
from penaltylab.traces.steps import Steps, find_steps
from penaltylab.traces.trace import Floats, Trace
from penaltylab.traces.waits import Explained, Overlaps, Wait, explain

if TYPE_CHECKING:
    import pandas as pd

H2D, D2H, STREAM, DEVICE, EVENT, MEMSET = range(len(KINDS))
_SYNC_KINDS = {
    Role.STREAM_SYNC: STREAM,
    Role.DEVICE_SYNC: DEVICE,
    Role.EVENT_SYNC: EVENT,
    Role.MEMSET_BLOCKING: MEMSET,
}
_OVERHEAD = ("Activity Buffer Request", "Instrumentation")


class Stall(msgspec.Struct, frozen=True):
    """One stretch in which the host stood still. Times in us; `start_us` counts from the start of the trace.

    `stall_us` is how long the host stood, `bubble_us` how long the GPU then idled because of it: two different numbers.
    """

    kind: str
    start_us: float
    stall_us: float
    copy_us: float
    bytes: int | None
    memory: str
    stream: int | str | None
    call: str
    site: str | None
    step: int | None
    waited_on: list[Wait] | str
    bubble_us: float
    advice: str


@dataclass(slots=True)
class Analysis:
    """All that one pass over a trace finds."""

    trace: Trace
    role: NDArray[np.int8]
    launch: Index
    """Of each GPU operation, the runtime call that launched it; -1 unknown."""
    copies: Copies
    steps: Steps
    stalls: list[Stall]
    lanes: list[int]
    """Of each stall, the host thread that stood still, as a lane of the trace."""


@dataclass(slots=True)
class _Rows:
    """Stalls as columns, in order of start; `copy` indexes the copies, -1 of a synchronization."""

    kind: NDArray[np.int8]
    call: Index
    copy: Index
    start: Floats
    end: Floats


def find_stalls(trace: "str | Path | IO[bytes] | Trace") -> "pd.DataFrame":
    """Every host stall of a trace as a DataFrame, one row a stall, the columns those of `Stall`.

    The index of a simulated trace is called SIMULATED, so that no view of the table hides it.
    """
    import pandas as pd

    read = trace if isinstance(trace, Trace) else read_trace(trace)
    rows = [msgspec.structs.asdict(stall) for stall in analyse(read).stalls]
    table = pd.DataFrame(rows, columns=list(Stall.__struct_fields__)).astype({"bytes": "Int64", "step": "Int64"})
    table.index.name = "SIMULATED" if read.simulated else None
    return table


def analyse(trace: Trace) -> Analysis:
    """Find the copies, steps and stalls of a trace."""
    role = roles(trace)
    launch = call_of(trace)
    copies = find_copies(trace, role, launch)
    steps = find_steps(trace, role)
    rows = _rows(trace, role, copies)
    stalls = _stalls(trace, copies, steps, rows, launch)
    return Analysis(trace, role, launch, copies, steps, stalls, trace.runtime.lane[rows.call].tolist())


def _rows(trace: Trace, role: NDArray[np.int8], copies: Copies) -> _Rows:
    """Blocking copies, and every synchronizing call that is not the second half of one."""
    blocked = np.flatnonzero(copies.blocking)
    taken = np.zeros(len(role), bool)
    taken[copies.sync[copies.sync >= 0]] = True
    taken[copies.call[blocked]] = True
    kind_of = np.full(max(Role) + 1, -1, np.int8)
    kind_of[list(_SYNC_KINDS)] = list(_SYNC_KINDS.values())
    kind = kind_of[role]
    # A blocking copy whose device row is missing (a cropped file) is known by what ROCm's call says it copies.
    alone = (role == Role.COPY_BLOCKING) & np.isin(trace.runtime.kind, (TO_DEVICE, TO_HOST))
    kind[alone] = trace.runtime.kind[alone] - TO_DEVICE
    alone = np.flatnonzero((kind >= 0) & ~taken)
    call = np.concatenate([copies.call[blocked], alone])
    start = trace.runtime.start[call]
    end = np.concatenate([copies.end[blocked], trace.runtime.end[alone]])
    columns = (np.concatenate([copies.direction[blocked] - TO_DEVICE, kind[alone]]), call)
    order = np.argsort(start, kind="stable")
    copy = np.concatenate([blocked, np.full(len(alone), -1)])
    return _Rows(columns[0][order], call[order], copy[order], start[order], end[order])


def _stalls(trace: Trace, copies: Copies, steps: Steps, rows: _Rows, launch: Index) -> list[Stall]:
    count = len(rows.call)
    if not count:
        return []
    gpu = np.where(rows.copy >= 0, copies.gpu[rows.copy], -1) if len(copies.gpu) else np.full(count, -1)
    has_copy = gpu >= 0
    until = rows.end.copy()
    until[has_copy] = np.clip(trace.gpu.start[gpu[has_copy]], rows.start[has_copy], rows.end[has_copy])
    length = np.maximum(rows.end - rows.start - _overhead(trace, rows), 0.0)
    lane = _synchronized_lanes(trace, rows, gpu)
    overlaps = Overlaps.of(trace, rows.start, until)
    reasons = [
        explain(trace, overlaps, at, (rows.start[at], until[at]), int(gpu[at]), int(lane[at]), rows.kind[at] != DEVICE)
        for at in range(count)
    ]
    bubble = np.minimum(find_bubbles(trace, launch, rows.call, rows.start, rows.end), length)
    sites, step, items = find_sites(trace, rows.call), steps.of(rows.start), _items(trace, rows.call)
    return [
        _stall(trace, copies, rows, at, length[at], bubble[at], reasons[at], sites[at], step[at], items[at])
        for at in range(count)
    ]


def _stall(
    trace: Trace, copies: Copies, rows: _Rows, at: int, length: Any, bubble: Any, reason: Explained,
    site: str | None, step: int | None, item: bool,
) -> Stall:  # fmt: skip
    kind, copy, call = KINDS[rows.kind[at]], int(rows.copy[at]), int(rows.call[at])
    size = int(copies.bytes[copy] if copy >= 0 else trace.runtime.bytes[call])
    known = size if size >= 0 else None
    memory = MEMORY[copies.memory[copy]] if copy >= 0 else "unknown"
    return Stall(
        kind=kind,
        start_us=round(float(rows.start[at]), 3),
        stall_us=round(float(length), 3),
        copy_us=round(float(trace.gpu.dur[copies.gpu[copy]]), 3) if copy >= 0 else 0.0,
        bytes=known,
        memory=memory,
        stream=trace.stream_of(reason.lane),
        call=trace.names[trace.runtime.name[call]],
        site=site,
        step=step,
        waited_on=reason.waited_on,
        bubble_us=round(float(bubble), 3),
        advice=advise(kind, known, memory, reason.waited_on, float(bubble), item),
    )


def _overhead(trace: Trace, rows: _Rows) -> Floats:
    """How much of each stall is the profiler's own work, which makes a call look long."""
    codes = [code for code in np.unique(trace.overhead.name).tolist() if trace.names[code] in _OVERHEAD]
    own = np.flatnonzero(np.isin(trace.overhead.name, codes))
    if not own.size:
        return np.zeros(len(rows.start))
    start, end = trace.overhead.start[own], np.maximum.accumulate(trace.overhead.end[own])
    start = np.maximum(start, np.append(-np.inf, end[:-1]))
    total = np.append(0.0, np.cumsum(np.maximum(end - start, 0.0)))
    first, last = np.searchsorted(end, rows.start), np.searchsorted(start, rows.end)
    whole = total[last] - total[np.minimum(first, last)]
    before = np.where(first < last, np.maximum(rows.start - start[np.minimum(first, len(start) - 1)], 0.0), 0.0)
    behind = np.where(first < last, np.maximum(end[np.maximum(last, 1) - 1] - rows.end, 0.0), 0.0)
    return np.maximum(whole - before - behind, 0.0)


def _synchronized_lanes(trace: Trace, rows: _Rows, gpu: Index) -> Index:
    """The lane of the stream that each stall waited for: its copy's, or what a synchronization event says; else -1."""
    lane = np.full(len(gpu), -1, np.intp)
    lane[gpu >= 0] = trace.gpu.lane[gpu[gpu >= 0]]
    if len(trace.syncs) and len(trace.gpu):
        lane_of = {trace.stream_of(one): one for one in np.unique(trace.gpu.lane).tolist()}
        stream_of = dict(zip(trace.syncs.correlation.tolist(), trace.syncs.stream.tolist(), strict=True))
        for at in np.flatnonzero(lane < 0).tolist():
            stream = stream_of.get(int(trace.runtime.correlation[rows.call[at]]))
            lane[at] = lane_of.get(stream, -1)
    return lane


def _items(trace: Trace, call: Index) -> list[bool]:
    """Whether each call was made for a Python number: inside `aten::_local_scalar_dense`."""
    if not len(trace.operators):
        return [False] * len(call)
    nest, runtime = Nest.of(trace.operators), trace.runtime
    at = nest.innermost(runtime.lane[call], runtime.start[call], runtime.end[call])
    codes = np.where(at >= 0, trace.operators.name[nest.order[at]], -1).tolist()
    return [code >= 0 and trace.names[code] == "aten::_local_scalar_dense" for code in codes]

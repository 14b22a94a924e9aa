"""How long the GPU stood idle because the host had stood still."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penaltylab.traces.nesting import Index
from penaltylab.traces.trace import Floats, Trace


@dataclass(slots=True)
class Idle:
    """The idle time of one device as a running total, so that the idle part of any interval is a difference."""

    edges: Floats
    total: Floats

    @classmethod
    def of(cls, start: Floats, end: Floats) -> "Idle":
        """From the operations of all streams of a device, sorted by start."""
        reached = np.maximum.accumulate(end)
        gap = np.flatnonzero(start[1:] > reached[:-1])
        edges = np.stack([reached[:-1][gap], start[1:][gap]], axis=1).ravel()
        lengths = np.stack([np.zeros(len(gap)), start[1:][gap] - reached[:-1][gap]], axis=1).ravel()
        return cls(edges, np.cumsum(lengths))

    def between(self, start: Floats, end: Floats) -> Floats:
        if not len(self.edges):
            return np.zeros(len(start))
        return np.maximum(np.interp(end, self.edges, self.total) - np.interp(start, self.edges, self.total), 0.0)


def find_bubbles(trace: Trace, launch: Index, call: Index, start: Floats, end: Floats) -> Floats:
    """The idle time that follows from each stall of `start` to `end`, us.

    It is the time without any GPU operation from the last operation that ended during the stall to the first one that
    the thread launched after it, and at most the length of the stall: only so much earlier could that launch have been.
    Where two stalls follow one another without a launch between them, the idle time is shared out, not counted twice.
    A stall without a bubble cost nothing.
    """
    if not len(trace.gpu) or not len(call):
        return np.zeros(len(call))
    until = _next_work(trace, launch, call, end)
    lane = trace.runtime.lane[call]
    order = np.lexsort((start, lane))
    same = lane[order][1:] == lane[order][:-1]
    until[order[:-1][same]] = np.minimum(until[order[:-1][same]], start[order[1:][same]])
    ends = np.sort(trace.gpu.end)
    last = ends[np.maximum(np.searchsorted(ends, end, side="right") - 1, 0)]
    since = np.where((last >= start) & (last <= end), last, end)
    idle = Idle.of(trace.gpu.start, trace.gpu.end)
    return np.minimum(idle.between(since, np.maximum(until, since)), end - start)


def _next_work(trace: Trace, launch: Index, call: Index, end: Floats) -> Floats:
    """When the first GPU operation starts that the same thread launched after the end of each stall."""
    known = np.flatnonzero(launch >= 0)
    launches, first = np.unique(launch[known], return_index=True)
    begins = trace.gpu.start[known[first]]
    lanes, starts = trace.runtime.lane[launches], trace.runtime.start[launches]
    until = np.full(len(call), float(trace.gpu.end.max()))
    stalled: NDArray[np.int32] = trace.runtime.lane[call]
    for lane in np.unique(stalled):
        on_lane, waiting = lanes == lane, np.flatnonzero(stalled == lane)
        at = np.searchsorted(starts[on_lane], end[waiting])
        later = at < int(on_lane.sum())
        until[waiting[later]] = begins[on_lane][at[later]]
    return until

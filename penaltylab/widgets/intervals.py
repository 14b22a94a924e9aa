"""Intervals of time: how deep each is nested, and what is left of some without others."""

import numpy as np
from numpy.typing import NDArray

from penaltylab.traces.trace import Floats

_ROUNDING_US = 1e-3
"""Kineto rounds to ns: a slice that begins so much before another ends comes after it."""


def depths(start: Floats, dur: Floats) -> NDArray[np.int32]:
    """The depth of each slice, 0 outermost, of slices in order of start; slices that cross count as nested."""
    found = np.zeros(len(start), np.int32)
    if not np.any(start[1:] < (start + dur)[:-1] - _ROUNDING_US):
        return found
    open_ends: list[float] = []
    for at, (begin, end) in enumerate(zip(start.tolist(), (start + dur).tolist(), strict=True)):
        while open_ends and open_ends[-1] <= begin + _ROUNDING_US:
            open_ends.pop()
        found[at] = len(open_ends)
        open_ends.append(end)
    return found


def without(kept: Floats, taken: Floats) -> Floats:
    """What is left of intervals where others are taken out; rows of (begin, end), each kind in order and disjoint."""
    left: list[tuple[float, float]] = []
    holes, at = taken.tolist(), 0
    for first, end in kept.tolist():
        begin = first
        while at < len(holes) and holes[at][1] <= begin:
            at += 1
        # The last hole may reach into the interval behind, so it stays the next one to look at.
        for hole, after in (holes[index] for index in range(at, len(holes))):
            if hole >= end:
                break
            if hole > begin:
                left.append((begin, hole))
            begin = max(begin, after)
        if begin < end:
            left.append((begin, end))
    return np.array(left).reshape(-1, 2)

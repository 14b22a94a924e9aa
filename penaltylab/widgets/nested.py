"""How deep each slice of a row is nested, so that slices of one depth do not overlap."""

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

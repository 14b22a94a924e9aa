"""Lanes for slices that cross: on one row slices must nest, or viewers drop them; what does not fit moves to a lane."""

import numpy as np
from numpy.typing import NDArray

from penaltylab.traces.trace import Ints


def assign(row: Ints, start: Ints, end: Ints) -> NDArray[np.int32]:
    """The lane of each slice on its row, times in ns: 0 unless it crosses a slice of every lane below its own."""
    lane = np.zeros(len(row), np.int32)
    order = np.lexsort((-end, start, row))
    for chosen in np.split(order, np.flatnonzero(np.diff(row[order])) + 1):
        begins, ends = start[chosen], end[chosen]
        if np.any((begins[1:] < np.maximum.accumulate(ends)[:-1]) & (ends[1:] > ends[:-1])):
            lane[chosen] = _assign_row(begins.tolist(), ends.tolist())
    return lane


def late(row: Ints, start: Ints, end: Ints) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Slices that must be written later than they stand in the file, and the place of every slice when sorted.

    Viewers take slices of one row that start together in the order of the file, and drop a longer one behind a shorter.
    """
    order = np.lexsort((-end, start, row))
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    together = (np.diff(row[order]) == 0) & (np.diff(start[order]) == 0)
    group = np.append(0, np.cumsum(~together)) if len(order) else np.zeros(0, np.intp)
    wrong = np.zeros(len(order), bool)
    wrong[group[1:][together & (np.diff(order) < 0)]] = True
    found = np.zeros(len(order), bool)
    found[order] = wrong[group]
    return found, place


def _assign_row(starts: list[int], ends: list[int]) -> list[int]:
    """Each slice goes to the first lane whose open slices all end before it starts or not before it ends."""
    open_ends: list[list[int]] = []
    lanes = []
    for start, end in zip(starts, ends, strict=True):
        for stack in open_ends:
            while stack and stack[-1] <= start:
                stack.pop()
        lane = next((at for at, stack in enumerate(open_ends) if not stack or end <= stack[-1]), len(open_ends))
        if lane == len(open_ends):
            open_ends.append([])
        open_ends[lane].append(end)
        lanes.append(lane)
    return lanes

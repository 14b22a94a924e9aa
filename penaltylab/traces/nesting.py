"""Which slice encloses which: found for many queries at once, without walking a tree of slices."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penaltylab.traces.trace import Floats, Slices

Index = NDArray[np.intp]


@dataclass(slots=True)
class Nest:
    """Finds the innermost slice of a lane that encloses an interval.

    Slices are put in order of (lane, start, longest first); the innermost enclosing slice is then the last one before
    the query whose end is not before the query's end. It is found in a tree of maxima of the ends.
    """

    order: Index
    lane: NDArray[np.int32]
    start: Floats
    levels: list[Floats] = field(default_factory=list)

    @classmethod
    def of(cls, slices: Slices) -> "Nest":
        order = np.argsort(slices.lane, kind="stable")
        nest = cls(order, slices.lane[order], slices.start[order])
        level = slices.end[order]
        while True:
            nest.levels.append(level)
            if len(level) <= 1:
                return nest
            padded = np.append(level, -np.inf) if len(level) % 2 else level
            level = np.maximum(padded[0::2], padded[1::2])

    def innermost(self, lane: NDArray[Any], start: Floats, end: Floats, before: Index | None = None) -> Index:
        """Positions (in the order of this nest) of the innermost enclosing slices, -1 where there is none.

        `before` restricts the search to slices in front of a position: with the last answer it climbs to the parents.
        """
        first = np.searchsorted(self.lane, lane, side="left")
        last = np.searchsorted(self.lane, lane, side="right")
        if before is None:
            at = np.empty(len(start), np.intp)
            for one in np.unique(lane):
                chosen = lane == one
                low, high = first[chosen][0], last[chosen][0]
                at[chosen] = low + np.searchsorted(self.start[low:high], start[chosen], side="right") - 1
        else:
            at = before - 1
        found = self._last_reaching(at, end)
        return np.where((found >= first) & (found >= 0), found, -1)

    def _last_reaching(self, at: Index, end: Floats) -> Index:
        """The last position not behind `at` whose slice ends at `end` or later; -1 where there is none."""
        if not self.levels[0].size:
            return np.full(len(at), -1, np.intp)
        at, height = at.copy(), np.zeros(len(at), np.intp)
        found = np.full(len(at), -1, np.intp)

        def settle(nodes: Index, step: int) -> Index:
            """Keep the answers that a node of this level gives; return those still searching."""
            hit = self.levels[step][at[nodes]] >= end[nodes]
            found[nodes[hit]], height[nodes[hit]] = at[nodes[hit]], step
            return nodes[~hit]

        active = np.flatnonzero(at >= 0)
        for step in range(len(self.levels)):
            active = settle(active, step)
            odd = at[active] % 2 == 1
            at[active[odd]] -= 1
            active = np.concatenate([active[~odd], settle(active[odd], step)])
            at[active] = at[active] // 2 - 1
            active = active[at[active] >= 0]
        for step in range(len(self.levels) - 1, 0, -1):
            down = np.flatnonzero((height == step) & (found >= 0))
            right = np.minimum(found[down] * 2 + 1, len(self.levels[step - 1]) - 1)
            takes = self.levels[step - 1][right] >= end[down]
            found[down] = np.where(takes, right, found[down] * 2)
            height[down] = step - 1
        return found

"""What the host waited for during a stall: GPU work between the call and the copy, on its own stream and on others."""

from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from penaltylab.traces.nesting import Index
from penaltylab.traces.trace import Floats, Trace

UNTRACED: Final = "untraced work"
THE_COPY: Final = "the copy itself"
LATENCY_US: Final = 50.0
"""A wait up to this long needs no explanation: it is launching the copy and returning from it."""
_EXPLAINED = 0.1
_MOST_NAMED = 3


class Wait(msgspec.Struct, frozen=True):
    """GPU work that went on during a stall, summed over the operations of one name on one stream."""

    name: str
    stream: int | str | None
    us: float


@dataclass(slots=True)
class Overlaps:
    """GPU operations in the windows of stalls: per stall one list of (lane, first, last) into `rows` of that lane."""

    rows: dict[int, Index]
    spans: list[list[tuple[int, int, int]]] = field(default_factory=list)

    @classmethod
    def of(cls, trace: Trace, start: Floats, end: Floats) -> "Overlaps":
        found = cls({}, [[] for _ in start])
        for lane in np.unique(trace.gpu.lane).tolist():
            rows = np.flatnonzero(trace.gpu.lane == lane)
            found.rows[lane] = rows
            first = np.searchsorted(np.maximum.accumulate(trace.gpu.end[rows]), start, side="right")
            last = np.searchsorted(trace.gpu.start[rows], end, side="left")
            for index in np.flatnonzero(last > first).tolist():
                found.spans[index].append((lane, int(first[index]), int(last[index])))
        return found


@dataclass(slots=True)
class Explained:
    """What a stall waited on, and the lane of the stream that it waited for (-1 unknown)."""

    waited_on: list[Wait] | str
    lane: int


def explain(
    trace: Trace, overlaps: Overlaps, index: int, window: tuple[float, float], copy: int, lane: int, own: bool
) -> Explained:
    """Explain one stall.

    Args:
        index: the stall, as in `overlaps`.
        window: when the wait began and when it was over; of a copy, when the copy began.
        copy: the stall's own copy in `trace.gpu`, -1 of a synchronization.
        lane: the lane of the stream that was synchronized, -1 unknown.
        own: whether one stream was waited for, and not the whole device.
    """
    begin, end = window
    length = end - begin
    by_lane: dict[int, tuple[Index, Floats]] = {}
    for on, first, last in overlaps.spans[index]:
        rows = overlaps.rows[on][first:last]
        rows = rows[rows != copy]
        us = np.minimum(trace.gpu.end[rows], end) - np.maximum(trace.gpu.start[rows], begin)
        if rows.size and us.max() > 0:
            by_lane[on] = rows[us > 0], us[us > 0]
    if lane < 0 and own and by_lane:
        lane = _busiest(by_lane)
    covered = float(by_lane[lane][1].sum()) if lane in by_lane else 0.0
    considered = by_lane
    if own and lane in by_lane and covered >= length / 2:
        considered = {lane: by_lane[lane]}
    elif own and covered:
        considered = {on: found for on, found in by_lane.items() if on == lane or _covers(found, length)}
    waits = _summed(trace, considered)
    if sum(wait.us for wait in waits) >= _EXPLAINED * length and (length > LATENCY_US or covered):
        return Explained(waits[:_MOST_NAMED], lane)
    if copy >= 0:
        # The host itself moves the bytes of a large pageable copy into staging memory before the device starts.
        short = length <= max(LATENCY_US, 2 * float(trace.gpu.dur[copy]))
        return Explained(THE_COPY if short else UNTRACED, lane)
    return Explained(UNTRACED if length > LATENCY_US else [], lane)


def _covers(found: tuple[Index, Floats], length: float) -> bool:
    return float(found[1].sum()) >= _EXPLAINED * length


def _busiest(by_lane: dict[int, tuple[Index, Floats]]) -> int:
    """The stream that was busy longest while the host waited: the one it was waiting for, as far as anyone can tell."""
    return max(by_lane, key=lambda lane: float(by_lane[lane][1].sum()))


def _summed(trace: Trace, by_lane: dict[int, tuple[Index, Floats]]) -> list[Wait]:
    waits = []
    for lane, (rows, us) in by_lane.items():
        codes, where = np.unique(trace.gpu.name[rows], return_inverse=True)
        for code, total in zip(codes.tolist(), np.bincount(where, us).tolist(), strict=True):
            waits.append(Wait(trace.names[code], trace.stream_of(lane), round(total, 3)))
    return sorted(waits, key=lambda wait: -wait.us)

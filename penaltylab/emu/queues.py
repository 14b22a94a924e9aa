"""The device's side of streams: queues of operations in virtual time, and the copy engines they share."""

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from penaltylab.emu.sites import Site

if TYPE_CHECKING:
    from penaltylab.emu.freed import FreedBlock

Order = dict[int, int]
"""A vector clock: for each stream id, the last operation that is known to have happened before."""

Stamp = tuple[int, Site, str]
"""An operation's number, its call site and its name."""


class LostRecord(NamedTuple):
    """A point that an event stood for until, at `again`, it was recorded somewhere that is not after it."""

    order: Order
    site: Site
    again: Site


class Queue:
    """One hardware stream.

    `tail_us` is when everything enqueued so far is done; `order` is what happened before its next operation; `freed` is
    memory allocated here that was freed in use; `lost` is what events waited for here had stood for earlier.
    """

    __slots__ = ("freed", "host_seen", "lost", "name", "order", "priority", "recent", "stream_id", "tail_us")

    def __init__(self, stream_id: int, priority: int = 0) -> None:
        self.stream_id = stream_id
        self.priority = priority
        self.order: Order = {}
        self.reset()

    def reset(self) -> None:
        """Idle at time 0. Its vector clock stays: what ran before a reset happened before what runs after."""
        self.tail_us = 0.0
        self.host_seen = -1
        self.name = ""
        self.freed: list[FreedBlock] = []
        self.lost: deque[LostRecord] = deque(maxlen=64)
        self.recent: deque[tuple[float, float, Stamp]] = deque(maxlen=256)

    def join(self, order: Order) -> None:
        """What `order` knows happened before this queue's next operation."""
        mine = self.order
        for stream_id, number in order.items():
            if mine.get(stream_id, 0) < number:
                mine[stream_id] = number


class CopyEngine:
    """One DMA engine: a copy occupies it from the moment its stream lets it start, and no two overlap."""

    def __init__(self) -> None:
        self._busy: list[tuple[float, float]] = []

    def reserve(self, ready_us: float, dur_us: float, now_us: float) -> float:
        """The start of the first free stretch of `dur_us` at or after `ready_us`, which is then taken."""
        self._busy = [stretch for stretch in self._busy if stretch[1] > now_us]
        start = ready_us
        for index, (begin, end) in enumerate(self._busy):
            if start + dur_us <= begin:
                self._busy.insert(index, (start, start + dur_us))
                return start
            start = max(start, end)
        self._busy.append((start, start + dur_us))
        return start

"""Hazards: accesses to the same bytes that no happens-before edge orders. Never an overlap in virtual time.

Accesses are kept by allocation, so that memory which is freed and given out again starts afresh, and by byte range, so
that disjoint slices of one buffer do not alarm.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from penaltylab.emu.queues import LostRecord, Order, Queue, Stamp
from penaltylab.emu.sites import format_site

if TYPE_CHECKING:
    from penaltylab.emu.freed import FreedBlock, FreedMemory, Life

Extent = tuple[int, int, Any]
"""First byte, one past the last, and (shape, stride, item size) where the bytes between are not all touched."""

WHOLE: Extent = (0, 1 << 62, None)
"""All of an allocation, wherever it lies."""

Access = tuple[int, int, int, Any]
"""Stream id and extent."""

_ROOM = 128
_EXACT_ELEMENTS = 1 << 20


@dataclass(slots=True)
class Hazard:
    """Two accesses that nothing orders. `kind` is host-write, read-after-write, write-after-read or write-after-write;
    `first_site` is the line of the earlier access, `second_site` that of the later one.

    Of kind freed-in-use they are the last use of the memory and where it is freed. Of kind event-recorded-again, which
    follows the race that it explains, they are the two records of the event.
    """

    kind: str
    message: str
    first_site: str
    second_site: str
    streams: tuple[int, ...]
    bytes: int
    time_us: float


class Allocation:
    """What is known about one storage: the CPU tensor it aliases, and who accessed it last.

    `nbytes` is what that tensor holds, `queue` the one stream that has touched it unless `shared`.
    With more than `room` accesses, those that the host has waited for are forgotten: all that is to come is after them.
    `life` ends with the memory once other streams have used it; `inherits` is freed memory that this may be.
    """

    __slots__ = (
        "alias", "dtype", "inherits", "life", "nbytes", "queue", "reads", "room", "shape", "shared", "stride", "writes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.alias: torch.Tensor | None = None
        self.shape: torch.Size | None = None
        self.stride: tuple[int, ...] = ()
        self.dtype: torch.dtype | None = None
        self.nbytes = 0
        self.queue: Queue | None = None
        self.shared = False
        self.room = _ROOM
        self.life: Life | None = None
        self.inherits: Sequence[FreedBlock] = ()
        self.reads: dict[Access, Stamp] = {}
        self.writes: dict[Access, Stamp] = {}


@dataclass(slots=True)
class Hazards:
    """The hazards caught since the device was configured. `host_order` is what the host has waited for."""

    host_order: Order
    freed: "FreedMemory"
    found: list[Hazard] = field(default_factory=list)
    host_lost: deque[LostRecord] = field(default_factory=lambda: deque(maxlen=64))
    """What events that the host waited for had stood for earlier."""

    def touch(self, memory: Allocation, extent: Extent, write: bool, queue: Queue, stamp: Stamp, now_us: float) -> None:
        """The operation `stamp` of `queue` reads or writes `extent`."""
        if memory.queue is not queue:
            if memory.queue is None:
                memory.queue = queue
            else:
                memory.shared = True
                self.freed.share(memory, queue)
        accesses = memory.writes if write else memory.reads
        if memory.shared:
            self._check(memory, extent, write, queue, stamp, now_us)
        if len(accesses) >= memory.room:
            _forget_ordered(accesses, self.host_order)
            memory.room = max(_ROOM, 2 * len(accesses))
        low, high, gaps = extent
        accesses[queue.stream_id, low, high, gaps] = stamp

    def _check(
        self, memory: Allocation, extent: Extent, write: bool, queue: Queue, stamp: Stamp, now_us: float
    ) -> None:
        raced = _latest(memory.writes, extent, queue.order, queue.stream_id)
        kind = "write-after-write" if write else "read-after-write"
        if write:
            reader = _latest(memory.reads, extent, queue.order, queue.stream_id)
            if reader is not None and (raced is None or raced[1][0] < reader[1][0]):
                raced, kind = reader, "write-after-read"
        if raced is not None:
            access, earlier = raced
            shared = min(access[2], extent[1]) - max(access[1], extent[0])
            nbytes = min(shared, memory.nbytes) if memory.nbytes else shared
            streams = access[0], queue.stream_id
            self.found.append(_hazard(kind, streams, earlier, stamp, nbytes, now_us))
            self.explain(access[0], earlier[0], queue.lost, now_us)
        if write:
            if memory.inherits:
                self.found += self.freed.overwrite(memory, queue, stamp, now_us)
            _forget_covered(memory.reads, extent)
            _forget_covered(memory.writes, extent)

    def explain(self, stream_id: int, number: int, lost: deque[LostRecord], now_us: float) -> None:
        """Operation `number` of `stream_id` was not waited for: had an event stood for it before it was recorded again?

        `lost` is what the events that the later stream waited for had stood for.
        """
        for where in (lost, self.host_lost):
            for record in [record for record in where if record.order.get(stream_id, 0) >= number]:
                where.remove(record)
                first, second = format_site(record.site), format_site(record.again)
                message = (
                    f"event-recorded-again: an event recorded at {first} was recorded again at {second}, on a stream "
                    f"that had not waited, before it was waited for, so that the wait does not reach back to the first"
                )
                self.found.append(Hazard("event-recorded-again", message, first, second, (stream_id,), 0, now_us))
                return


def _latest(accesses: dict[Access, Stamp], extent: Extent, order: Order, stream_id: int) -> tuple[Access, Stamp] | None:
    low, high, _ = extent
    last: tuple[Access, Stamp] | None = None
    for access, stamp in accesses.items():
        other = access[0]
        if (
            other != stream_id
            and access[1] < high
            and low < access[2]
            and order.get(other, 0) < stamp[0]
            and (last is None or last[1][0] < stamp[0])
            and _overlap(access[1:], extent)
        ):
            last = access, stamp
    return last


def _forget_covered(accesses: dict[Access, Stamp], extent: Extent) -> None:
    low, high, gaps = extent
    if gaps is None:
        for access in [access for access in accesses if low <= access[1] and access[2] <= high]:
            del accesses[access]


def _forget_ordered(accesses: dict[Access, Stamp], order: Order) -> None:
    for access in [access for access, stamp in accesses.items() if order.get(access[0], 0) >= stamp[0]]:
        del accesses[access]


def _overlap(one: Extent, other: Extent) -> bool:
    """Whether two extents that meet share a byte; where a strided view is too large to look at, yes."""
    if one[2] is None and other[2] is None:
        return True
    low = min(one[0], other[0])
    high = max(one[1], other[1])
    if high - low > _EXACT_ELEMENTS:
        return True
    return bool((_mask(one, low, high) & _mask(other, low, high)).any())


def _mask(extent: Extent, low: int, high: int) -> torch.Tensor:
    mask = torch.zeros(high - low, dtype=torch.bool)
    if extent[2] is None:
        mask[extent[0] - low : extent[1] - low] = True
    else:
        shape, stride, itemsize = extent[2]
        view = mask.as_strided((*shape, itemsize), (*(step * itemsize for step in stride), 1), extent[0] - low)
        view.fill_(True)
    return mask


_VERB = {
    "write-after-write": ("writes", "wrote"),
    "read-after-write": ("reads", "wrote"),
    "write-after-read": ("writes", "reads"),
}


def _hazard(kind: str, streams: tuple[int, int], first: Stamp, second: Stamp, nbytes: int, now_us: float) -> Hazard:
    verb, earlier = _VERB[kind]
    there, here = format_site(first[1]), format_site(second[1])
    message = (
        f"{kind}: {second[2]} at {here} on stream {streams[1]} {verb} memory that {first[2]} at {there} on stream "
        f"{streams[0]} {earlier}; no event, wait or synchronization orders the two"
    )
    return Hazard(kind, message, there, here, streams, nbytes, now_us)

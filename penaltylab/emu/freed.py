"""Device memory that is freed while another stream still uses it: the missing `record_stream`.

PyTorch's caching allocator (`c10/cuda/CUDACachingAllocator.cpp`) gives freed memory out again at once, to allocations
on the stream that it was allocated on, and splits and merges blocks within one of two pools: up to 1 MiB, and above.
So whatever is next written into an allocation of that stream and pool may be written over it. That comes after the uses
on other streams if the stream has waited for them, if the host has, or if `record_stream` told the allocator, which
then waits itself. Autograd tells it of gradients that go from one stream to another.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penaltylab.emu.hazards import Access, Allocation, Hazard
from penaltylab.emu.queues import Order, Queue, Stamp
from penaltylab.emu.sites import Site, format_site

if TYPE_CHECKING:
    from penaltylab.emu.device import Device

_SMALL_BYTES = 1 << 20


class Life:
    """Dies with an allocation that streams other than its own have used; `recorded` are those of `record_stream`."""

    __slots__ = ("_freed", "generation", "nbytes", "queue", "reads", "recorded", "writes")

    def __init__(self, freed: "FreedMemory", memory: Allocation, queue: Queue) -> None:
        self._freed = freed
        self.generation = freed.generation
        self.nbytes = memory.nbytes
        self.queue = queue
        self.reads, self.writes = memory.reads, memory.writes
        self.recorded: set[int] = set()

    def __del__(self) -> None:
        self._freed.release(self)


@dataclass(frozen=True, slots=True, eq=False)
class FreedBlock:
    """Memory in use, freed at `site`: its uses on other streams."""

    nbytes: int
    site: Site
    uses: list[tuple[int, Stamp, bool]]
    """Stream id, the operation, whether it writes."""

    def unordered(self, order: Order) -> list[tuple[int, Stamp, bool]]:
        """The uses that did not happen before what comes after `order`."""
        return [use for use in self.uses if order.get(use[0], 0) < use[1][0]]


class FreedMemory:
    """What the caching allocator holds that may still be in use. Its blocks wait in `Queue.freed`."""

    def __init__(self, device: "Device") -> None:
        self._device = device
        self.generation = 0

    def reset(self) -> None:
        """Nothing is held; allocations made before are no longer its own."""
        self.generation += 1

    def share(self, memory: Allocation, queue: Queue) -> None:
        """`queue`, which is not the stream that `memory` was allocated on, uses it."""
        if self._device.backward.running:
            self.record(memory, queue)
        else:
            self._life(memory)

    def record(self, memory: Allocation, queue: Queue) -> None:
        """`record_stream`."""
        if (life := self._life(memory)) is not None:
            life.recorded.add(queue.stream_id)

    def _life(self, memory: Allocation) -> Life | None:
        if memory.life is None and memory.nbytes and memory.queue is not None:
            memory.life = Life(self, memory, memory.queue)
        return memory.life

    def release(self, life: Life) -> None:
        """The last tensor over the memory has died."""
        device = self._device
        if life.generation != self.generation or device.forked():
            return
        with device.clock:
            ordered = {life.queue.stream_id, *life.recorded}
            uses = [use for use in _uses(life.reads, False) + _uses(life.writes, True) if use[0] not in ordered]
            block = FreedBlock(life.nbytes, device.sites.caller(), uses)
            if block.unordered(device.host_order):
                life.queue.freed.append(block)

    def give_out(self, memory: Allocation, queue: Queue) -> None:
        """`memory` is a new allocation on `queue`, where blocks have been freed: it may be any of them."""
        queue.freed = [block for block in queue.freed if block.unordered(queue.order)]
        small = memory.nbytes <= _SMALL_BYTES
        memory.inherits = [block for block in queue.freed if (block.nbytes <= _SMALL_BYTES) is small]
        memory.shared = memory.shared or bool(memory.inherits)

    def overwrite(self, memory: Allocation, queue: Queue, stamp: Stamp, now_us: float) -> list[Hazard]:
        """The first write into memory that may be a freed block: the hazards, of each block once."""
        blocks, memory.inherits = memory.inherits, ()
        owner = memory.queue or queue
        found = []
        for block in blocks:
            uses = block.unordered(queue.order)
            if uses and block in owner.freed:
                owner.freed.remove(block)
                found.append(_hazard(block, max(uses, key=lambda use: use[1][0]), owner, stamp, now_us))
        return found


def _uses(accesses: dict[Access, Stamp], write: bool) -> list[tuple[int, Stamp, bool]]:
    return [(access[0], stamp, write) for access, stamp in accesses.items()]


def _hazard(block: FreedBlock, use: tuple[int, Stamp, bool], owner: Queue, stamp: Stamp, now_us: float) -> Hazard:
    stream_id, (_, site, name), writes = use
    there, here = format_site(site), format_site(block.site)
    message = (
        f"freed-in-use: memory that {name} at {there} on stream {stream_id} {'writes' if writes else 'reads'} is freed "
        f"at {here}, and the allocator may give it out again to {stamp[2]} at {format_site(stamp[1])}, since it was "
        f"allocated on stream {owner.stream_id}, which has not waited; call record_stream before it is freed, or wait"
    )
    return Hazard("freed-in-use", message, there, here, (stream_id, owner.stream_id), block.nbytes, now_us)

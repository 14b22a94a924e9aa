"""PyTorch's caching allocator of pinned host memory, as `at::CachingHostAllocator` behaves.

Sizes are rounded up to a power of two. A block that no copy used is free at once when its storage dies; else an event
is recorded on each stream that used it, and the block is free when all of them are done, which is looked at, in order,
on each allocation. Only a miss calls `cudaHostAlloc`. That this may synchronize the device is not modelled.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from penaltylab.emu.hazards import Allocation

if TYPE_CHECKING:
    from penaltylab.emu.device import Device
    from penaltylab.emu.hostwrites import InFlight
    from penaltylab.emu.queues import Queue


@dataclass(frozen=True, slots=True)
class PinnedStats:
    """Allocations served from the cache, allocations that called `cudaHostAlloc`, bytes those took."""

    hits: int
    misses: int
    allocated_bytes: int


@dataclass(eq=False)
class PinnedBlock:
    """The mark that makes a storage pinned: lives as its attribute, shared by all views and freed with it."""

    pool: "PinnedPool"
    generation: int
    size: int
    queues: "set[Queue]" = field(default_factory=set)
    copies: "list[InFlight]" = field(default_factory=list)
    memory: Allocation = field(default_factory=Allocation)

    def use(self, queue: "Queue", copy: "InFlight") -> None:
        """`copy` on `queue` uses the block."""
        self.queues.add(queue)
        self.copies = [earlier for earlier in self.copies if not copy.covers(earlier)]
        self.copies.append(copy)

    def __del__(self) -> None:
        self.pool.release(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

    def __reduce__(self) -> Any:
        return type(None), ()


def pinned_block(tensor: torch.Tensor) -> PinnedBlock | None:
    """The block under a host tensor; None if it is pageable."""
    return getattr(tensor.untyped_storage(), "_emu_pinned", None)


class PinnedPool:
    """Free blocks by size, and blocks that wait for their events."""

    def __init__(self, device: "Device") -> None:
        self._device = device
        self._generation = 0
        self.reset()

    def reset(self) -> None:
        """An empty cache. Blocks given out before are no longer its own."""
        self._generation += 1
        self._free: dict[int, int] = {}
        self._waiting: deque[tuple[float, int]] = deque()
        self._hits = self._misses = self._bytes = 0

    def stats(self) -> PinnedStats:
        """Hits and misses so far."""
        return PinnedStats(self._hits, self._misses, self._bytes)

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Make the fresh host tensor `tensor` pinned, at the cost of an allocation."""
        storage = tensor.untyped_storage()
        if getattr(storage, "_emu_pinned", None) is None:
            setattr(storage, "_emu_pinned", self._allocate(storage.nbytes()))  # noqa: B010
        return tensor

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """`pin_memory()`: a pinned copy, which the host makes."""
        with self._device.clock as clock:
            clock.now_us += tensor.nbytes / self._device.machine.host_copy_bytes_per_us
            return self.pin(tensor.clone())

    def _allocate(self, nbytes: int) -> PinnedBlock:
        device, machine = self._device, self._device.machine
        size = 1 << max(0, nbytes - 1).bit_length()
        with device.clock as clock:
            site = device.sites.caller()
            while self._waiting:
                device.call("cudaEventQuery", machine.event_query_us, device.default.stream_id, site)
                if self._waiting[0][0] > clock.now_us:
                    break
                _, done = self._waiting.popleft()
                self._free[done] = self._free.get(done, 0) + 1
            if self._free.get(size):
                self._free[size] -= 1
                self._hits += 1
            else:
                self._misses += 1
                self._bytes += size
                device.call("cudaHostAlloc", machine.host_alloc_us, device.default.stream_id, site)
        return PinnedBlock(self, self._generation, size)

    def release(self, block: PinnedBlock) -> None:
        """The storage under `block` has died."""
        device = self._device
        if block.generation != self._generation or device.forked():
            return
        with device.clock:
            if block.copies:
                device.host_writes.forget(block.copies)
            ready = 0.0
            for queue in block.queues:
                device.call("cudaEventRecord", device.machine.event_record_us, queue.stream_id, device.sites.caller())
                ready = max(ready, queue.tail_us)
            if block.queues:
                self._waiting.append((ready, block.size))
            else:
                self._free[block.size] = self._free.get(block.size, 0) + 1

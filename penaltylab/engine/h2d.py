"""The ways to get the last output tokens onto the device: what sglang did, what it does, and what else could be done.

Each strategy takes a batch and returns `latest_output_ids`, int64 (batch,), on the current stream. All return the same
tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from penaltylab.devices import is_pin_memory_available

if TYPE_CHECKING:
    from penaltylab.engine.batch import ScheduleBatch
    from penaltylab.engine.relay import FutureMap


class H2D(Protocol):
    """A strategy."""

    def __call__(self, batch: ScheduleBatch) -> torch.Tensor:
        """The last tokens of the batch's requests, on the device."""


def last_tokens(batch: ScheduleBatch) -> list[int]:
    """What the host knows: each request's last output token, or its last prompt token before there is any."""
    return [req.output_ids[-1] if len(req.output_ids) else req.origin_input_ids[-1] for req in batch.reqs]


def blocking(batch: ScheduleBatch) -> torch.Tensor:
    """sglang 0.5.13.

    The copy, then a synchronization of the current stream, behind everything that stream waits for.
    """
    return torch.tensor(last_tokens(batch), dtype=torch.int64, device=batch.device)


def pageable_async(batch: ScheduleBatch) -> torch.Tensor:
    """#28491: no synchronization; the driver stages a small pageable source and returns."""
    return torch.tensor(last_tokens(batch), dtype=torch.int64).to(batch.device, non_blocking=True)


def pinned_async(batch: ScheduleBatch) -> torch.Tensor:
    """#28500: no synchronization, and a source that the copy engine reads directly."""
    pin = is_pin_memory_available(batch.device)
    return torch.tensor(last_tokens(batch), dtype=torch.int64, pin_memory=pin).to(batch.device, non_blocking=True)


def pinned_blocking(batch: ScheduleBatch) -> torch.Tensor:
    """Pinning alone: the synchronization stays, and so does the stall."""
    pin = is_pin_memory_available(batch.device)
    return torch.tensor(last_tokens(batch), dtype=torch.int64, pin_memory=pin).to(batch.device)


class PinnedRing:
    """The cheapest copy for those who must copy: one gather from `last_tokens` by slot into a ring of pinned buffers.

    A buffer is written again only after the event of its last copy.
    """

    def __init__(self, device: torch.device, capacity: int, depth: int = 4) -> None:
        self.device = device
        module = torch.get_device_module(device)
        self.copied = [module.Event() for _ in range(depth)]
        self.turn = 0
        self._allocate(capacity)

    def __call__(self, batch: ScheduleBatch) -> torch.Tensor:
        return self.gather(batch.req_to_token_pool.last_tokens, batch.req_pool_indices_cpu)

    def gather(self, values: np.ndarray, indices: np.ndarray) -> torch.Tensor:
        """`values[indices]`, int64 (n,), on the device."""
        n = len(indices)
        if n > self.buffers.shape[1]:
            self._allocate(2 * n)  # the caching host allocator keeps the old buffers until their copies are done
        slot = self.turn % len(self.copied)
        if not self.copied[slot].query():
            self.copied[slot].synchronize()
        self.turn += 1
        values.take(indices, out=self.written[slot, :n], mode="clip")
        on_device = self.buffers[slot, :n].to(self.device, non_blocking=True)
        self.copied[slot].record()
        return on_device

    def _allocate(self, capacity: int) -> None:
        pin = is_pin_memory_available(self.device)
        self.buffers = torch.empty((len(self.copied), capacity), dtype=torch.int64, pin_memory=pin)
        self.written = self.buffers.numpy()


class PinnedReuseUnsafe:
    """The control that must be caught: one pinned buffer, overwritten while the last copy may still have to read it."""

    def __init__(self, device: torch.device, slots: int) -> None:
        self.buffer = torch.empty(slots, dtype=torch.int64, pin_memory=is_pin_memory_available(device))

    def __call__(self, batch: ScheduleBatch) -> torch.Tensor:
        tokens = last_tokens(batch)
        source = self.buffer[: len(tokens)]
        source.copy_(torch.tensor(tokens, dtype=torch.int64))
        return source.to(batch.device, non_blocking=True)


class DeviceResident:
    """Ours: no copy. The token that the host would send is still on the device, in the FutureMap.

    Under overlap the host knows the result of the launch before the last, which is `previous`; without overlap that of
    the last.
    """

    def __init__(self, future_map: FutureMap, overlap: bool) -> None:
        self.future_map = future_map
        self.overlap = overlap

    def __call__(self, batch: ScheduleBatch) -> torch.Tensor:
        tokens = self.future_map.previous if self.overlap else self.future_map.current
        return tokens[batch.req_pool_indices]


def make_h2d(name: str, device: torch.device, future_map: FutureMap, overlap: bool) -> H2D:
    """The strategy called `name` in `Params.h2d`."""
    slots = len(future_map.current)
    match name:
        case "pinned_ring":
            return PinnedRing(device, slots)
        case "pinned_reuse_unsafe":
            return PinnedReuseUnsafe(device, slots)
        case "device_resident":
            return DeviceResident(future_map, overlap)
    stateless: dict[str, H2D] = {
        "blocking": blocking,
        "pageable_async": pageable_async,
        "pinned_async": pinned_async,
        "pinned_blocking": pinned_blocking,
    }
    return stateless[name]

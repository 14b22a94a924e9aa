"""Host writes to pinned memory that an enqueued copy still reads.

A write by PyTorch is caught at its own line. A write by numpy, or by anything else that goes around PyTorch, shows as
changed bytes the next time the emulator is called, so that only the two calls it fell between are known. A write of the
value that was there already, through numpy, is not seen, nor is one to a copy larger than `WATCHED_BYTES`.
"""

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from penaltylab.emu.hazards import Hazard
from penaltylab.emu.queues import Order, Stamp
from penaltylab.emu.sites import Site, format_site

if TYPE_CHECKING:
    from penaltylab.emu.device import Device

WATCHED_BYTES = 1 << 20
_EAGER_BYTES = 4096
_SHOWN = 8


@dataclass(slots=True)
class InFlight:
    """An enqueued copy from pinned memory which the host has not waited for."""

    stream_id: int
    stamp: Stamp
    address: int
    nbytes: int
    dtype: torch.dtype
    bytes: bytes
    clean_at: Site

    def overlaps(self, low: int, high: int) -> bool:
        """Whether the copy reads any of the bytes [low, high)."""
        return self.address < high and low < self.address + self.nbytes

    def values(self, raw: bytes) -> str:
        """The first values of the copied memory, were it `raw`."""
        size = self.dtype.itemsize
        shown = torch.frombuffer(bytearray(raw[: _SHOWN * size]), dtype=self.dtype).tolist()
        return f"[{', '.join(map(str, shown))}{', ...' if len(raw) > _SHOWN * size else ''}]"


class HostWrites:
    """Watches the pinned memory under copies in flight."""

    def __init__(self, device: "Device") -> None:
        self._device = device
        self.pending: list[InFlight] = []

    def reset(self) -> None:
        """Nothing is in flight."""
        self.pending = []

    def watch(self, source: torch.Tensor, stream_id: int, stamp: Stamp) -> InFlight:
        """A copy of the dense pinned tensor `source` has been enqueued."""
        address, nbytes = source.data_ptr(), source.nbytes
        raw = ctypes.string_at(address, nbytes) if nbytes <= WATCHED_BYTES else b""
        copy = InFlight(stream_id, stamp, address, nbytes, source.dtype, raw, stamp[1])
        self.pending.append(copy)
        return copy

    def forget(self, copies: list[InFlight]) -> None:
        """The memory under `copies` is gone; the pinned allocator keeps it until they are done."""
        self.pending = [copy for copy in self.pending if copy not in copies]

    def settle(self, order: Order) -> None:
        """The host has waited for `order`: copies in it read no more."""
        if self.pending:
            self.pending = [copy for copy in self.pending if order.get(copy.stream_id, 0) < copy.stamp[0]]

    def look(self, site: Site, thorough: bool = False) -> None:
        """The emulator is called from `site`: has anybody changed memory that is still to be read?"""
        for copy in self.pending:
            if not copy.bytes or (copy.nbytes > _EAGER_BYTES and not thorough):
                continue
            now = ctypes.string_at(copy.address, copy.nbytes)
            if now != copy.bytes:
                between = f"between {format_site(copy.clean_at)} and {format_site(site)}"
                self._report(copy, f"something other than PyTorch, {between},", between, now)
            copy.clean_at = site

    def wrote(self, tensor: torch.Tensor, name: str, site: Site) -> None:
        """PyTorch's `name` has just written `tensor`, which is pinned, at `site`."""
        low = tensor.data_ptr()
        high = low + tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.element_size()
        if tensor.is_contiguous():
            high = low + tensor.nbytes
        for copy in self.pending:
            if copy.overlaps(low, high):
                now = ctypes.string_at(copy.address, copy.nbytes) if copy.bytes else b""
                where = format_site(site)
                self._report(copy, f"{name} at {where}", where, now)

    def _report(self, copy: InFlight, writer: str, where: str, now: bytes) -> None:
        _, first, name = copy.stamp
        effect = (
            f"the device would have read {copy.values(now)}, not {copy.values(copy.bytes)}"
            if now != copy.bytes
            else "the device would have read what was written"
        )
        message = (
            f"host-write: {writer} writes pinned memory that {name} at {format_site(first)} on stream "
            f"{copy.stream_id} may still be reading: {effect}"
        )
        copy.bytes = now
        clock = self._device.clock
        self._device.hazards.found.append(
            Hazard("host-write", message, format_site(first), where, (copy.stream_id,), copy.nbytes, clock.now_us)
        )

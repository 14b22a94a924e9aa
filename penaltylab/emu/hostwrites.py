"""Host accesses to pinned memory that an enqueued copy still uses: writes under a copy to the device, writes and reads
under a copy from it.

What PyTorch does is caught at its own line. A write by numpy, or by anything else that goes around PyTorch, shows as
changed bytes the next time the emulator is called, so that only the two calls it fell between are known. Not seen are:
a write around PyTorch of the value that was there already, one under a copy larger than `WATCHED_BYTES`, a read that is
none of `patches.READS`.
"""

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from penaltylab.emu.alias import extent_of
from penaltylab.emu.hazards import Hazard
from penaltylab.emu.queues import Order, Stamp
from penaltylab.emu.sites import Site, format_site

if TYPE_CHECKING:
    from penaltylab.emu.device import Device

WATCHED_BYTES = 1 << 20
_EAGER_BYTES = 4096
_SHOWN = 8


@dataclass(slots=True, eq=False)
class InFlight:
    """An enqueued copy from pinned memory, or one that `fills` it, which the host has not waited for.

    `held` are the bytes that it is to read; `clean_at` is where they were last seen unchanged.
    """

    stream_id: int
    stamp: Stamp
    address: int
    nbytes: int
    dtype: torch.dtype
    fills: bool
    held: bytes
    clean_at: Site

    def overlaps(self, low: int, high: int) -> bool:
        """Whether the copy uses any of the bytes [low, high)."""
        return self.address < high and low < self.address + self.nbytes

    def covers(self, earlier: "InFlight") -> bool:
        """Whether whoever races with `earlier` races with this later copy of the same stream too."""
        mine = self.stream_id, self.address, self.nbytes, self.fills
        return mine == (earlier.stream_id, earlier.address, earlier.nbytes, earlier.fills)

    def read(self) -> bytes:
        """What the memory holds now."""
        return ctypes.string_at(self.address, self.nbytes)

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

    def watch(self, memory: torch.Tensor, stream_id: int, stamp: Stamp, fills: bool = False) -> InFlight:
        """A copy from (or, if it `fills` it, to) the dense pinned tensor `memory` has been enqueued."""
        address, nbytes = memory.data_ptr(), memory.nbytes
        copy = InFlight(stream_id, stamp, address, nbytes, memory.dtype, fills, b"", stamp[1])
        if not fills and nbytes <= WATCHED_BYTES:
            copy.held = copy.read()
        self.pending = [earlier for earlier in self.pending if not copy.covers(earlier)]
        self.pending.append(copy)
        return copy

    def forget(self, copies: list[InFlight]) -> None:
        """The memory under `copies` is gone; the pinned allocator keeps it until they are done."""
        self.pending = [copy for copy in self.pending if copy not in copies]

    def settle(self, order: Order) -> None:
        """The host has waited for `order`: copies in it are done."""
        if self.pending:
            self.pending = [copy for copy in self.pending if order.get(copy.stream_id, 0) < copy.stamp[0]]

    def look(self, site: Site, thorough: bool = False) -> None:
        """The emulator is called from `site`: has anybody changed memory that is still to be read?"""
        for copy in self.pending:
            if not copy.held or (copy.nbytes > _EAGER_BYTES and not thorough):
                continue
            now = copy.read()
            if now != copy.held:
                between = f"between {format_site(copy.clean_at)} and {format_site(site)}"
                self._report("host-write", copy, f"something other than PyTorch, {between},", between, now)
            copy.clean_at = site

    def access(self, tensor: torch.Tensor, name: str, site: Site, write: bool) -> None:
        """PyTorch's `name` has just written (or is about to read) the pinned tensor `tensor` at `site`."""
        low, high, _ = extent_of(tensor)
        where = format_site(site)
        for copy in self.pending:
            if (write or copy.fills) and copy.overlaps(low, high):
                kind = "host-write" if write else "read-after-write"
                self._report(kind, copy, f"{name} at {where}", where, copy.read() if copy.held else b"")

    def _report(self, kind: str, copy: InFlight, who: str, where: str, now: bytes) -> None:
        _, first, name = copy.stamp
        if copy.fills:
            does = "still be filling" if kind == "host-write" else "not have filled yet"
            effect = "what is there when both are done depends on which is last"
            if kind == "read-after-write":
                effect = "it would have got what was there before"
        else:
            does = "still be reading"
            changed = f"the device would have read {copy.values(now)}, not {copy.values(copy.held)}"
            effect = changed if now != copy.held else "the device would have read what was written"
            copy.held = now
        verb = "writes" if kind == "host-write" else "reads"
        message = (
            f"{kind}: {who} {verb} pinned memory that {name} at {format_site(first)} on stream {copy.stream_id} "
            f"may {does}: {effect}"
        )
        now_us, hazards = self._device.clock.now_us, self._device.hazards
        hazards.found.append(Hazard(kind, message, format_site(first), where, (copy.stream_id,), copy.nbytes, now_us))
        hazards.explain(copy.stream_id, copy.stamp[0], hazards.host_lost, now_us)

"""Copies between host and device: who waits for what, by the rules of CUDA and of PyTorch's `Copy.cu`.

- A blocking copy is `cudaMemcpyAsync`, then `cudaStreamSynchronize` of the current stream, from pinned memory too.
- A non-blocking copy is `cudaMemcpyAsync` alone. From pinned memory it returns at once. From pageable memory it returns
  once the source is staged: at once up to the machine's `pageable_async_max_bytes`, above that when its stream has come
  to it and all but the last chunk has gone. To pageable memory it returns when the copy is done.
- A host tensor that is not dense goes through a pageable temporary, and its `cudaMemcpyAsync` waits for the stream even
  with `non_blocking=True` (vLLM #51841, #54375). A dtype changes on the device if non-blocking, else on the host.
"""

from typing import Any

import torch

from penaltylab.emu.alias import Tensor, adopt, check_device, extent_of, memory_of, set_to, to_cpu
from penaltylab.emu.costs import kernel_us
from penaltylab.emu.device import Device
from penaltylab.emu.pinned import pinned_block
from penaltylab.emu.queues import Queue, Stamp
from penaltylab.emu.routes import dense_alike, route
from penaltylab.emu.sites import Site
from penaltylab.emu.synchronize import Sync

_SCALAR_BYTES = 8
_copy: Any = torch._C.TensorBase.copy_  # not `Tensor.copy_`, which reports the host's writes
_COMPOSITE = torch._C.DispatchKey.CompositeExplicitAutograd


class Transfers:
    """The copy operators of one device."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def copy_from(self, source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
        """`aten::_copy_from`: every `copy_` and every `.to()` with this device on one side or both."""
        device = self.device
        with device.clock:
            site = device.sites.caller()
            device.host_writes.look(site, thorough=True)
            queue = device.current_queue()
            if target.numel():
                if source.is_cpu:
                    self._upload(queue, source, target, non_blocking, site)
                elif target.is_cpu:
                    self._download(queue, source, target, non_blocking, site)
                else:
                    self._move(queue, source, target, site)
            _copy(target if target.is_cpu else to_cpu(target), source if source.is_cpu else to_cpu(source))
        return target

    def to_copy(
        self,
        tensor: Tensor,
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format | None = None,
    ) -> Tensor:
        """`aten::_to_copy`: every `.to()`. Non-blocking to the host, PyTorch allocates the result pinned."""
        to_copy: Any = torch.ops.aten._to_copy.default
        if device is not None:
            check_device(device)
        if tensor.is_cpu:  # the composite kernel allocates on the device and comes back with `_copy_from`
            options = {"dtype": dtype, "layout": layout, "device": device, "memory_format": memory_format}
            return to_copy._op_dk(_COMPOSITE, tensor, non_blocking=non_blocking, **options)
        with self.device.clock:
            if device is None or device.type == "emu":
                result, memory = adopt(to_copy._op(to_cpu(tensor), dtype=dtype, memory_format=memory_format))
                memory.queue = queue = self.device.current_queue()
                if queue.freed:
                    self.device.freed.give_out(memory, queue)
                self.device.clock.now_us += self.device.machine.alloc_us
                if result.numel():
                    self._move(queue, tensor, result, self.device.sites.caller())
                return result
            if device.type != "cpu":
                raise RuntimeError(f"emu: no copies to {device}; go through the host")
            host = to_copy._op(to_cpu(tensor), dtype=dtype, memory_format=memory_format)
            if non_blocking:
                self.device.pinned.pin(host)
            if host.numel():
                site = self.device.sites.caller()
                self._download(self.device.current_queue(), tensor, host, non_blocking, site)
            return host

    def copy_from_and_resize(self, source: Tensor, target: Tensor) -> Tensor:
        """`aten::_copy_from_and_resize`."""
        if target.shape != source.shape:
            set_to(target, torch.empty(source.shape, dtype=target.dtype))
        return self.copy_from(source, target)

    def item(self, tensor: Tensor) -> Any:
        """`aten::_local_scalar_dense`: the host waits for the value."""
        device = self.device
        with device.clock:
            queue = device.current_queue()
            stamp = device.stamp(queue, device.sites.caller(), "aten::_local_scalar_dense")
            device.hazards.touch(memory_of(tensor), extent_of(tensor), False, queue, stamp, device.clock.now_us)
            self.read_back(queue, stamp, device.planned("item", stamp[2], queue, stamp[1]))
            return torch.ops.aten._local_scalar_dense.default._op(to_cpu(tensor))

    def read_back(self, queue: Queue, stamp: Stamp, sync: Sync) -> None:
        """The host needs a value of the device: a small copy to pinned memory, and a wait for it."""
        self._memcpy(queue, stamp, stamp[1], "DtoH", True, _SCALAR_BYTES)
        self._wait(queue, sync)

    def send(self, queue: Queue, stamp: Stamp, kind: str) -> None:
        """An operator was given a small host tensor, which it brings over by a blocking copy from pageable memory."""
        sync = self.device.planned(kind, _copy_name("HtoD", False), queue, stamp[1])
        self._memcpy(queue, stamp, stamp[1], "HtoD", False, _SCALAR_BYTES)
        self._wait(queue, sync)

    def _wait(self, queue: Queue, sync: Sync, already_us: float = 0.0) -> None:
        device = self.device
        waited = device.wait("cudaStreamSynchronize", queue.stream_id, queue.tail_us, queue.order, sync.raw_site)
        sync.blocked_us = already_us + waited

    def _upload(self, queue: Queue, source: Tensor, target: Tensor, non_blocking: bool, site: Site) -> None:
        device, machine = self.device, self.device.machine
        way = route(source, target, non_blocking, to_device=True)
        strided = way.host_temporary and not source.is_contiguous()
        large = way.nbytes > machine.pageable_async_max_bytes
        waits = non_blocking and not way.pinned and (large or strided)
        op = _copy_name("HtoD", way.pinned)
        kind = "copy-h2d" if not non_blocking else "pageable-h2d"
        sync = device.planned(kind, op, queue, site) if waits or not non_blocking else None
        before = dict(queue.order)
        stamp = device.stamp(queue, site, op)
        block = pinned_block(source) if way.pinned else None
        if block is not None:
            device.hazards.touch(block.memory, extent_of(source), False, queue, stamp, device.clock.now_us)
            if non_blocking:
                block.use(queue, device.host_writes.watch(source, queue.stream_id, stamp))
        if not way.device_temporary:
            device.hazards.touch(memory_of(target), extent_of(target), True, queue, stamp, device.clock.now_us)
        if way.host_temporary or not (way.pinned or large):
            device.clock.now_us += way.nbytes / machine.host_copy_bytes_per_us
        chunk = 0 if strided else machine.pageable_async_max_bytes
        held = chunk / way.nbytes if not way.pinned and (large or waits) else None
        blocked = self._memcpy(queue, stamp, site, "HtoD", way.pinned, way.nbytes, held)
        if held is not None:
            device.know(before)
        if sync is not None:
            self._finish(queue, sync, blocked, non_blocking)
        if way.device_temporary:
            self._kernel(queue, [], [target], site)

    def _download(self, queue: Queue, source: Tensor, target: Tensor, non_blocking: bool, site: Site) -> None:
        device, machine = self.device, self.device.machine
        way = route(target, source, non_blocking, to_device=False)
        op = _copy_name("DtoH", way.pinned)
        sync = device.planned("copy-d2h", op, queue, site) if not (non_blocking and way.pinned) else None
        if way.device_temporary:
            self._kernel(queue, [source], [], site)
        stamp = device.stamp(queue, site, op)
        if not way.device_temporary:
            device.hazards.touch(memory_of(source), extent_of(source), False, queue, stamp, device.clock.now_us)
        block = pinned_block(target) if way.pinned else None
        if block is not None:
            device.hazards.touch(block.memory, extent_of(target), True, queue, stamp, device.clock.now_us)
            if non_blocking:
                block.use(queue, device.host_writes.watch(target, queue.stream_id, stamp, fills=True))
        blocked = self._memcpy(queue, stamp, site, "DtoH", way.pinned, way.nbytes, None if way.pinned else 0.0)
        if not way.pinned:
            device.know(queue.order)
        if sync is not None:
            self._finish(queue, sync, blocked, non_blocking)
        if way.host_temporary:
            device.clock.now_us += way.nbytes / machine.host_copy_bytes_per_us

    def _finish(self, queue: Queue, sync: Sync, blocked_us: float, non_blocking: bool) -> None:
        if non_blocking:
            sync.blocked_us = blocked_us
        else:
            self._wait(queue, sync, blocked_us)

    def _move(self, queue: Queue, source: Tensor, target: Tensor, site: Site) -> None:
        if not dense_alike(source, target):
            self._kernel(queue, [source], [target], site)
            return
        device, machine = self.device, self.device.machine
        name = "Memcpy DtoD (Device -> Device)"
        stamp = device.stamp(queue, site, name)
        now = device.clock.now_us
        device.hazards.touch(memory_of(source), extent_of(source), False, queue, stamp, now)
        device.hazards.touch(memory_of(target), extent_of(target), True, queue, stamp, now)
        duration = max(machine.kernel_min_us, 2 * target.nbytes / machine.memory_bytes_per_us)
        device.copy(queue, stamp, None, duration, target.nbytes)

    def _kernel(self, queue: Queue, reads: list[Tensor], writes: list[Tensor], site: Site) -> None:
        """A kernel that converts or gathers on the device."""
        device = self.device
        stamp = device.stamp(queue, site, "at::native::direct_copy_kernel")
        for tensors, write in ((reads, False), (writes, True)):
            for tensor in tensors:
                device.hazards.touch(memory_of(tensor), extent_of(tensor), write, queue, stamp, device.clock.now_us)
        moved = 2 * sum(tensor.nbytes for tensor in (*reads, *writes))
        device.launch(queue, stamp, kernel_us(device.machine, moved, 0.0, False), moved)

    def _memcpy(
        self, queue: Queue, stamp: Stamp, site: Site, way: str, pinned: bool, nbytes: int, held: float | None = None
    ) -> float:
        """`cudaMemcpyAsync`. With `held` it returns when all but that share of the copy is done. Returns the wait."""
        machine = self.device.machine
        rates = {
            ("HtoD", True): machine.h2d_bytes_per_us,
            ("HtoD", False): machine.h2d_pageable_bytes_per_us,
            ("DtoH", True): machine.d2h_bytes_per_us,
            ("DtoH", False): machine.d2h_pageable_bytes_per_us,
        }
        duration = machine.copy_min_us + nbytes / rates[way, pinned]
        engine = self.device.h2d if way == "HtoD" else self.device.d2h
        named: Stamp = (stamp[0], site, _copy_name(way, pinned))
        return self.device.copy(queue, named, engine, duration, nbytes, held)


def _copy_name(way: str, pinned: bool) -> str:
    memory = "Pinned" if pinned else "Pageable"
    return f"Memcpy HtoD ({memory} -> Device)" if way == "HtoD" else f"Memcpy DtoH (Device -> {memory})"

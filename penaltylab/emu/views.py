"""Operators that only touch metadata run natively: PyTorch's own CPU kernels do it for any device that has strides."""

import math
from collections.abc import Callable
from typing import Any

import torch

from penaltylab.emu.alias import Tensor, set_to, to_cpu
from penaltylab.emu.device import Device

_CPU = torch._C.DispatchKey.CPU

NATIVE = (
    "as_strided",
    "view",
    "_reshape_alias",
    "unfold",
    "view_as_real",
    "view_as_complex",
    "set_",
    "set_.source_Tensor",
    "set_.source_Storage",
    "set_.source_Storage_storage_offset",
)
"""Operators with a kernel at the CPU key, which is called on the device tensor itself."""


def overload(name: str) -> Any:
    """The overload called `name`, such as "add.Tensor"."""
    packet, _, variant = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), variant or "default")


def native_kernel(device: Device, op: Any) -> Callable[..., Any]:
    """A kernel that runs `op`'s CPU kernel on the device tensor; the host pays for a view."""
    clock, redispatch = device.clock, op._op_dk

    def kernel(*args: Any, **kwargs: Any) -> Any:
        clock.enter()
        try:
            clock.now_us += device.machine.view_us
            return redispatch(_CPU, *args, **kwargs)
        finally:
            clock.leave()

    return kernel


def resize_(tensor: Tensor, size: list[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """`aten::resize_`: in place where the storage is large enough, else over new memory with the old values first."""
    needed = (math.prod(size) + tensor.storage_offset()) * tensor.element_size()
    if memory_format is None and needed <= tensor.untyped_storage().nbytes():
        set_ = overload("set_.source_Storage_storage_offset")
        stride = [math.prod([max(1, n) for n in size[i + 1 :]]) for i in range(len(size))]
        set_._op_dk(_CPU, tensor, tensor.untyped_storage(), tensor.storage_offset(), size, stride)
        return tensor
    options: dict[str, Any] = {} if memory_format is None else {"memory_format": memory_format}
    grown = torch.empty(size, dtype=tensor.dtype, **options)
    held = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    old = to_cpu(tensor.as_strided((held,), (1,)))
    kept = min(old.numel(), grown.numel())
    grown.as_strided((grown.numel(),), (1,))[:kept].copy_(old[:kept])
    set_to(tensor, grown)
    return tensor

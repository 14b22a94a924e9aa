"""What has to be changed in PyTorch's Python layer, because a device in Python has no C++ hooks there.

Each patch acts on tensors of this device or on pinned memory, and lets all others pass.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._compile import _disable_dynamo

from penaltylab.emu.backward import patch_backward
from penaltylab.emu.device import Device
from penaltylab.emu.factories import patch_factories
from penaltylab.emu.pinned import pinned_block
from penaltylab.emu.routing import route_classes
from penaltylab.emu.serialization import register_serialization

_METADATA_ONLY = frozenset([
    "requires_grad_", "retain_grad_", "detach_", "set_", "resize_", "resize_as_", "resize_as_sparse_",
    "sparse_resize_", "squeeze_", "unsqueeze_", "t_", "sparse_resize_and_clear_", "transpose_", "swapaxes_",
    "swapdims_", "as_strided_", "share_memory_", "rename_",
])  # fmt: skip
_AUGMENTED = ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__iand__", "__ior__", "__ixor__")

READS = ("item", "tolist", "clone", "__int__", "__float__", "__bool__", "__index__")
"""Methods that report a read of pinned memory which a copy may not have filled yet."""


def patch_torch(device: Device) -> None:
    """All patches."""
    register_serialization()
    route_classes()
    patch_factories(device)
    patch_backward(device)
    _patch_accelerator()
    _patch_inductor()
    _patch_host_accesses(device)
    _patch_assignment()


def _patch_accelerator() -> None:
    """`torch.accelerator` asks C++ for streams, which knows none of ours. TorchDynamo calls it while it traces, and
    must not trace what it calls.
    """
    module = torch.get_device_module("emu")
    for name in ("current_stream", "set_stream", "synchronize"):
        setattr(torch.accelerator, name, _untraced(getattr(module, name)))


def _untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    @_disable_dynamo
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _patch_inductor() -> None:
    """`torch.compile` has no code generator for this device: say so."""
    wrapper: Any = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    def call(self: Any, model: Any, inputs: Any) -> Any:
        tensors = [*inputs, *model.parameters(), *model.buffers()]
        if any(isinstance(x, torch.Tensor) and x.device.type == "emu" for x in tensors):
            raise RuntimeError("emu: torch.compile has no backend for this device; call the function as it is")
        return original(self, model, inputs)

    wrapper.__call__ = call


def _patch_host_accesses(device: Device) -> None:
    """In-place methods, and those that read a value, report pinned memory that a copy still uses."""
    for name in dir(torch.Tensor):
        writes = name.endswith("_") and not name.startswith("_") and name not in _METADATA_ONLY
        writes = writes or name == "__setitem__" or name in _AUGMENTED
        if writes or name in READS:
            setattr(torch.Tensor, name, _reporting(device, getattr(torch.Tensor, name), name, writes))


def _reporting(device: Device, method: Callable[..., Any], name: str, writes: bool) -> Callable[..., Any]:
    host_writes = device.host_writes

    @functools.wraps(method)
    def wrapper(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not host_writes.pending or not self.is_cpu or pinned_block(self) is None:
            return method(self, *args, **kwargs)
        if any(isinstance(x, torch.Tensor) and not x.is_cpu for x in args):  # a copy: it is the device that writes
            return method(self, *args, **kwargs)
        site = device.sites.caller()
        with device.clock:
            host_writes.look(site, thorough=True)
            if not writes:
                host_writes.access(self, name, site, write=False)
        result = method(self, *args, **kwargs)
        if writes:
            with device.clock:
                written = _assigned(self, args[0]) if name == "__setitem__" else self
                if written is None:
                    host_writes.look(site, thorough=True)
                else:
                    host_writes.access(written, name, site, write=True)
        return result

    return wrapper


def _assigned(tensor: torch.Tensor, index: Any) -> torch.Tensor | None:
    """What `tensor[index] = ...` writes; None if no view can show it, so that only changed bytes do."""
    part: torch.Tensor = torch._C.TensorBase.__getitem__(tensor, index)
    return part if part.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr() else None


def _patch_assignment() -> None:
    """`t[...] = number`: on CUDA, PyTorch makes a host tensor of the number; on a device of its own kind, a device
    tensor. The host tensor is what decides whether `t[i] = 0` synchronizes (it does) and `t[mask] = 0` (it does not).
    """
    assign: Any = torch.Tensor.__setitem__

    @functools.wraps(assign)
    def wrapper(self: torch.Tensor, index: Any, value: Any) -> None:
        if isinstance(value, (bool, int, float, complex)) and self.device.type == "emu":
            value = torch.tensor(value, dtype=self.dtype, device="cpu")
        assign(self, index, value)

    torch.Tensor.__setitem__ = wrapper  # type: ignore[assignment,method-assign]

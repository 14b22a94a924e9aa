"""What has to be changed in PyTorch's Python layer, because a device in Python has no C++ hooks there."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from penaltylab.emu.backward import patch_backward
from penaltylab.emu.device import Device
from penaltylab.emu.pinned import pinned_block
from penaltylab.emu.routing import route_classes
from penaltylab.emu.serialization import register_serialization


def patch_torch(device: Device) -> None:
    """All patches. Each acts on tensors and devices of ours, or on pinned memory; others pass through."""
    register_serialization()
    route_classes()
    patch_backward(device)
    _patch_accelerator()
    _patch_inductor()
    _patch_host_writes(device)


def _patch_accelerator() -> None:
    """`torch.accelerator` asks C++ for streams, which knows none of ours."""
    module = torch.get_device_module("emu")
    for name in ("current_stream", "set_stream", "synchronize"):
        setattr(torch.accelerator, name, getattr(module, name))


def _patch_inductor() -> None:
    """`torch.compile` has no code generator for this device: say so."""
    wrapper = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    def call(self: Any, model: Any, inputs: Any) -> Any:
        tensors = [*inputs, *model.parameters(), *model.buffers()]
        if any(isinstance(x, torch.Tensor) and x.device.type == "emu" for x in tensors):
            raise RuntimeError("emu: torch.compile has no backend for this device; call the function as it is")
        return original(self, model, inputs)

    wrapper.__call__ = call  # type: ignore[method-assign]


_METADATA_ONLY = frozenset(
    "requires_grad_ retain_grad_ detach_ set_ resize_ resize_as_ t_ squeeze_ unsqueeze_ transpose_ swapaxes_ swapdims_ "
    "as_strided_ share_memory_ rename_ swapaxes_ resize_as_sparse_ sparse_resize_ sparse_resize_and_clear_".split()
)


def _patch_host_writes(device: Device) -> None:
    """In-place methods report a write to pinned memory that a copy still reads."""
    for name in dir(torch.Tensor):
        inplace = name.endswith("_") and not name.startswith("_") and name not in _METADATA_ONLY
        if inplace or name in ("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__"):
            method = getattr(torch.Tensor, name)
            if callable(method):
                setattr(torch.Tensor, name, _reporting(device, method, name))


def _reporting(device: Device, method: Callable[..., Any], name: str) -> Callable[..., Any]:
    host_writes = device.host_writes

    @functools.wraps(method)
    def wrapper(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not host_writes.pending or not self.is_cpu or pinned_block(self) is None:
            return method(self, *args, **kwargs)
        site = device.sites.caller()
        with device.clock:
            host_writes.look(site, thorough=True)
            result = method(self, *args, **kwargs)
            host_writes.wrote(self, name, site)
        return result

    return wrapper

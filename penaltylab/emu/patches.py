"""What has to be changed in PyTorch's Python layer, because a device in Python has no C++ hooks there."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from penaltylab.emu.device import Device
from penaltylab.emu.pinned import pinned_block


def patch_torch(device: Device) -> None:
    """All patches. Each acts on tensors and devices of ours, or on pinned memory; others pass through."""
    _patch_host_writes(device)


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

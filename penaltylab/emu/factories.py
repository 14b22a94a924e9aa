"""`pin_memory=True` in PyTorch's factories, which a CPU-only build refuses for want of an allocator."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from penaltylab.emu.device import Device

_FACTORIES = [
    "arange", "empty", "empty_like", "empty_permuted", "empty_strided", "eye", "full", "full_like", "linspace",
    "logspace", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "randperm", "scalar_tensor", "tensor", "zeros", "zeros_like", "bartlett_window", "blackman_window",
    "hamming_window", "hann_window", "kaiser_window", "tril_indices", "triu_indices", "range",
]  # fmt: skip
_METHODS = ["new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros", "new_tensor"]


def patch_factories(device: Device) -> None:
    """Let every factory take `pin_memory=True`: a fresh pinned host tensor, then a blocking copy if `device=` asks."""
    from torch.utils._device import _device_constructors

    _device_constructors()  # `with torch.device(...)` recognizes factories by identity: let it see the originals
    for name in _FACTORIES:
        setattr(torch, name, _pinning(device, getattr(torch, name)))
    for name in _METHODS:
        setattr(torch.Tensor, name, _pinning(device, getattr(torch.Tensor, name)))


def _pinning(device: Device, factory: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(factory)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("pin_memory"):
            return factory(*args, **kwargs)
        del kwargs["pin_memory"]
        return _pinned(device, factory, args, kwargs)

    return wrapper


def _pinned(device: Device, factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    out = kwargs.get("device")
    copies = getattr(factory, "__name__", "") in ("tensor", "new_tensor")
    if copies:
        gradient = kwargs.pop("requires_grad", False)
        host = device.pinned.pin(factory(*args, **{**kwargs, "device": "cpu"}))
        wanted = torch.device(out) if out is not None else _implied(factory, args)
        result = host if wanted.type == "cpu" else host.to(wanted)
        return result.requires_grad_(gradient) if gradient else result
    result = factory(*args, **kwargs)
    if not result.is_cpu:
        raise RuntimeError(f"Cannot pin '{result.type()}': only dense CPU tensors can be pinned")
    return device.pinned.pin(result)


def _implied(factory: Callable[..., Any], args: tuple[Any, ...]) -> torch.device:
    if factory.__name__ == "new_tensor":
        return args[0].device
    return torch.get_default_device()

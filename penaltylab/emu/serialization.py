"""`torch.save` and `torch.load` of device tensors, and storages made by hand."""

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor

_BEFORE_TORCH = 5  # PyTorch's own packages register at 10 and above; the first that answers wins


def register_serialization() -> None:
    """Let storages be saved as `emu:0` and loaded there or, by `map_location`, anywhere; no other process gets one."""
    ForkingPickler.register(torch.Tensor, _reduce)
    ForkingPickler.register(torch.nn.Parameter, _reduce)
    torch.serialization.register_package(_BEFORE_TORCH, _tag, _restore)
    _patch_untyped_storage()


def _reduce(tensor: torch.Tensor) -> Any:
    if tensor.device.type == "emu":
        raise RuntimeError("emu: a device tensor cannot go to another process; send tensor.cpu()")
    return reduce_tensor(tensor)


def _tag(storage: Any) -> str | None:
    return "emu:0" if storage.device.type == "emu" else None


def _restore(storage: Any, location: str) -> Any:
    if not location.startswith("emu"):
        return None
    target = torch.empty(storage.nbytes(), dtype=torch.uint8, device=location)
    if storage.nbytes():
        target.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
    return target.untyped_storage()


def _patch_untyped_storage() -> None:
    """`torch.UntypedStorage(n, device="emu")` would ask C++ for an allocator that is not there, and crash."""
    original: Any = torch.UntypedStorage.__new__

    def new(cls: type, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is not None and torch.device(device).type == "emu":
            size = args[0] if args else kwargs.get("size", 0)
            if not isinstance(size, int):
                raise TypeError("emu: UntypedStorage takes a number of bytes")
            return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
        return original(cls, *args, device=device, **kwargs) if device is not None else original(cls, *args, **kwargs)

    torch.UntypedStorage.__new__ = staticmethod(new)  # type: ignore[method-assign]

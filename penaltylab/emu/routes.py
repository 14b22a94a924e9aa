"""By which way a copy between host and device goes: PyTorch's `copy_requires_temporaries` and `copy_kernel_cuda`."""

from dataclasses import dataclass

from penaltylab.emu.alias import Tensor, extent_of
from penaltylab.emu.pinned import pinned_block


@dataclass(frozen=True, slots=True)
class Route:
    """How one copy goes: is the host's end pinned, does either end go through a temporary, how many bytes cross."""

    pinned: bool
    host_temporary: bool
    device_temporary: bool
    nbytes: int


def dense_alike(one: Tensor, other: Tensor) -> bool:
    """Whether one memcpy can copy the one to the other."""
    if one.shape != other.shape or one.dtype is not other.dtype or one.is_conj() != other.is_conj():
        return False
    if one.is_contiguous():
        return other.is_contiguous()
    return one.stride() == other.stride() and extent_of(one)[2] is None


def route(host: Tensor, device_side: Tensor, non_blocking: bool, to_device: bool) -> Route:
    """The route between `host` and `device_side`, by `copy_kernel_cuda` of PyTorch's `Copy.cu`."""
    pinned = pinned_block(host) is not None
    source, target = (host, device_side) if to_device else (device_side, host)
    if dense_alike(source, target):
        return Route(pinned, False, False, target.nbytes)
    same = source.dtype is target.dtype
    on_source = non_blocking != to_device  # the side that converts is the device if non-blocking, else the host
    width = target.element_size() if on_source else source.element_size()
    source_temporary = not source.is_contiguous() or source.shape != target.shape or (on_source and not same)
    target_temporary = not target.is_contiguous() or (not on_source and not same)
    host_side, device = (source_temporary, target_temporary) if to_device else (target_temporary, source_temporary)
    return Route(pinned and not host_side, host_side, device, target.numel() * width)

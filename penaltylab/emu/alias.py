"""Tensors of the emulated device are plain `torch.Tensor`s on the PrivateUse1 key that alias host memory.

A CPU tensor is exported through DLPack, its device type rewritten, and imported again; the other way round too. The CPU
tensor a device storage was made from stays with the storage, so that views are views of it and share its storage.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from penaltylab.emu.hazards import Allocation, Extent

_to_dlpack: Any = torch._C._to_dlpack
_from_dlpack: Any = torch._C._from_dlpack
_capsule = ctypes.pythonapi.PyCapsule_GetPointer
_capsule.restype = ctypes.c_void_p
_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]
_int32 = ctypes.c_int32.from_address
_DEVICE_TYPE_OFFSET = 8
_DLPACK_CPU = 1
_DLPACK_EMU = 12  # kDLExtDev, which PyTorch maps to PrivateUse1

Tensor = torch.Tensor


def to_emu(tensor: Tensor) -> Tensor:
    """A device tensor over the memory of the CPU tensor `tensor`, which must be nobody else's and want no gradient."""
    return adopt(tensor)[0]


def adopt(tensor: Tensor) -> tuple[Tensor, Allocation]:
    """`to_emu`, and the new allocation.

    Raises:
        NotImplementedError: the layout is not strided, or the dtype is quantized.
    """
    if tensor.layout is not torch.strided:
        raise NotImplementedError(f"emu: no tensors of layout {tensor.layout}, only torch.strided")
    if tensor.is_neg() or tensor.is_conj():
        tensor = tensor.resolve_conj().resolve_neg()
    try:
        capsule = _to_dlpack(tensor)
    except BufferError:
        raise NotImplementedError(f"emu: no tensors of dtype {tensor.dtype}") from None
    _int32(_capsule(capsule, b"dltensor") + _DEVICE_TYPE_OFFSET).value = _DLPACK_EMU
    result = _from_dlpack(capsule)
    memory = Allocation()
    memory.alias = tensor
    memory.shape, memory.stride, memory.dtype = result.shape, result.stride(), tensor.dtype
    memory.nbytes = result.nbytes
    result.untyped_storage()._emu = memory
    return result, memory


def memory_of(tensor: Tensor) -> Allocation:
    """The allocation that a device tensor lies in."""
    storage = tensor.untyped_storage()
    try:
        return storage._emu  # type: ignore[attr-defined]
    except AttributeError:
        memory = storage._emu = Allocation()  # type: ignore[attr-defined]
        return memory


def is_whole(tensor: Tensor, memory: Allocation) -> bool:
    """Whether `tensor` is what its allocation was made as, so that the alias kept there will do."""
    return (
        tensor.shape == memory.shape
        and tensor.stride() == memory.stride
        and tensor.dtype is memory.dtype
        and not tensor.storage_offset()
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def to_cpu(tensor: Tensor) -> Tensor:
    """A CPU tensor over the memory of the device tensor `tensor`. It must not be resized."""
    memory = memory_of(tensor)
    alias = memory.alias
    if alias is None or tensor.dtype is not memory.dtype:
        return _with_bits(tensor, fixed_alias)
    if is_whole(tensor, memory):
        return alias
    offset = alias.storage_offset() + tensor.storage_offset()
    view = alias.as_strided(tensor.shape, tensor.stride(), offset)
    if tensor.is_conj():
        view = torch._conj(view)
    return torch._neg_view(view) if tensor.is_neg() else view


def _with_bits(tensor: Tensor, alias_of: Callable[[Tensor], Tensor]) -> Tensor:
    """The alias of a tensor whose conjugate and negative bits DLPack cannot carry."""
    conj, neg = tensor.is_conj(), tensor.is_neg()
    if conj:
        tensor = torch._conj(tensor)
    if neg:
        tensor = torch._neg_view(tensor)
    alias = alias_of(tensor)
    if conj:
        alias = torch._conj(alias)
    return torch._neg_view(alias) if neg else alias


def fixed_alias(tensor: Tensor) -> Tensor:
    """Like `to_cpu`, over memory that PyTorch knows it cannot resize: for `out=`."""
    capsule = _to_dlpack(tensor.detach() if tensor.requires_grad else tensor)
    _int32(_capsule(capsule, b"dltensor") + _DEVICE_TYPE_OFFSET).value = _DLPACK_CPU
    return _from_dlpack(capsule)


def extent_of(tensor: Tensor) -> Extent:
    """The bytes that `tensor` covers."""
    low = tensor.data_ptr()
    if tensor.is_contiguous():
        return low, low + tensor.nbytes, None
    shape, stride, itemsize = tensor.shape, tensor.stride(), tensor.element_size()
    if 0 in shape:
        return low, low, None
    last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    high = low + (last + 1) * itemsize
    if (last + 1) == tensor.numel():
        return low, high, None
    return low, high, (shape, stride, itemsize)


def set_to(tensor: Tensor, data: Tensor) -> None:
    """Make the device tensor `tensor` lie over the memory of the CPU tensor `data`."""
    source = to_emu(data)
    set_ = torch.ops.aten.set_.source_Storage_storage_offset
    set_._op_dk(
        torch._C.DispatchKey.CPU,
        tensor,
        source.untyped_storage(),
        source.storage_offset(),
        source.size(),
        source.stride(),
    )


def check_device(wanted: torch.device) -> None:
    """Refuse a device that is not there."""
    if wanted.type == "emu" and wanted.index not in (None, 0):
        raise RuntimeError(f"emu: invalid device ordinal {wanted.index}; there is one device, emu:0")

"""What a kernel takes: the larger of its bytes over the memory's bandwidth and its operations over the peak rate.

Caches, occupancy, tensor shapes that suit the tensor cores and contention between streams are not modelled.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from penaltylab.emu.machine import Machine

Tensor = torch.Tensor
Flops = Callable[[tuple[Any, ...], Any], float]

_HALF = (torch.float16, torch.bfloat16)


def kernel_us(machine: Machine, moved: int, flops: float, half: bool) -> float:
    """Duration of a kernel that moves `moved` bytes and computes `flops` operations."""
    duration = moved / machine.memory_bytes_per_us
    if flops:
        duration = max(duration, flops / (machine.flops_half_per_us if half else machine.flops_per_us))
    return max(duration, machine.kernel_min_us)


def is_half(value: Any) -> bool:
    """Whether `value` is computed at the rate of 16-bit floats."""
    return isinstance(value, Tensor) and value.dtype in _HALF


def _mm(args: tuple[Any, ...], out: Tensor) -> float:
    return 2.0 * out.numel() * args[0].shape[-1]


def _addmm(args: tuple[Any, ...], out: Tensor) -> float:
    return 2.0 * out.numel() * args[1].shape[-1]


def _linear(args: tuple[Any, ...], out: Tensor) -> float:
    return 2.0 * out.numel() * args[0].shape[-1]


def _convolution(args: tuple[Any, ...], out: Tensor) -> float:
    weight, transposed = args[1], args[6]
    per_output = math.prod(weight.shape[1:])
    return 2.0 * (args[0].numel() * per_output if transposed else out.numel() * per_output)


def _convolution_backward(args: tuple[Any, ...], out: Any) -> float:
    grad, weight, mask = args[0], args[2], args[-1]
    return 2.0 * grad.numel() * math.prod(weight.shape[1:]) * sum(map(bool, mask[:2]))


def _attention(args: tuple[Any, ...], out: Any) -> float:
    query, key = args[0], args[1]
    return 4.0 * query.numel() * key.shape[-2]


FLOPS: dict[str, Flops] = {
    "mm": _mm,
    "bmm": _mm,
    "mv": _mm,
    "dot": _mm,
    "linear": _linear,
    "addmm": _addmm,
    "addmm_": _addmm,
    "baddbmm": _addmm,
    "baddbmm_": _addmm,
    "addmv": _addmm,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "scaled_dot_product_attention": _attention,
}
"""Operations of an operator, from its arguments and its result."""

INDIRECT: dict[str, tuple[int, ...]] = {
    "index": (0,),
    "index_select": (0,),
    "gather": (0,),
    "take": (0,),
    "embedding": (0,),
    "scatter": (0,),
    "scatter_": (0,),
    "scatter_add_": (0,),
    "scatter_reduce_": (0,),
    "index_put_": (0,),
    "_index_put_impl_": (0,),
    "index_add_": (0,),
    "index_copy_": (0,),
    "index_fill_": (0,),
}
"""Arguments of which only the indexed elements move, so that they count as much as the index selects."""

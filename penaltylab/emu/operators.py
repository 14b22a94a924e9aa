"""What the emulator knows about each operator: what it writes, what it costs, and when the host has to wait for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from penaltylab.emu.costs import FLOPS, INDIRECT, Flops

SyncRule = Callable[[tuple[Any, ...], dict[str, Any]], str | None]
"""From an operator's arguments, the kind of the hidden synchronization that CUDA makes; None if there is none."""


def _always(kind: str) -> SyncRule:
    return lambda args, kwargs: kind


def _on_device(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_cpu


def _index(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    indices = [index for index in args[1] if isinstance(index, torch.Tensor)]
    if any(index.dtype in (torch.bool, torch.uint8) and not index.is_cpu for index in indices):
        return "boolean-index"
    return "cpu-index" if any(index.is_cpu for index in indices) else None


def _index_put(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    values = args[2] if len(args) > 2 else kwargs["values"]
    scalar = values.is_cpu and values.numel() == 1
    kind = _index(args, kwargs)
    if kind == "boolean-index" and scalar and not (kwargs.get("accumulate") or (len(args) > 3 and args[3])):
        return None  # ATen turns it into masked_fill_
    return kind or ("copy-h2d" if scalar and values.dim() == 0 else None)


def _same_device(args: tuple[Any, ...]) -> None:
    """Refuse what CUDA's indexing kernels refuse: indices may be on the host, the tensor and its new values not."""
    if args[0].is_cpu:
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    if len(args) > 2 and args[2].is_cpu and args[2].dim():
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, emu:0 and cpu! (values)"
        )


def _value(position: int) -> SyncRule:
    return lambda args, kwargs: "item" if len(args) > position and _on_device(args[position]) else None


def _repeat_interleave(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    return None if kwargs.get("output_size") is not None else "data-dependent-shape"


def _multinomial(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    replacement = args[2] if len(args) > 2 else kwargs.get("replacement", False)
    return None if replacement and args[1] > 1 else "checked-values"


def _histc(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    low, high = args[2:4] if len(args) > 3 else (0, 0)
    return "checked-values" if low == high else None  # the range of the data is to be found


_SHAPE = _always("data-dependent-shape")

SYNC_RULES: dict[str, SyncRule] = {
    "nonzero": _always("nonzero"),
    "masked_select": _SHAPE,
    "_unique": _SHAPE,
    "_unique2": _SHAPE,
    "unique_dim": _SHAPE,
    "unique_consecutive": _SHAPE,
    "unique_dim_consecutive": _SHAPE,
    "bincount": _SHAPE,
    "repeat_interleave": _repeat_interleave,
    "index": _index,
    "index_put_": _index_put,
    "index_put": _index_put,
    "_index_put_impl_": _index_put,
    "masked_fill": _value(2),
    "masked_fill_": _value(2),
    "index_fill": _value(3),
    "index_fill_": _value(3),
    "equal": _always("checked-values"),
    "multinomial": _multinomial,
    "histc": _histc,
    "embedding_renorm_": _SHAPE,
}
"""By operator name, overloads alike: where PyTorch's CUDA kernels (`aten/src/ATen/native` and `native/cuda`) call
`item()`, `nonzero()` or `.to(device)`, or wait for a count. Operators that PyTorch composes of these need no rule here.
"""

COUNTED = frozenset({"nonzero", "boolean-index", "data-dependent-shape", "checked-values"})
"""Kinds where a kernel first computes what the host then waits for."""

SENT = frozenset({"cpu-index", "copy-h2d"})
"""Kinds where the operator first brings a host tensor to the device, by a blocking copy."""

_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
_TAKES_CPU = _INDEXING | {
    "_pack_padded_sequence",
    "_ctc_loss",
    "_ctc_loss_backward",
    "copy",
    "set_",
    "_foreach_add_",
    "_foreach_mul_",
    "_foreach_div_",
    "_foreach_add",
    "_foreach_mul",
    "_foreach_div",
    "_fused_adam_",
    "_fused_adamw_",
    "_fused_sgd_",
}
"""Operators that take a host tensor of one dimension or more beside device tensors."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Of one overload: `writes` are positions of arguments, `writes_named` keyword-only arguments."""

    name: str
    kernel_name: str
    writes: frozenset[int]
    writes_named: frozenset[str]
    indirect: tuple[int, ...]
    flops: Flops | None
    sync: SyncRule | None
    takes_cpu: bool
    check: Callable[[tuple[Any, ...]], None] | None
    computes: bool


def traits_of(op: Any) -> Traits:
    """The traits of the overload `op`."""
    schema = op._schema
    base = schema.name.partition("::")[2]
    full = f"{base}.{schema.overload_name}" if schema.overload_name else base
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    plain = base.removesuffix("_out")
    return Traits(
        name=f"aten::{full}" if schema.name.startswith("aten::") else schema.name,
        kernel_name=f"at::native::{full}",
        writes=frozenset(i for i, write in enumerate(written) if write),
        writes_named=frozenset(
            a.name for a, write in zip(schema.arguments, written, strict=True) if write and a.kwarg_only
        ),
        indirect=INDIRECT.get(plain, ()),
        flops=FLOPS.get(plain),
        sync=SYNC_RULES.get(plain),
        takes_cpu=plain in _TAKES_CPU,
        check=_same_device if plain in _INDEXING else None,
        computes=not base.startswith(("empty", "new_empty")),
    )

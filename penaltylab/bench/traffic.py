"""What a piece of tensor code moves and allocates, from the shapes that its operators see."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

INDEXED = {"gather": 2, "scatter_": 2, "scatter_add_": 3}
"""Operators that touch what the index names and no more; the passes over it: values read, and values written."""


@dataclass
class Traffic:
    """Operators that touch memory, bytes they read and write, bytes newly allocated, and the most alive at one time."""

    operators: int = 0
    moved: int = 0
    allocated: int = 0
    alive: int = 0
    peak: int = 0


def traffic(body: Callable[[], object]) -> Traffic:
    """Run `body` and add up its operators. Views move nothing; a gather or scatter moves what its index names."""
    meter = _Meter()
    with meter:
        result = body()
    del result
    return meter.traffic


class _Meter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.traffic = Traffic()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.is_view:
            return result
        inputs = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, torch.Tensor)]
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        name = func.overloadpacket.__name__
        self.traffic.operators += not name.startswith("empty")
        if name in INDEXED:
            index = args[2]
            value_size = args[0].element_size()
            self.traffic.moved += _size(index) + INDEXED[name] * index.numel() * value_size
        elif not name.startswith("empty"):
            self.traffic.moved += sum(map(_size, inputs)) + sum(map(_size, outputs))
        known = {value.untyped_storage().data_ptr() for value in inputs}
        for output in outputs:
            if output.untyped_storage().data_ptr() not in known:
                self._allocated(output)
        return result

    def _allocated(self, output: torch.Tensor) -> None:
        size = output.untyped_storage().nbytes()
        counts = self.traffic
        counts.allocated += size
        counts.alive += size
        counts.peak = max(counts.peak, counts.alive)
        weakref.finalize(output, self._freed, size)

    def _freed(self, size: int) -> None:
        self.traffic.alive -= size


def _size(value: torch.Tensor) -> int:
    """Bytes that reading or writing `value` moves: an expanded dimension is one element in memory."""
    elements = 1
    for length, stride in zip(value.shape, value.stride(), strict=True):
        elements *= length if stride else 1
    return elements * value.element_size()

"""PyTorch's own operator database on `emu` and on `cpu`: equal values, sample by sample.

`PENALTYLAB_OP_DB_SHARE` is the share of operators drawn (default 0.1; 1 runs all of them, in some minutes).
"""

import math
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from penaltylab import emu

pytestmark = pytest.mark.slow

_SAMPLES = 20
_DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool)

UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
"""Their values are whatever the memory holds: compared by shape and dtype."""

REASONS = {
    "sparse.mm reduce": "sparse layouts are refused: the device has strided tensors only",
    "sparse.sampled_addmm": "sparse layouts are refused",
    "to_sparse": "sparse layouts are refused",
    "tensor_split": "PyTorch wants the indices on the CPU on every device; this test moves them",
    "as_strided partial_views": "reaches into the storage around the sample, which this test does not move",
    "nn.functional.linear_cross_entropy chunked_none": "in bfloat16 PyTorch accumulates by a policy of the device type",
}
"""Operators (with their variant) that raise or differ, each with its reason. All others are equal."""


def _map(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_map(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _map(item, change) for key, item in value.items()}
    return torch.device("emu") if isinstance(value, torch.device) or value == "cpu" else value


def _to_emu(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided or 0 in tensor.stride():
        return tensor.detach().to("emu")
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="emu")
    return copy.copy_(tensor.detach())


def _difference(expected: Any, got: Any, by_value: bool) -> str | None:
    if isinstance(expected, torch.Tensor):
        if not isinstance(got, torch.Tensor) or got.device.type != "emu":
            return f"not a device tensor: {got!r:.40}"
        if (expected.shape, expected.dtype) != (got.shape, got.dtype):
            return f"{got.shape} {got.dtype}, not {expected.shape} {expected.dtype}"
        try:
            if by_value:
                torch.testing.assert_close(got.detach().cpu(), expected.detach(), equal_nan=True)
        except AssertionError:
            return "wrong values"
        return None
    if isinstance(expected, (list, tuple)) and not isinstance(expected, torch.Size):
        pairs = zip(expected, got, strict=True)
        return next((found for pair in pairs if (found := _difference(*pair, by_value)) is not None), None)
    if isinstance(expected, float) and math.isnan(expected):
        return None if math.isnan(got) else f"{got!r}, not nan"
    return None if expected == got else f"{got!r}, not {expected!r}"


def _run(op: Any, dtype: torch.dtype) -> tuple[int, list[str]]:
    """How many samples of `op` ran, and what went wrong with which."""
    ran, wrong = 0, []
    samples = iter(op.sample_inputs("cpu", dtype, requires_grad=False))
    for _, sample in zip(range(_SAMPLES), samples, strict=False):
        args, kwargs = _map(sample.args, _to_emu), _map(sample.kwargs, _to_emu)
        on_emu = _map(sample.input, _to_emu)
        torch.manual_seed(0)
        try:
            expected = op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            continue
        ran += 1
        torch.manual_seed(0)
        try:
            found = _difference(expected, op(on_emu, *args, **kwargs), op.name not in UNINITIALISED)
        except Exception as error:
            found = f"raises {type(error).__name__}: {str(error).splitlines()[0][:100]}"
        if found is not None:
            wrong.append(f"{op.name} {op.variant_test_name}".strip() + f" {dtype}: {found}")
    return ran, wrong


def test_a_sample_of_the_operator_database_gives_the_values_of_cpu() -> None:
    pytest.importorskip("expecttest", reason="PyTorch's operator database needs expecttest")
    from torch.testing._internal.common_methods_invocations import op_db

    emu.register()
    share = float(os.environ.get("PENALTYLAB_OP_DB_SHARE", "0.1"))
    drawn = random.Random(0).sample(sorted(op_db, key=lambda op: op.full_name), int(len(op_db) * share))
    ran, wrong = 0, []
    for op in drawn:
        for dtype in _DTYPES:
            if dtype in op.supported_dtypes("cpu"):
                more, bad = _run(op, dtype)
                ran, wrong = ran + more, wrong + bad
    print(f"{ran} samples of {len(drawn)} operators: {100 * (1 - len(wrong) / ran):.2f} % equal on emu and on cpu")
    assert ran > 15_000 * share
    assert [line for line in wrong if not line.startswith(tuple(REASONS))] == []
    assert len(wrong) <= 0.02 * ran

"""PyTorch's own operator database on `emu` and on `cpu`: equal values and equal gradients, sample by sample.

At most `SAMPLES` samples an operator and dtype. `PENALTYLAB_OP_DB_SHARE` is the share of operators that is drawn; the
default, 1, takes about five minutes. `operators.toml` lists what raises or cannot be compared, each with its reason.
"""

import math
import os
import random
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from penaltylab import emu

pytestmark = pytest.mark.slow

SAMPLES = 20
DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool)
SHARE = float(os.environ.get("PENALTYLAB_OP_DB_SHARE", "1"))
LISTED = tomllib.loads((Path(__file__).parent / "operators.toml").read_text())


@dataclass
class Outcome:
    """Of the samples that run on cpu: how many, and which raise or differ on emu."""

    ran: int = 0
    raised: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, name: str, found: str | None) -> None:
        self.ran += 1
        if found is not None:
            (self.raised if found.startswith("raises") else self.wrong).append(f"{name}: {found}")

    def raising(self) -> float:
        """Percent."""
        return 100 * len(self.raised) / self.ran

    def __str__(self) -> str:
        equal = self.ran - len(self.raised) - len(self.wrong)
        return (
            f"{self.ran} samples: {100 * equal / self.ran:.2f} % equal on emu and on cpu, {self.raising():.2f} % "
            f"raise, {len(self.wrong)} differ"
        )


@pytest.fixture(scope="module")
def operators() -> list[Any]:
    pytest.importorskip("expecttest", reason="PyTorch's operator database needs expecttest")
    from torch.testing._internal.common_methods_invocations import op_db

    emu.register()
    emu.configure()
    ordered = sorted(op_db, key=lambda op: op.full_name)
    return random.Random(0).sample(ordered, int(len(ordered) * SHARE))


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`value` with its tensors changed, and its devices "cpu" made "emu"."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return torch.device("emu") if isinstance(value, torch.device) or value == "cpu" else value


def to_emu(tensor: torch.Tensor) -> torch.Tensor:
    """The same view of a copy of all of its storage."""
    if tensor.layout is not torch.strided:
        copy = tensor.detach().to("emu")
    elif tensor.is_conj() or tensor.is_neg() or not tensor.numel():
        copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="emu")
        copy.copy_(tensor.detach())
    else:
        whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).to("emu")
        copy = whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return copy.requires_grad_() if tensor.requires_grad else copy


def close(expected: torch.Tensor, got: torch.Tensor) -> bool:
    """Within PyTorch's tolerances, absolute ones of what the largest values are: sums can nearly cancel."""
    relative, absolute = torch.testing._comparison.default_tolerances(expected)
    finite = expected[expected.isfinite()]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() and expected.is_floating_point() else 1.0
    return torch.allclose(expected, got, rtol=relative, atol=absolute * scale, equal_nan=True)


def difference(expected: Any, got: Any, by_value: bool) -> str | None:
    if isinstance(expected, torch.Tensor):
        if not isinstance(got, torch.Tensor) or got.device.type != "emu":
            return f"not a device tensor: {got!r:.40}"
        if (expected.shape, expected.dtype) != (got.shape, got.dtype):
            return f"{got.shape} {got.dtype}, not {expected.shape} {expected.dtype}"
        return "wrong values" if by_value and not close(expected.detach(), got.detach().cpu()) else None
    if isinstance(expected, (list, tuple)) and not isinstance(expected, torch.Size):
        pairs = zip(expected, got, strict=True)
        return next((found for pair in pairs if (found := difference(*pair, by_value)) is not None), None)
    if isinstance(expected, float) and math.isnan(expected):
        return None if math.isnan(got) else f"{got!r}, not nan"
    return None if expected == got else f"{got!r}, not {expected!r}"


def samples(op: Any, dtype: torch.dtype, requires_grad: bool) -> Iterator[tuple[Any, Any]]:
    """Arguments on cpu, and the same on emu."""
    given = iter(op.sample_inputs("cpu", dtype, requires_grad=requires_grad))
    for _, sample in zip(range(SAMPLES), given, strict=False):
        on_cpu = ([sample.input, *sample.args], sample.kwargs)
        yield on_cpu, mapped(on_cpu, to_emu)


def call(op: Any, arguments: Any, body: Callable[[Any, Any], Any]) -> Any:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return body(op(*arguments[0], **arguments[1]), arguments)


def compare(op: Any, dtype: torch.dtype, outcome: Outcome, body: Callable[[Any, Any], Any], gradient: bool) -> None:
    name = f"{op.name} {op.variant_test_name}".strip()
    for on_cpu, on_emu in samples(op, dtype, gradient):
        try:
            expected = call(op, on_cpu, body)
        except Exception:
            continue  # a sample that cpu does not take
        if expected is None:
            continue
        try:
            found = difference(expected, call(op, on_emu, body), op.name not in LISTED["uninitialised"])
        except Exception as error:
            found = f"raises {type(error).__name__}: {(str(error).splitlines() or [''])[0][:100]}"
        outcome.add(f"{name} {dtype}", found)


def flat(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    elif isinstance(value, dict):
        yield from flat(list(value.values()))


def gradients(out: Any, arguments: Any) -> Any:
    """Of all arguments that want one, for a sum of the results with weights that are not all alike."""
    wanted = [x for x in flat(list(arguments)) if x.requires_grad]
    reached = [x for x in flat(out) if x.requires_grad]
    if not wanted or not reached:
        return None
    weights = [torch.linspace(0.5, 1.5, x.numel()).view(x.shape).to(x.dtype).to(x.device) for x in reached]
    return [
        torch.zeros_like(x) if gradient is None else gradient
        for x, gradient in zip(wanted, torch.autograd.grad(reached, wanted, weights, allow_unused=True), strict=True)
    ]


def unlisted(lines: list[str], listed: dict[str, str]) -> list[str]:
    return [line for line in lines if not line.startswith(tuple(f"{name} torch." for name in listed))]


def test_forward_gives_the_values_of_cpu(operators: list[Any]) -> None:
    outcome = Outcome()
    for op in operators:
        for dtype in DTYPES:
            if dtype in op.supported_dtypes("cpu"):
                compare(op, dtype, outcome, lambda out, _: out, gradient=False)
    print(f"\nforward: {outcome}")
    assert outcome.ran > 15_000 * SHARE
    assert unlisted(outcome.wrong, LISTED["incomparable"]) == []
    assert unlisted(outcome.raised, LISTED["forward"]) == []
    assert outcome.raising() <= 2


def test_backward_gives_the_gradients_of_cpu(operators: list[Any]) -> None:
    outcome = Outcome()
    for op in operators:
        if op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu"):
            compare(op, torch.float32, outcome, gradients, gradient=True)
    print(f"\nbackward: {outcome}")
    assert outcome.ran > 3_000 * SHARE
    assert unlisted(outcome.wrong, LISTED["incomparable"]) == []
    assert unlisted(outcome.raised, LISTED["backward"]) == []
    assert outcome.raising() <= 3

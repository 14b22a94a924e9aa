"""What the emulator costs: operators, and the forward of a model of GPT-2's size, on `emu` and on `cpu`,
interleaved in one process.
"""

import copy
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from penaltylab import emu

_ROUNDS = 100
_CALLS = 50
_SMALL = (8, 8)
_PROMPTS = (1, 16, 64)
_MODEL_ROUNDS = 12

Case = Callable[[torch.Tensor], Any]


def _cases() -> dict[str, Case]:
    return {
        "add": lambda x: x + x,
        "add_": lambda x: x.add_(1.0),
        "mul scalar": lambda x: x * 2.0,
        "mm": lambda x: x @ x,
        "softmax": lambda x: x.softmax(-1),
        "argmax": lambda x: x.argmax(-1),
        "where": lambda x: torch.where(x > 0, x, x),
        "cat": lambda x: torch.cat((x, x)),
        "zeros": lambda x: torch.zeros(_SMALL, device=x.device),
        "view": lambda x: x.view(64),
        "slice": lambda x: x[1:3],
        "clone": lambda x: x.clone(),
        "copy_": lambda x: x.copy_(x.view_as(x)),
        "scatter_add_": _scatter,
    }


def _scatter(x: torch.Tensor) -> Any:
    return x.scatter_add_(1, x.to(torch.int64).clamp_(0, 7), x + 1.0)


_DISPATCHES = {"where": 2, "zeros": 2, "slice": 2, "copy_": 2, "scatter_add_": 4}
"""Operators that one call dispatches, where it is more than one."""


def _mean_us(case: Case, x: torch.Tensor, calls: int) -> float:
    start = time.thread_time_ns()
    for _ in range(calls):
        case(x)
    return (time.thread_time_ns() - start) / calls / 1e3


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.before(x)).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.after(x))


class GPT2(nn.Module):
    """A decoder of GPT-2's shape with random weights: from ids (batch, n) to logits (batch, n, vocab)."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, vocab: int = 50257, context: int = 1024):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


def run() -> list[dict[str, Any]]:
    """One row a case, us of the processor's time, on one thread, in inference mode as engines run.

    Operators: `cpu_us`, `emu_us`, and `overhead_us`, their difference by dispatched operator; minima over rounds of all
    cases. Forwards of a model: `ratio` of minima over rounds.
    """
    emu.register()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            return [*operator_rows(), *model_rows(GPT2())]
    finally:
        torch.set_num_threads(threads)


def operator_rows() -> list[dict[str, Any]]:
    """Small tensors, so that what is timed is the dispatch."""
    cases = _cases()
    best = {name: (float("inf"), float("inf")) for name in cases}
    host, device = torch.zeros(_SMALL), torch.zeros(_SMALL, device="emu")
    for _ in range(_ROUNDS):
        for name, case in cases.items():
            cpu_us, emu_us = best[name]
            best[name] = min(cpu_us, _mean_us(case, host, _CALLS)), min(emu_us, _mean_us(case, device, _CALLS))
    return [_row(name, *times) for name, times in best.items()]


def model_rows(model: nn.Module) -> list[dict[str, Any]]:
    """The forward of a decode step and of short prompts."""
    on_cpu = model.eval()
    on_emu = copy.deepcopy(model).to("emu").eval()
    rows = []
    for tokens in _PROMPTS:
        ids = torch.arange(tokens).unsqueeze(0)
        on_device = ids.to("emu")
        cpu_us = emu_us = float("inf")
        for _ in range(_MODEL_ROUNDS):
            cpu_us = min(cpu_us, _mean_us(on_cpu, ids, 1))
            emu_us = min(emu_us, _mean_us(on_emu, on_device, 1))
        row = {"case": f"GPT-2 forward, {tokens} tokens", "cpu_us": round(cpu_us), "emu_us": round(emu_us)}
        rows.append({**row, "ratio": round(emu_us / cpu_us, 3)})
    return rows


def _row(name: str, cpu_us: float, emu_us: float) -> dict[str, Any]:
    overhead = (emu_us - cpu_us) / _DISPATCHES.get(name, 1)
    return {"case": name, "cpu_us": round(cpu_us, 2), "emu_us": round(emu_us, 2), "overhead_us": round(overhead, 2)}


if __name__ == "__main__":
    for row in run():
        print(json.dumps(row))

"""What the emulator costs in real time: each operator on `emu` and on `cpu`, interleaved in one process."""

import json
import time
from collections.abc import Callable
from typing import Any

import torch

from penaltylab import emu

_ROUNDS = 100
_CALLS = 50
_SMALL = (8, 8)

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


def _mean_us(case: Case, x: torch.Tensor) -> float:
    start = time.perf_counter_ns()
    for _ in range(_CALLS):
        case(x)
    return (time.perf_counter_ns() - start) / _CALLS / 1e3


def run() -> list[dict[str, Any]]:
    """One row a case, real us: `cpu_us`, `emu_us`, and `overhead_us`, their difference by dispatched operator.

    Minima over rounds of all cases, on one thread, in inference mode as engines run.
    """
    emu.register()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cases = _cases()
    best = {name: (float("inf"), float("inf")) for name in cases}
    try:
        with torch.inference_mode():
            host, device = torch.zeros(_SMALL), torch.zeros(_SMALL, device="emu")
            for _ in range(_ROUNDS):
                for name, case in cases.items():
                    cpu_us, emu_us = best[name]
                    best[name] = min(cpu_us, _mean_us(case, host)), min(emu_us, _mean_us(case, device))
    finally:
        torch.set_num_threads(threads)
    return [_row(name, *times) for name, times in best.items()]


def _row(name: str, cpu_us: float, emu_us: float) -> dict[str, Any]:
    overhead = (emu_us - cpu_us) / _DISPATCHES.get(name, 1)
    return {"case": name, "cpu_us": round(cpu_us, 2), "emu_us": round(emu_us, 2), "overhead_us": round(overhead, 2)}


if __name__ == "__main__":
    for row in run():
        print(json.dumps(row))

"""The only module outside `emu/` that knows which kind of device it is on.

Everything else is written against PyTorch's device-agnostic interface (`torch.get_device_module(device)`) and these
functions.
"""

import math
import os
import time
from functools import lru_cache
from typing import Any

import torch

from penaltylab.errors import InputError


def resolve(name: str = "auto") -> torch.device:
    """The device that `name` (`auto`, `emu` or `cuda`) stands for.

    `auto` is the GPU where there is one, else the emulated device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() and os.environ.get("PENALTYLAB_EMU") != "1" else "emu"
    if name == "cuda":
        if not torch.cuda.is_available():
            raise InputError(
                "device 'cuda': this PyTorch sees no CUDA or ROCm device; use --device emu, or see `penaltylab doctor`"
            )
        return torch.device("cuda", torch.cuda.current_device())
    if name == "emu":
        from penaltylab import emu

        emu.register()
        return torch.device("emu", 0)
    raise InputError(f"device {name!r}: not one of auto, emu, cuda")


def is_emulated(device: torch.device) -> bool:
    """Whether numbers taken on `device` are SIMULATED."""
    return device.type == "emu"


def configure(device: torch.device, machine: str, host_time: str) -> None:
    """Start afresh.

    On emu a new virtual device of `machine` with its clock at 0; on cuda wait until the device is idle.
    """
    if is_emulated(device):
        from penaltylab import emu

        emu.configure(machine=machine, host_time=host_time)
    else:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)


def busy(device: torch.device, ms: float, name: str = "busy") -> None:
    """Occupy the current stream of `device` for `ms` milliseconds of device time. The host does not wait."""
    if ms <= 0:
        return
    if is_emulated(device):
        from penaltylab import emu

        emu.busy(ms, name)
    else:
        torch.cuda._sleep(int(ms * _cycles_per_ms(device.index)))


@lru_cache
def _cycles_per_ms(index: int) -> float:
    cycles = 20_000_000
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(cycles)  # the first launch pays for loading the kernel, and lets the clock rise
    start.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return cycles / start.elapsed_time(end)


def now_us(device: torch.device) -> float:
    """The host's clock in us: virtual on emu, real elsewhere."""
    if is_emulated(device):
        from penaltylab import emu

        return emu.now_us()
    return time.perf_counter_ns() / 1e3


def blocked_us(device: torch.device) -> float:
    """Host time in us spent blocked on the device since `configure`. NaN on cuda, where only a trace can tell."""
    if is_emulated(device):
        from penaltylab import emu

        return emu.blocked_us()
    return math.nan


def hazards(device: torch.device) -> list[Any]:
    """The missing happens-before edges that the emulated device caught since `configure`; on cuda always none."""
    if is_emulated(device):
        from penaltylab import emu

        return emu.hazards()
    return []


def traffic(device: torch.device) -> tuple[float, float]:
    """How many copies and host synchronizations since `configure`; NaN on cuda, where only a trace can tell."""
    if is_emulated(device):
        from penaltylab import emu

        return emu.copies(), len(emu.syncs())
    return math.nan, math.nan


def peak_memory(device: torch.device) -> float:
    """The most bytes of tensors on `device` since `configure`; NaN on emu, which models no memory allocator."""
    return math.nan if is_emulated(device) else float(torch.cuda.max_memory_allocated(device))


def is_pin_memory_available(device: torch.device | str | None = None) -> bool:
    """Whether a host tensor can be pinned for copies to `device` (sglang `utils/common.py`: never for "cpu")."""
    kind = torch.device(device).type if device is not None else "cuda"
    return kind == "emu" or (kind == "cuda" and torch.cuda.is_available())


def describe(device: torch.device) -> dict[str, Any]:
    """What `device` is, for records and figures: `name`, `vendor`, `simulated`, and what the driver tells."""
    if is_emulated(device):
        from penaltylab import emu

        machine = emu.machine()
        return {"name": f"SIMULATED {machine.name}", "vendor": "simulated", "simulated": True, "machine": machine.name}
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "vendor": "amd" if torch.version.hip else "nvidia",
        "simulated": False,
        "memory_bytes": properties.total_memory,
        "uuid": str(getattr(properties, "uuid", "")),
        "runtime": torch.version.hip or torch.version.cuda,
    }


def profiler(device: torch.device, with_stack: bool = False) -> Any:
    """A context manager that runs `torch.profiler` around its body; `.export(path, metadata)` then writes the trace."""
    if is_emulated(device):
        from penaltylab.emu.profile import Profiler

        return Profiler(with_stack)
    from penaltylab.traces.record import TorchProfiler

    return TorchProfiler(with_stack)

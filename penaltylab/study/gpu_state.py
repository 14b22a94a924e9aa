"""A GPU's clock and temperature as its driver tells them, and whether it throttled. Never required: {} without NVML."""

import shutil
import subprocess
from typing import Any

REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
}
QUERY = "clocks.sm,temperature.gpu,clocks_throttle_reasons.active"
_FALLBACK = "clocks.sm,temperature.gpu,clocks_event_reasons.active"


def read(uuid: str) -> dict[str, Any]:
    """`clock_mhz`, `temperature_c` and `throttled` (reasons) of the GPU with that uuid; {} where nobody tells."""
    if not uuid:
        return {}
    return _from_nvml(uuid) or _from_nvidia_smi(uuid)


def change(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Both states as one flat dictionary; `throttled` holds what throttled at either end."""
    if not before or not after:
        return {}
    names = ("clock_mhz", "temperature_c")
    flat = {f"{name}_{when}": state[name] for name in names for when, state in (("before", before), ("after", after))}
    return flat | {"throttled": sorted({*before["throttled"], *after["throttled"]})}


def reasons(mask: int) -> list[str]:
    """The bits of NVML's mask that mean that the clock was held down, in words; idling and set clocks are none."""
    return [text for bit, text in REASONS.items() if mask & bit]


def _from_nvml(uuid: str) -> dict[str, Any]:
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByUUID(_prefixed(uuid))
        return {
            "clock_mhz": float(pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)),
            "temperature_c": float(pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU)),
            "throttled": reasons(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
        }
    except pynvml.NVMLError:
        return {}


def _from_nvidia_smi(uuid: str) -> dict[str, Any]:
    if not shutil.which("nvidia-smi"):
        return {}
    for query in (QUERY, _FALLBACK):
        command = ["nvidia-smi", f"--id={_prefixed(uuid)}", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
            clock, temperature, mask = done.stdout.strip().split(",")
            return {
                "clock_mhz": float(clock),
                "temperature_c": float(temperature),
                "throttled": reasons(int(mask.strip(), 16)),
            }
        except (OSError, ValueError, subprocess.TimeoutExpired):
            continue
    return {}


def _prefixed(uuid: str) -> str:
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"

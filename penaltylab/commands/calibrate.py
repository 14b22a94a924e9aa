"""`penaltylab calibrate`: print a machine cost model for the emulated device, measured from a real CUDA trace."""

import json
import re
import tomllib
from pathlib import Path
from typing import Final

from penaltylab.resources import data_path
from penaltylab.traces.calibration import Measured
from penaltylab.traces.calibration import calibrate as measure
from penaltylab.traces.read import read_trace
from penaltylab.traces.render import plain
from penaltylab.traces.stalls import analyse

BASE: Final = "h100"
"""The machine whose values stand in for what the trace cannot tell."""


def calibrate(trace: str) -> int:
    """Print the cost model as TOML, ready for `--machine FILE.toml`.

    Raises:
        InputError: the trace cannot be read, or is not of an NVIDIA GPU.
    """
    analysis = analyse(read_trace(trace))
    print(cost_model(analysis.trace.device.name, Path(trace).name, measure(analysis)), end="")
    return 0


def cost_model(device: str, trace: str, measured: list[Measured]) -> str:
    """The TOML of a machine: what was measured with its counts, and by name what is left at the default."""
    known = tomllib.loads(data_path("machines", f"{BASE}.toml").read_text(encoding="utf-8"))
    values = [name for name, entry in known.items() if isinstance(entry, dict)]
    found = {one.name: one for one in measured if one.name in values}
    name = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "machine"
    lines = [
        f"# Cost model of {plain(device)}, measured from the trace {plain(trace)}.",
        "# Times in us, bandwidths in bytes a us. The host's times hold the share of the profiler that recorded them.",
        "",
        f"name = {_quoted(name)}",
        f"device_name = {_quoted(plain(device))}",
        f'base = "{BASE}"',
    ]
    for value in values:
        if value in found:
            one = found[value]
            lines += [
                "",
                f"[{value}]",
                f"value = {one.value!r}",
                f"source = {_quoted(f'{one.source} ({plain(trace)})')}",
            ]
    default = [value for value in values if value not in found]
    lines += [
        "",
        f"# The trace cannot tell these; they are left at the default, {BASE}:",
        *(f"# {value}" for value in default),
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes are a part of TOML's."""
    return json.dumps(text, ensure_ascii=False)

"""The numbers of one run, as a line of `results.jsonl`. Times are in us; what a device cannot tell becomes null."""

from typing import TYPE_CHECKING, Any

import numpy as np

from penaltylab.params import Params
from penaltylab.study.records import Row

if TYPE_CHECKING:
    from penaltylab.engine.run import Decode

MEDIANS = ("step_us", "prepare_us", "cumulate_us", "stall_us", "bubble_us")


def row(cell: str, arm: str, params: Params, device: dict[str, Any], **measured: Any) -> Row:
    """A line for what `arm` of `cell` measured on the device that `devices.describe` describes."""
    simulated = device["simulated"]
    return Row(
        cell=cell,
        arm=arm,
        params=params.asdict(),
        params_hash=params.hash(),
        device=device["name"],
        simulated=simulated,
        host_time=params.host_time if simulated else None,
        **measured,
    )


def metrics(run: "Decode") -> dict[str, Any]:
    """The fields of `Row` that a run of the engine fills, over its steps after warm-up."""
    medians = {f"{name}_median": run.median(name) for name in MEDIANS}
    spread = {f"step_us_p{percent}": run.percentile("step_us", percent) for percent in (10, 90, 99)}
    after = slice(run.params.warmup, None)
    return {
        **medians,
        **spread,
        "wait_us_median": {kind: median(values[after]) for kind, values in run.wait_us.items()},
        "tokens_per_s": run.tokens_per_s,
        "fwd_occupancy": run.fwd_occupancy,
        "copies_per_step": mean(run.copies[after]),
        "syncs_per_step": mean(run.syncs[after]),
        "peak_memory_bytes": run.peak_memory_bytes,
        "hazards": len(run.hazards),
    }


def median(values: Any) -> float:
    """The median; NaN of nothing, and where any value is NaN."""
    return float(np.median(values)) if len(values) else float("nan")


def mean(values: Any) -> float:
    """The mean; NaN of nothing."""
    return float(np.mean(values)) if len(values) else float("nan")

"""decode: one run of the engine, and what it measured."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from penaltylab import devices
from penaltylab.engine.meter import Iteration, Meter
from penaltylab.engine.request import Req
from penaltylab.engine.scheduler import Scheduler
from penaltylab.engine.workload import make_requests
from penaltylab.errors import InputError
from penaltylab.params import Params

WAIT_KINDS = ("copy", "seq_lens", "mask", "result", "other")


@dataclass(frozen=True)
class Decode:
    """A run's results. Arrays are float64 in us with one entry a decode launch, warm-up included."""

    params: Params
    device: dict[str, Any]
    simulated: bool
    tokens: dict[int, list[int]]  # by request: the prefill's token first; a request's end cuts them
    accept_lens: np.ndarray  # (steps, requests) int64, eagle only, bonus token included, 0 where a request is absent
    step_us: np.ndarray  # start of the launch's loop iteration to the start of the next iteration
    cumulate_us: np.ndarray  # host time inside cumulate_penalty_output_tokens
    stall_us: np.ndarray  # the part of it that the host was blocked; NaN on cuda, where a trace tells it
    wait_us: dict[str, np.ndarray]  # all host waits by kind; on cuda NaN but for seq_lens and result
    prepare_us: np.ndarray  # host time inside prepare_for_decode, cumulate included
    bubble_us: np.ndarray  # from the end of the forward pass before to the start of the launch's own; NaN for the first
    copies: np.ndarray  # copies of any direction that the iteration enqueued; NaN on cuda, where a trace tells it
    syncs: np.ndarray  # host synchronizations of the iteration; NaN on cuda
    peak_memory_bytes: float  # NaN on emu
    hazards: list[Any]
    tokens_per_s: float  # kept tokens of the steps after warm-up, over their wall time
    fwd_occupancy: float  # percent of the wall time after warm-up that a forward pass was on the device

    def median(self, name: str) -> float:
        """The median of one of the arrays, such as `step_us`, after warm-up."""
        return self.percentile(name, 50)

    def percentile(self, name: str, percent: float) -> float:
        """A percentile of one of the arrays after warm-up; NaN of nothing."""
        values = getattr(self, name)[self.params.warmup :]
        return float(np.percentile(values, percent)) if len(values) else float("nan")


def decode(requests: list[Req] | None = None, **given: Any) -> Decode:
    """Decode `requests` (default: those of the scenario) as the parameters `given` say; see `Params`. Profiler off."""
    params = Params.of(**given)
    return run(params, start(params), requests)


def start(params: Params) -> torch.device:
    """The device of a run, afresh: on emu, with the clock at 0 and no hazards."""
    device = devices.resolve(params.device)
    devices.configure(device, params.machine, params.host_time)
    return device


def run(
    params: Params, device: torch.device, requests: list[Req] | None = None, annotate: bool = False, **seams: Any
) -> Decode:
    """`decode` on a device that `start` gave.

    `annotate` names sections in a profiler's trace; `seams`: see Scheduler.
    """
    reqs = make_requests(params) if requests is None else requests
    if not reqs:
        raise InputError(f"scenario={params.scenario!r}: it has no requests")
    meter = Meter(device, annotate)
    with torch.inference_mode():
        scheduler = Scheduler(params, reqs, device, meter, **seams)
        scheduler.event_loop()
    return _result(params, device, reqs, scheduler)


def _result(params: Params, device: torch.device, reqs: list[Req], scheduler: Scheduler) -> Decode:
    iterations = scheduler.meter.iterations
    decodes = [it for it in iterations if it.is_decode]
    after = iterations[iterations.index(decodes[params.warmup]) :] if len(decodes) > params.warmup else []
    wall_us = sum(it.end_us - it.start_us for it in after)
    forward_us = sum(it.forward[0].elapsed_time(it.forward[1]) * 1e3 for it in after if it.forward)
    kept = sum(n for step, n in scheduler.counts.tokens.items() if step >= params.warmup)
    accept_lens = np.zeros((len(decodes), len(reqs)), dtype=np.int64)
    if params.path == "eagle":
        column = {req.rid: index for index, req in enumerate(reqs)}
        for (step, rid), accept_len in scheduler.counts.accept_lens.items():
            accept_lens[step, column[rid]] = accept_len
    blocked = {
        "copy": [it.blocked_us["cumulate_penalty_output_tokens"] for it in decodes],
        "mask": [it.blocked_us["copy_for_forward"] for it in decodes],
    }
    waited = {kind: [it.waited_us[kind] for it in decodes] for kind in ("seq_lens", "result")}
    wait_us = {kind: np.array(values) for kind, values in (blocked | waited).items()}
    all_waits = np.array([it.blocked_at_end_us - it.blocked_at_start_us for it in decodes])
    wait_us["other"] = np.maximum(all_waits - sum(wait_us.values()), 0.0)
    described = devices.describe(device)
    traffic = np.array([np.subtract(it.traffic_at_end, it.traffic_at_start) for it in decodes]).reshape(-1, 2)
    return Decode(
        params=params,
        device=described,
        simulated=described["simulated"],
        tokens={req.rid: list(req.output_ids) for req in reqs},
        accept_lens=accept_lens,
        step_us=np.array([it.end_us - it.start_us for it in decodes]),
        cumulate_us=np.array([it.elapsed_us["cumulate_penalty_output_tokens"] for it in decodes]),
        stall_us=np.array(blocked["copy"]),
        wait_us={kind: wait_us[kind] for kind in WAIT_KINDS},
        prepare_us=np.array([it.elapsed_us["prepare_for_decode"] for it in decodes]),
        bubble_us=_bubbles(decodes),
        copies=traffic[:, 0],
        syncs=traffic[:, 1],
        peak_memory_bytes=devices.peak_memory(device),
        hazards=devices.hazards(device),
        tokens_per_s=kept / wall_us * 1e6 if wall_us else float("nan"),
        fwd_occupancy=100 * forward_us / wall_us if wall_us else float("nan"),
    )


def _bubbles(decodes: list[Iteration]) -> np.ndarray:
    """How long the forward stream ran no forward pass before each launch's; what lies between is the sampler's too."""
    passes = [it.forward for it in decodes]
    gaps = [
        before[1].elapsed_time(after[0]) * 1e3 if before and after else np.nan
        for before, after in itertools.pairwise(passes)
    ]
    return np.array([np.nan, *gaps][: len(passes)])

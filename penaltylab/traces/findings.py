"""What one trace has to tell: the record that `inspect` prints as JSON, and the gate that fails a build."""

from pathlib import Path
from statistics import median
from typing import IO

import msgspec

from penaltylab.errors import InputError
from penaltylab.traces.advice import KINDS
from penaltylab.traces.copies import PAGEABLE, PINNED, TO_DEVICE, UNKNOWN, Copies
from penaltylab.traces.lint import lint
from penaltylab.traces.read import read_trace
from penaltylab.traces.stalls import Analysis, Stall, analyse
from penaltylab.traces.trace import Device


class CopyCounts(msgspec.Struct, frozen=True):
    """Host-to-device copies: how many, how many the host waited for, bytes, and the host's kind of memory."""

    h2d: int
    h2d_blocking: int
    h2d_bytes: int
    h2d_pinned: int
    h2d_pageable: int
    h2d_unknown: int


class Findings(msgspec.Struct, frozen=True):
    """All findings of one trace; its fields are those of `inspect --format json`. Times are in us."""

    trace: str
    device: Device
    simulated: bool
    events: int
    gpu_ops: int
    span_us: float
    copies: CopyCounts
    stall_us: dict[str, float]
    stalls: list[Stall]
    warnings: list[str]


class StepFigures(msgspec.Struct, frozen=True):
    """The steps of a trace: by which mark they are told apart, how many there are, and their median length."""

    what: str
    count: int
    median_us: float


class Inspected(msgspec.Struct, frozen=True):
    """The findings of a trace and its steps."""

    findings: Findings
    steps: StepFigures


def inspect_trace(source: str | Path | IO[bytes]) -> Inspected:
    """Read a trace and find all there is to find. Raises InputError where it cannot be read."""
    analysis = analyse(read_trace(source))
    steps = analysis.steps
    finite = [length for length in (steps.end - steps.start).tolist() if length < float("inf")]
    return Inspected(findings(analysis), StepFigures(steps.what, len(steps), median(finite) if finite else 0.0))


def findings(analysis: Analysis) -> Findings:
    trace = analysis.trace
    totals = dict.fromkeys(KINDS, 0.0)
    for stall in analysis.stalls:
        totals[stall.kind] += stall.stall_us
    return Findings(
        trace=trace.path,
        device=trace.device,
        simulated=trace.simulated,
        events=trace.events,
        gpu_ops=len(trace.gpu),
        span_us=round(trace.span_us, 3),
        copies=_count(analysis.copies),
        stall_us={kind: round(total, 3) for kind, total in totals.items()},
        stalls=analysis.stalls,
        warnings=lint(analysis),
    )


def _count(copies: Copies) -> CopyCounts:
    down = copies.direction == TO_DEVICE
    memory, size = copies.memory[down], copies.bytes[down]
    return CopyCounts(
        h2d=int(down.sum()),
        h2d_blocking=int((down & copies.blocking).sum()),
        h2d_bytes=int(size[size > 0].sum()),
        h2d_pinned=int((memory == PINNED).sum()),
        h2d_pageable=int((memory == PAGEABLE).sum()),
        h2d_unknown=int((memory == UNKNOWN).sum()),
    )


def parse_kinds(text: str | None) -> tuple[str, ...]:
    """The kinds of stall that a gate forbids, from `blocking-h2d,stream-sync`; none for an empty text.

    Raises:
        InputError: a kind that does not exist, naming those that do.
    """
    chosen = tuple(word.strip() for word in (text or "").split(",") if word.strip())
    if unknown := [word for word in chosen if word not in KINDS]:
        raise InputError(f"--fail-on: no kind of stall is called {unknown[0]!r}; the kinds are {', '.join(KINDS)}")
    return chosen


def forbidden(found: Findings, kinds: tuple[str, ...], min_us: float) -> list[Stall]:
    """The stalls of these kinds that last at least `min_us`."""
    return [stall for stall in found.stalls if stall.kind in kinds and stall.stall_us >= min_us]

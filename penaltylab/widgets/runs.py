"""From traces to a scene: each run on its own clock with its zero where its window begins, cropped where too large."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from penaltylab.errors import InputError
from penaltylab.traces.names import clean
from penaltylab.traces.read import read_trace
from penaltylab.traces.rows import Panel, duration, panel, summary
from penaltylab.traces.stalls import analyse
from penaltylab.traces.trace import Trace
from penaltylab.widgets.lanes import Builder, Texts
from penaltylab.widgets.names import Table
from penaltylab.widgets.scene import Run, Scene

MOST_SLICES: Final = 250_000
"""Slices that a timeline shows at most, all runs together."""
_MOST_RUNS: Final = 12


def scene_of(
    traces: Sequence[str | Path | Trace],
    labels: Sequence[str] | None = None,
    steps: tuple[int, int] | None = None,
    most: int = MOST_SLICES,
) -> Scene:
    """Read traces into one scene.

    Args:
        traces: paths or traces, one a run.
        labels: a title for each; by default the file's name.
        steps: the steps that the timeline opens on; by default up to four from the middle of each run.
        most: slices in all; of a larger trace the stretch around those steps is kept.

    Raises:
        InputError: no trace or too many, labels that do not match, or steps that a trace does not have.
    """
    if not traces:
        raise InputError("timeline: no trace given")
    if len(traces) > _MOST_RUNS:
        raise InputError(f"timeline: {len(traces)} traces; it compares up to {_MOST_RUNS}")
    if labels is not None and len(labels) != len(traces):
        raise InputError(f"timeline: {len(labels)} labels for {len(traces)} traces")
    texts = Texts(Table(), Table(), Table(lines=True))
    runs = []
    for at, given in enumerate(traces):
        trace = given if isinstance(given, Trace) else read_trace(given)
        runs.append(_run(trace, labels[at] if labels else Path(trace.path).name, steps, texts, most // len(traces)))
    return Scene(runs, texts.names.texts, texts.sites.texts, texts.notes.texts)


def _run(trace: Trace, label: str, steps: tuple[int, int] | None, texts: Texts, most: int) -> Run:
    analysis = analyse(trace)
    shown = panel(analysis, steps)
    first, last, note = _stretch(trace, shown, most)
    zero = shown.start
    known = analysis.steps
    marks = [
        (float(start) - zero, int(number))
        for start, number in zip(known.start, known.number, strict=True)
        if first <= start <= last
    ]
    return Run(
        label=clean(label),
        summary=clean(summary(shown)),
        simulated=trace.simulated,
        window=shown.length,
        extent=(first - zero, last - zero),
        steps=marks,
        lanes=Builder(analysis, texts, zero, first, last).lanes(),
        note=note,
    )


def _stretch(trace: Trace, shown: Panel, most: int) -> tuple[float, float, str]:
    """The stretch to keep, and what to say of the rest: all, or the `most` slices that are nearest to the window."""
    tables = [table for table in (trace.gpu, trace.runtime, trace.operators, trace.annotations) if len(table)]
    begin, end = shown.start, shown.start + shown.length
    if not tables:
        return begin, end, ""
    starts, ends = (np.concatenate([getattr(table, edge) for table in tables]) for edge in ("start", "end"))
    first, last = min(float(starts.min()), begin), max(float(ends.max()), end)
    if len(starts) <= most:
        return first, last, ""
    away = np.maximum(np.maximum(begin - ends, starts - end), 0.0)
    reach = float(np.partition(away, most)[most])
    first_kept, last_kept = max(first, begin - reach), min(last, end + reach)
    note = f"{duration(last_kept - first_kept)} of {duration(last - first)} of the trace are shown"
    return first_kept, last_kept, note

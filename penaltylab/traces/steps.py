"""The steps of a loop in a trace: the profiler's, the program's own annotations, or repeated graph launches."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penaltylab.traces.calls import Role
from penaltylab.traces.trace import Floats, Trace

_PROFILER = re.compile(r"ProfilerStep#(\d+)")
_NUMBERED = re.compile(r"(?:step|iteration|iter)[ _#]*(\d+)", re.IGNORECASE)
_FEWEST = 3


@dataclass(slots=True)
class Steps:
    """Steps in order of start; `what` says by which mark they were told apart."""

    what: str
    start: Floats
    end: Floats
    number: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)

    def of(self, times: Floats) -> list[int | None]:
        """The number of the step in which each of these times falls."""
        at = np.searchsorted(self.start, times, side="right") - 1
        inside = (at >= 0) & (times <= self.end[np.maximum(at, 0)]) if len(self) else np.zeros(len(times), bool)
        return [int(self.number[index]) if hit else None for index, hit in zip(at, inside, strict=True)]


def find_steps(trace: Trace, role: NDArray[np.int8]) -> Steps:
    """The finest marks that the program or the profiler set; without any, the launches of a repeated graph."""
    numbered = [_numbered(trace, pattern, what) for pattern, what in ((_NUMBERED, "step"), (_PROFILER, "ProfilerStep"))]
    best = max(numbered, key=len)
    if len(best) >= 2:
        return best
    for found in (_repeated(trace), _graphs(trace, role)):
        if len(found) >= _FEWEST:
            return found
    return best


def _numbered(trace: Trace, pattern: re.Pattern[str], what: str) -> Steps:
    number_of: dict[int, int] = {}
    for code in np.unique(trace.annotations.name).tolist():
        match = pattern.fullmatch(trace.names[code])
        if match and len(match.group(1)) < 18:
            number_of[code] = int(match.group(1))
    rows = np.flatnonzero(np.isin(trace.annotations.name, list(number_of)))
    numbers = np.array([number_of[code] for code in trace.annotations.name[rows].tolist()], np.int64)
    return Steps(what, trace.annotations.start[rows], trace.annotations.end[rows], numbers)


def _repeated(trace: Trace) -> Steps:
    """From one start to the next of the annotation that comes back most regularly over most of the trace."""
    kinds: dict[tuple[str, int], list[int]] = {}
    kind_of = {code: re.sub(r"\d+", "N", trace.names[code]) for code in np.unique(trace.annotations.name).tolist()}
    for row, (code, lane) in enumerate(
        zip(trace.annotations.name.tolist(), trace.annotations.lane.tolist(), strict=True)
    ):
        kinds.setdefault((kind_of[code], lane), []).append(row)
    best, best_time = _no_steps(), trace.span_us / 2
    for (kind, _), rows in kinds.items():
        start = trace.annotations.start[rows]
        period = np.diff(start)
        if len(rows) < _FEWEST or kind.startswith(("nccl:", "gloo:")) or period.std() > period.mean() / 2:
            continue
        end = np.append(start[1:], trace.annotations.end[rows[-1]])
        if end[-1] - start[0] > best_time:
            best, best_time = Steps(kind, start, end, np.arange(len(rows))), float(end[-1] - start[0])
    return best


def _no_steps() -> Steps:
    return Steps("", np.zeros(0), np.zeros(0), np.zeros(0, np.int64))


def _graphs(trace: Trace, role: NDArray[np.int8]) -> Steps:
    """From one graph launch to the next on the thread that launches most of them."""
    rows = np.flatnonzero(role == Role.GRAPH_LAUNCH)
    if rows.size:
        lanes, counts = np.unique(trace.runtime.lane[rows], return_counts=True)
        rows = rows[trace.runtime.lane[rows] == lanes[np.argmax(counts)]]
    start = trace.runtime.start[rows]
    return Steps("graph launch", start, np.append(start[1:], np.inf)[: len(start)], np.arange(len(start)))

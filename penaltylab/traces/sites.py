"""The line of Python that made a call: the innermost frame around it that is neither built in nor PyTorch's own."""

import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from penaltylab.traces.nesting import Index, Nest
from penaltylab.traces.trace import Trace

_FRAME = re.compile(r"(?P<file>[^;\n]*\.pyx?)\((?P<line>\d+)\): (?P<function>[^;\n]+)")
_LIBRARY = re.compile(r"(?:^|[/\\])(?:torch|threading\.py|contextlib\.py|functools\.py)(?:[/\\]|$)")
_DEEPEST = 200
_NONE, _PYTORCH, _USER = 0, 1, 2


def find_sites(trace: Trace, call: Index) -> list[str | None]:
    """For each runtime call `file.py(line): function`, as the profiler names frames; None where there is no stack.

    Sources, in order: the call's own `Call stack` argument, the Python frames of `with_stack`, and the `Call stack` of
    the operator around the call (PyTorch before 1.13).
    """
    sites = [_of_stack(trace, code) for code in trace.runtime.stack[call].tolist()]
    open_ = np.array([index for index, site in enumerate(sites) if site is None], np.intp)
    for index, code in zip(open_, _frames(trace, call[open_]), strict=True):
        sites[index] = _short(trace.names[code]) if code >= 0 else None
    if np.any(trace.operators.stack >= 0):
        nest, runtime = Nest.of(trace.operators), trace.runtime
        open_ = np.array([index for index, site in enumerate(sites) if site is None], np.intp)
        chosen = call[open_]
        at = nest.innermost(runtime.lane[chosen], runtime.start[chosen], runtime.end[chosen])
        for index, position in zip(open_, at, strict=True):
            if position >= 0:
                sites[index] = _of_stack(trace, int(trace.operators.stack[nest.order[position]]))
    return sites


def _frames(trace: Trace, call: Index) -> NDArray[np.int64]:
    """Codes of the names of the chosen frames around calls; -1 without one."""
    found = np.full(len(call), -1, np.int64)
    if not len(trace.frames) or not len(call):
        return found
    sort = np.zeros(len(trace.names), np.int8)
    for code in np.unique(trace.frames.name).tolist():
        sort[code] = _sort_of(trace.names[code])
    nest, runtime = Nest.of(trace.frames), trace.runtime
    lane, start, end = runtime.lane[call], runtime.start[call], runtime.end[call]
    at = nest.innermost(lane, start, end)
    searching = np.flatnonzero(at >= 0)
    for _ in range(_DEEPEST):
        if not searching.size:
            break
        code = trace.frames.name[nest.order[at[searching]]]
        better = (sort[code] == _USER) | ((sort[code] == _PYTORCH) & (found[searching] < 0))
        found[searching[better]] = code[better]
        searching = searching[sort[code] != _USER]
        at[searching] = nest.innermost(lane[searching], start[searching], end[searching], before=at[searching])
        searching = searching[at[searching] >= 0]
    return found


def _of_stack(trace: Trace, code: int) -> str | None:
    """The site in a `Call stack` argument, whose innermost frame stands first."""
    if code < 0:
        return None
    frames = [match.group() for match in _FRAME.finditer(trace.names[code])]
    return _short(_best(frames)) if frames else None


def _best(frames: Iterable[str]) -> str:
    frames = list(frames)
    return next((frame for frame in frames if _sort_of(frame) == _USER), frames[0])


def _sort_of(name: str) -> int:
    match = _FRAME.fullmatch(name.strip())
    if not match:
        return _NONE
    return _PYTORCH if _LIBRARY.search(match["file"]) else _USER


def _short(frame: str) -> str:
    match = _FRAME.search(frame)
    if not match:
        return frame
    file = match["file"].strip().replace("\\", "/").rpartition("/")[2]
    return f"{file}({match['line']}): {match['function'].strip()}"

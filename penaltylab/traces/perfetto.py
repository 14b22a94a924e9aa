"""A trace made fit for Perfetto: cropped, repaired, no negative times, and no slice that crosses another on its row."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from penaltylab.errors import InputError
from penaltylab.traces.chunks import Pieces
from penaltylab.traces.columns import Codebook
from penaltylab.traces.lanes import assign, late
from penaltylab.traces.read import read_trace
from penaltylab.traces.schema import WholeEvent
from penaltylab.traces.sources import blocks
from penaltylab.traces.stalls import analyse
from penaltylab.traces.trace import Trace
from penaltylab.traces.write import check_writable, opened

_MOVED_TID: Final = 1 << 30
_LONGEST_US: Final = 9e15
_EXACT_US: Final = 2.0**43


def export_for_perfetto(
    source: str | Path,
    out: str | Path,
    window_us: tuple[float, float] | None = None,
    steps: tuple[int, int] | None = None,
) -> Path:
    """Write a trace that every viewer shows whole.

    Args:
        source: any trace that `read_trace` reads.
        out: path of the .json or .json.gz to write.
        window_us: keep only this stretch, in us from the start of the trace; slices that reach out of it are cut.
        steps: keep only the first to the last of these steps.

    Returns:
        `out`.

    Raises:
        InputError: the trace cannot be read, `out` cannot be written, or the window or the steps are not in the trace.
    """
    path = check_writable(out)
    trace = read_trace(source)
    crop = _Crop(source, *_window(trace, window_us, steps), _base(trace))
    layout = _Layout.of(crop)
    with opened(path) as file:
        file.write(b'{"traceEvents": [')
        separator = b"\n"
        for event in layout.events(crop):
            file.write(separator + msgspec.json.encode(event))
            separator = b",\n"
        file.write(b"\n]")
        for key, value in (crop.metadata | _clock(crop.metadata, crop.base)).items():
            file.write(b",\n" + msgspec.json.encode(str(key)) + b": " + msgspec.json.encode(value))
        file.write(b"}\n")
    return path


def _window(trace: Trace, window_us: tuple[float, float] | None, steps: tuple[int, int] | None) -> tuple[float, float]:
    """The stretch to keep, on the file's own clock."""
    if window_us is not None:
        begin, end = window_us
        if not begin < end:
            raise InputError(f"window_us: {begin} to {end} is empty")
    elif steps is not None:
        known = analyse(trace).steps
        inside = np.flatnonzero((known.number >= steps[0]) & (known.number <= steps[1]))
        if not inside.size:
            raise InputError(f"{trace.path}: no step from {steps[0]} to {steps[1]} in this trace")
        begin, end = float(known.start[inside[0]]), float(known.end[inside[-1]])
    else:
        return -np.inf, np.inf
    return begin + trace.origin_us, end + trace.origin_us


def _base(trace: Trace) -> int:
    """What is taken off all times: viewers count ns, and of those since the epoch a double holds only every 256th."""
    return int(trace.origin_us // 1) if abs(trace.origin_us) > _EXACT_US else 0


def _clock(metadata: dict[str, Any], base: int) -> dict[str, Any]:
    """The top-level key that says when time 0 is, moved with the times."""
    known = metadata.get("baseTimeNanoseconds", 0)
    return {"baseTimeNanoseconds": known + base * 1000} if base and isinstance(known, int) else {}


@dataclass(slots=True)
class _Crop:
    """The events of a file that touch a window, as often as they are asked for; their times count from `base`."""

    source: str | Path
    begin: float
    end: float
    base: int
    metadata: dict[str, Any] = field(default_factory=dict)

    def events(self) -> Iterator[WholeEvent]:
        pieces = Pieces(blocks(self.source, []), str(self.source), WholeEvent)
        for piece in pieces:
            for event in piece:
                if isinstance(event, WholeEvent) and self._keep(event):
                    event.ts -= self.base if event.ph != "M" else 0
                    yield event
        self.metadata = pieces.metadata

    def _keep(self, event: WholeEvent) -> bool:
        """Whether an event is shown; a slice is cut to the window."""
        if event.ph == "M":
            return True
        if not abs(event.ts) < _LONGEST_US or not 0 <= event.dur < _LONGEST_US:
            return False
        if event.ph != "X":
            return self.begin <= event.ts <= self.end
        begin, end = max(event.ts, self.begin), min(event.ts + event.dur, self.end)
        if begin > end:
            return False
        if (begin, end) != (event.ts, event.ts + event.dur):
            event.ts, event.dur = begin, end - begin
        return True


@dataclass(slots=True)
class _Layout:
    """Of each slice, in the order of the file, its lane and when it is written; and how far all times move."""

    rows: Codebook
    row: NDArray[np.int64]
    lane: NDArray[np.int32]
    late: NDArray[np.bool_]
    place: NDArray[np.intp]
    shift: float
    moved: dict[tuple[Any, Any, int], int] = field(default_factory=dict)

    @classmethod
    def of(cls, crop: _Crop) -> "_Layout":
        rows, row, begin, end, first = Codebook(), array("q"), array("q"), array("q"), 0.0
        for event in crop.events():
            if event.ph == "X":
                # Perfetto rounds the start and the length to whole ns, each by itself.
                start = round(event.ts * 1e3)
                row.append(rows[event.pid, event.tid])
                begin.append(start)
                end.append(start + round(event.dur * 1e3))
            if event.ph != "M":
                first = min(first, event.ts)
        columns = [np.array(column, np.int64) for column in (row, begin, end)]
        return cls(rows, columns[0], assign(*columns), *late(*columns), -first)

    def events(self, crop: _Crop) -> Iterator[dict[str, Any]]:
        names: dict[tuple[Any, Any], str] = {}
        slices = iter(zip(self.lane.tolist(), self.late.tolist(), self.place.tolist(), strict=True))
        behind: list[tuple[int, dict[str, Any]]] = []
        for event in crop.events():
            lane, is_late, place = next(slices) if event.ph == "X" else (0, False, 0)
            if event.ph == "M" and event.name == "thread_name" and isinstance(event.args, dict):
                names[event.pid, event.tid] = str(event.args.get("name") or "").strip()
            if event.ph != "M":
                event.ts += self.shift
            event.tid = self._tid(event.pid, event.tid, lane)
            if is_late:
                behind.append((place, _plain(event)))
            else:
                yield _plain(event)
        yield from (event for _, event in sorted(behind, key=lambda pair: pair[0]))
        for (pid, tid, lane), moved in self.moved.items():
            name = names.get((pid, tid)) or str(tid)
            name = f"{name} (crossing slices {lane})" if lane else name
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": moved, "ts": 0, "args": {"name": name}}

    def _tid(self, pid: Any, tid: Any, lane: int) -> Any:
        """The thread id to write: another one for a lane, and for one that Perfetto takes for the process itself."""
        if lane == 0 and not (isinstance(tid, int) and not 0 <= tid < 1 << 32):
            return tid
        if (pid, tid, lane) not in self.moved:
            used = {known for _, known in self.rows} | set(self.moved.values())
            self.moved[pid, tid, lane] = next(number for number in count(_MOVED_TID) if number not in used)
        return self.moved[pid, tid, lane]


def _plain(event: WholeEvent) -> dict[str, Any]:
    """An event as it is written: what it does not have is left out."""
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    if event.ph != "X":
        del values["dur"]
    return {name: value for name, value in values.items() if value is not None and not (name == "cat" and not value)}

"""From lists of decoded events to numpy columns, a piece at a time."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penaltylab.traces import schema
from penaltylab.traces.schema import Args, Event
from penaltylab.traces.trace import Ints, LinkedSlices, Slices

_NO_ARGS = Args()
_NON_BLOCKING_AT = {"aten::copy_": 2, "aten::_to_copy": 5}
_TYPES = [np.float64, np.float64, np.int32, np.int32, np.int64, np.int64, np.int64, np.int64, np.int8, np.int32]
"""Of the columns of a table in the order of `LinkedSlices`; a table without links has the first four."""
_INT64 = range(-(2**63), 2**63)


class Codebook(dict[Any, int]):
    """Small integers for values, in the order in which they are first seen."""

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self)
        return code


class _Table:
    """One growing table of slices."""

    def __init__(self, linked: bool) -> None:
        self.linked = linked
        self.parts: list[tuple[np.ndarray[Any, Any], ...]] = []

    def finish(self, origin: float) -> Any:
        """The columns in order of start (the longest first), their times counted from `origin`."""
        columns = []
        for at, kind in enumerate(_TYPES if self.linked else _TYPES[:4]):
            columns.append(np.concatenate([part[at] for part in self.parts]) if self.parts else np.zeros(0, kind))
            self.parts = [(*part[:at], columns[-1][:0], *part[at + 1 :]) for part in self.parts]
        columns[0] -= origin
        order = np.lexsort((-columns[1], columns[0]))
        if np.any(order[1:] < order[:-1]):
            columns = [column[order] for column in columns]
        return (LinkedSlices if self.linked else Slices)(*columns)


class Columns:
    """Sorts events into tables by category; everything else is only counted."""

    def __init__(self) -> None:
        self.names: Codebook = Codebook()
        self.lanes: Codebook = Codebook()
        self.lane_names: dict[int, str] = {}
        self.process_labels: dict[Any, str] = {}
        self.categories: Counter[str] = Counter()
        self.first = float("inf")
        self.events = self.unusable = self.phaseless = 0
        self.gpu, self.runtime, self.syncs, self.operators = (_Table(True) for _ in range(4))
        self.annotations, self.frames, self.overhead = (_Table(False) for _ in range(3))
        self._plain = dict.fromkeys(schema.ANNOTATION_CATEGORIES, self.annotations)
        self._plain |= dict.fromkeys(schema.FRAME_CATEGORIES, self.frames)
        self._plain |= dict.fromkeys(schema.OVERHEAD_CATEGORIES, self.overhead)
        self._linked = dict.fromkeys(schema.RUNTIME_CATEGORIES, self.runtime)
        self._linked |= dict.fromkeys(schema.SYNC_CATEGORIES, self.syncs)
        self._linked |= dict.fromkeys(schema.OPERATOR_CATEGORIES, self.operators)
        self._linked |= dict.fromkeys(schema.GPU_CATEGORIES, self.gpu)

    def add(self, events: list[Event]) -> None:
        """Take in one piece."""
        groups: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            groups[event.cat].append(event)
        self.events += len(events)
        for category, group in groups.items():
            self.categories[category] += len(group)
            table = self._plain.get(category) or self._linked.get(category)
            if table is not None:
                self._append(table, category, [event for event in group if event.ph == "X"])
            elif category in ("", "Trace", "__metadata"):
                self.phaseless += sum(not event.ph for event in group)
                self._describe(group)

    def _append(self, table: _Table, category: str, group: list[Event]) -> None:
        start = np.array([event.ts for event in group], np.float64)
        dur = np.array([event.dur for event in group], np.float64)
        usable = np.isfinite(start) & np.isfinite(dur) & (np.abs(start) < 1e18) & (dur >= 0) & (dur < 1e15)
        if not usable.all():
            self.unusable += int((~usable).sum())
            group = [event for event, good in zip(group, usable, strict=True) if good]
            start, dur = start[usable], dur[usable]
        if not group:
            return
        self.first = min(self.first, float(start.min()))
        names, lanes = self.names, self.lanes
        columns: list[Any] = [start, dur, np.array([names[event.name] for event in group], np.int32)]
        columns.append(np.array([lanes[event.pid, event.tid] for event in group], np.int32))
        if table.linked:
            columns += self._links(category, group, [event.args or _NO_ARGS for event in group])
        table.parts.append(tuple(columns))

    def _links(self, category: str, group: list[Event], args: list[Args]) -> Iterable[Any]:
        yield _integers([item.correlation for item in args])
        yield _integers([item.external_id for item in args])
        if category in schema.OPERATOR_CATEGORIES:
            yield from (np.full(len(group), -1),) * 2
            yield np.array([_non_blocking(event) for event in group], np.int8)
            yield self._stacks(args)
            return
        yield _integers([item.size if item.bytes == -1 else item.bytes for item in args])
        yield _integers([item.stream for item in args])
        if category in schema.GPU_CATEGORIES:
            yield np.full(len(group), schema.GPU_CATEGORIES[category], np.int8)
        else:
            yield _integers([-1 if item.kind is None else item.kind for item in args]).clip(-1, 9).astype(np.int8)
        yield self._stacks(args)

    def _stacks(self, args: list[Args]) -> NDArray[np.int32]:
        stacks = [item.call_stack for item in args]
        return np.array([self.names[str(stack)] if stack else -1 for stack in stacks], np.int32)

    def _describe(self, group: list[Event]) -> None:
        """Names of threads and processes, and the span that the profiler says it covered."""
        for event in group:
            if event.ph == "X" and event.ts > 0:
                self.first = min(self.first, event.ts)
            if event.ph != "M" or event.args is None:
                continue
            if event.name == "thread_name":
                self.lane_names[self.lanes[event.pid, event.tid]] = _text(event.args.name)
            elif event.name == "process_labels":
                self.process_labels[event.pid] = _text(event.args.labels)


def _text(raw: msgspec.Raw) -> str:
    try:
        return re.sub(r"\s+", " ", str(msgspec.json.decode(raw))).strip()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""


def _non_blocking(event: Event) -> int:
    """The operator's `non_blocking` argument, which a trace with `record_shapes` holds; -1 unknown."""
    at = _NON_BLOCKING_AT.get(event.name)
    if at is None or event.args is None or event.args.concrete_inputs == schema.NOTHING:
        return -1
    try:
        return {"True": 1, "False": 0}.get(msgspec.json.decode(event.args.concrete_inputs)[at], -1)
    except (msgspec.DecodeError, IndexError, KeyError, TypeError, RecursionError):
        return -1


def _integers(values: list[Any]) -> Ints:
    try:
        return np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if number in _INT64 else -1

"""From lists of decoded events to numpy columns, a piece at a time."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penaltylab.traces import schema
from penaltylab.traces.schema import Args, Event
from penaltylab.traces.trace import LinkedSlices, Slices

_NO_ARGS = Args()
_NON_BLOCKING_AT = {"aten::copy_": 2, "aten::_to_copy": 5}
_TYPES: list[Any] = [
    np.float64,
    np.float64,
    np.int32,
    np.int32,
    np.int64,
    np.int64,
    np.int64,
    np.int64,
    np.int8,
    np.int32,
]
"""Of the columns of a table in the order of `LinkedSlices`; a table without links has the first four."""
_INT64 = range(-(2**63), 2**63)


class Codebook(dict[Any, int]):
    """Small integers for values, in the order in which they are first seen."""

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self)
        return code


class _Table:
    """One growing table of slices; of a column that says nothing (-1 throughout) nothing is kept."""

    def __init__(self, linked: bool) -> None:
        self.types = _TYPES if linked else _TYPES[:4]
        self.columns: list[NDArray[Any] | None] = [None] * len(self.types)
        self.rows = self.room = 0

    def append(self, rows: int, columns: list[NDArray[Any] | None]) -> None:
        """Add rows in place: growing an array moves pages, where joining parts would hold every column twice."""
        begin, self.rows = self.rows, self.rows + rows
        if self.rows > self.room:
            self.room = max(self.rows, self.room * 5 // 4)
            for column in self.columns:
                if column is not None:
                    column.resize(self.room, refcheck=False)
        for at, values in enumerate(columns):
            column = self.columns[at]
            if column is None and values is not None:
                column = self.columns[at] = np.full(self.room, -1, self.types[at])
            if column is not None:
                column[begin : self.rows] = -1 if values is None else values

    def finish(self, origin: float) -> Any:
        """The columns in order of start (the longest first), their times counted from `origin`."""
        columns = []
        for kind, column in zip(self.types, self.columns, strict=True):
            if column is not None:
                column.resize(self.rows, refcheck=False)
            columns.append(np.broadcast_to(kind(-1), self.rows) if column is None else column)
        self.columns = []
        if self.rows:
            columns[0] -= origin
            later = np.diff(columns[0])
            if np.any(later < 0) or np.any(np.diff(columns[1])[later == 0] > 0):
                order = np.lexsort((-columns[1], columns[0]))
                for at, column in enumerate(columns):
                    columns[at] = column if column.strides == (0,) else column[order]
        return (Slices if len(columns) == 4 else LinkedSlices)(*columns)


class Columns:
    """Sorts events into tables by category; everything else is only counted."""

    def __init__(self) -> None:
        self.names: Codebook = Codebook()
        self.lanes: Codebook = Codebook()
        self.lane_names: dict[int, str] = {}
        self.categories: Counter[str] = Counter()
        self.first = float("inf")
        self.events = self.unusable = self.phaseless = 0
        self.gpu, self.runtime, self.syncs, self.operators = (_Table(True) for _ in range(4))
        self.annotations, self.frames, self.overhead = (_Table(False) for _ in range(3))
        self._table_of = {
            category: table
            for categories, table in (
                (schema.GPU_CATEGORIES, self.gpu),
                (schema.RUNTIME_CATEGORIES, self.runtime),
                (schema.SYNC_CATEGORIES, self.syncs),
                (schema.OPERATOR_CATEGORIES, self.operators),
                (schema.ANNOTATION_CATEGORIES, self.annotations),
                (schema.FRAME_CATEGORIES, self.frames),
                (schema.OVERHEAD_CATEGORIES, self.overhead),
            )
            for category in categories
        }

    def add(self, events: list[Event]) -> None:
        """Take in one piece."""
        groups: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            groups[event.cat].append(event)
        self.events += len(events)
        for category, group in groups.items():
            self.categories[category] += len(group)
            table = self._table_of.get(category)
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
        columns: list[NDArray[Any] | None] = [start, dur]
        columns.append(np.array([names[event.name] for event in group], np.int32))
        columns.append(np.array([lanes[event.pid, event.tid] for event in group], np.int32))
        if len(table.types) > 4:
            columns += self._links(category, group, [event.args or _NO_ARGS for event in group])
        table.append(len(group), columns)

    def _links(self, category: str, group: list[Event], args: list[Args]) -> Iterator[NDArray[Any] | None]:
        operators, gpu = category in schema.OPERATOR_CATEGORIES, schema.GPU_CATEGORIES.get(category)
        yield None if operators else _integers([item.correlation for item in args])
        yield None if gpu or operators else _integers([item.external_id for item in args])
        yield None if operators else _integers([item.size if item.bytes == -1 else item.bytes for item in args])
        yield _integers([item.stream for item in args]) if category in schema.SYNC_CATEGORIES else None
        if operators:
            yield _non_blocking(group)
        elif gpu:
            yield np.full(len(group), gpu, np.int8)
        else:
            kinds = _integers([-1 if item.kind is None else item.kind for item in args])
            yield None if kinds is None else kinds.clip(-1, 9).astype(np.int8)
        stacks = [item.call_stack for item in args]
        yield np.array([self.names[str(one)] if one else -1 for one in stacks], np.int32) if any(stacks) else None

    def _describe(self, group: list[Event]) -> None:
        """Names of threads and processes, and the span that the profiler says it covered."""
        for event in group:
            if event.ph == "X" and event.ts > 0:
                self.first = min(self.first, event.ts)
            if event.ph != "M" or event.args is None:
                continue
            if event.name == "thread_name":
                self.lane_names[self.lanes[event.pid, event.tid]] = _text(event.args.name)


def _text(raw: msgspec.Raw) -> str:
    try:
        return re.sub(r"\s+", " ", str(msgspec.json.decode(raw))).strip()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""


def _non_blocking(operators: list[Event]) -> NDArray[np.int8] | None:
    """The operators' `non_blocking` arguments, which a trace with `record_shapes` holds; -1 unknown."""
    flags = None
    for at in [at for at, event in enumerate(operators) if event.name in _NON_BLOCKING_AT]:
        event = operators[at]
        if event.args is None or event.args.concrete_inputs == schema.NOTHING:
            continue
        flags = np.full(len(operators), -1, np.int8) if flags is None else flags
        try:
            inputs = msgspec.json.decode(event.args.concrete_inputs)
            flags[at] = {"True": 1, "False": 0}.get(inputs[_NON_BLOCKING_AT[event.name]], -1)
        except (msgspec.DecodeError, IndexError, KeyError, TypeError, RecursionError):
            continue
    return flags


def _integers(values: list[Any]) -> NDArray[np.int64] | None:
    try:
        column = np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        column = np.array([_integer(value) for value in values], np.int64)
    return None if np.all(column == -1) else column


def _integer(value: Any) -> int:
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if number in _INT64 else -1

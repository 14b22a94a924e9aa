"""From real time to virtual time: where the profiler's host slices lie on the emulated device's clock."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from torch._C._profiler import _RecordFunctionFast

Nanoseconds = npt.NDArray[np.int64]

_MARK = "penaltylab clock mark"
_MARKS = 16
_HALF_UP = 0.5001  # so that half a ns rounds up, whatever the last binary digit of a sum of times


@dataclass(slots=True)
class Slice:
    """An event of the profiler's host rows: its extent in ns on Kineto's clock, and on the virtual one once retimed."""

    event: dict[str, Any]
    real_start: int
    real_end: int
    start: int = 0
    end: int = 0
    start_limit: int = 0  # no later than this: a call begins there
    end_limit: int = 0

    @classmethod
    def of(cls, event: dict[str, Any]) -> Self:
        """From Kineto's `ts` and `dur`; an instant has none of the latter."""
        start = to_ns(event["ts"])
        return cls(event, start, start + to_ns(event.get("dur", 0.0)))

    @property
    def is_frame(self) -> bool:
        """Whether this is a Python function that `with_stack` recorded."""
        return self.event.get("cat") == "python_function"

    def retimed_event(self) -> dict[str, Any]:
        """The event at its virtual time."""
        moved = self.event | {"ts": self.start / 1e3}
        return moved | {"dur": (self.end - self.start) / 1e3} if "dur" in self.event else moved


def nest(slices: Sequence[Slice]) -> None:
    """Shorten what crosses: of two slices of one row that meet, one then holds the other. `slices` in order of start.

    Annotations begin and end within the Python function that opens or closes them: that function's slice gives way.
    """
    stack: list[Slice] = []
    for item in slices:
        while stack and stack[-1].real_end <= item.real_start:
            stack.pop()
        while stack and stack[-1].real_end < item.real_end:
            if item.is_frame or not stack[-1].is_frame:
                item.real_end = stack[-1].real_end
                break
            stack.pop().real_end = item.real_start
        stack.append(item)


def to_ns(us: float) -> int:
    """Whole ns of a time in us."""
    return int(us * 1e3 + _HALF_UP)


def take_marks() -> list[int]:
    """Read `perf_counter_ns` inside annotations of a fraction of a us each: what relates Kineto's clock to it."""
    readings = []
    for _ in range(_MARKS):
        with _RecordFunctionFast(_MARK):
            readings.append(time.perf_counter_ns())
    return readings


def is_mark(event: dict[str, Any]) -> bool:
    """Whether an event of the profile is one of `take_marks`."""
    return event["name"] == _MARK


@dataclass(frozen=True, slots=True)
class ClockMap:
    """A monotone map from Kineto's clock to the virtual one, piecewise linear between the log's breaks.

    Beyond the first and the last break virtual time stands still. A time within `error_ns` of a break is taken for that
    break, so that a slice that holds a call of the emulator in real time holds it in virtual time too.
    """

    anchors: Nanoseconds  # Kineto's time at the first and at the last marks
    offsets: npt.NDArray[np.float64]  # how far Kineto's clock is ahead of perf_counter, there
    error_ns: float  # half the distance between the bounds on an offset
    real: Nanoseconds  # the breaks, on perf_counter
    virtual: npt.NDArray[np.float64]  # the breaks, in virtual ns

    @classmethod
    def of(cls, marks: Sequence[Slice], readings: Sequence[int], breaks: Sequence[tuple[int, float]]) -> Self:
        """From the slices of the marks, the readings inside them, and the log's (perf_counter_ns, virtual us) pairs."""
        if len(marks) != len(readings) or not breaks:
            raise RuntimeError(f"{len(marks)} of {len(readings)} clock marks, {len(breaks)} breaks: no clock to map")
        marks = sorted(marks, key=lambda mark: mark.real_start)
        anchors, offsets, errors = [], [], []
        for group in (slice(None, _MARKS), slice(-_MARKS, None)):
            low = max(mark.real_start - reading for mark, reading in zip(marks[group], readings[group], strict=True))
            high = min(mark.real_end - reading for mark, reading in zip(marks[group], readings[group], strict=True))
            anchors.append(marks[group][0].real_start)
            offsets.append((low + high) / 2)
            errors.append(abs(high - low) / 2)
        real, virtual = zip(*sorted(breaks), strict=True)
        return cls(
            anchors=np.array(anchors),
            offsets=np.array(offsets),
            error_ns=max(errors),
            real=np.array(real),
            virtual=np.maximum.accumulate(np.array(virtual) * 1e3),
        )

    def kineto_ns_at_virtual_zero(self) -> int:
        """Kineto's time when the virtual clock stood at 0, had it run with the real one until the first break."""
        first = self.real[0] + self.offsets[0]
        return round(first - self.virtual[0])

    def virtual_ns(self, kineto_ns: Nanoseconds) -> Nanoseconds:
        """Virtual time in whole ns of times on Kineto's clock."""
        perf = kineto_ns - np.interp(kineto_ns, self.anchors, self.offsets)
        after = np.searchsorted(self.real, perf).clip(max=len(self.real) - 1)
        before = (after - 1).clip(min=0)
        nearest = np.where(perf - self.real[before] <= self.real[after] - perf, before, after)
        at_a_break = np.abs(self.real[nearest] - perf) <= self.error_ns
        times = np.where(at_a_break, self.virtual[nearest], np.interp(perf, self.real, self.virtual))
        return (times + _HALF_UP).astype(np.int64)


def retime(slices: Sequence[Slice], clock: ClockMap, calls: Sequence[tuple[int, int]]) -> None:
    """Give the slices of one thread, in order of start, their virtual extents, none of which crosses another or a call.

    `calls` are the extents of the thread's runtime calls in order, none overlapping the next, in ns.
    """
    real = np.array([(item.real_start, item.real_end) for item in slices], dtype=np.int64).reshape(-1, 2)
    extents = np.array(calls, dtype=np.int64).reshape(-1, 2)
    virtual = snap_to_calls(clock.virtual_ns(real), extents)
    starts = np.append(extents[:, 0], np.iinfo(np.int64).max)
    limits = starts[np.searchsorted(starts, virtual)]
    for item, (start, end), (start_limit, end_limit) in zip(slices, virtual.tolist(), limits.tolist(), strict=True):
        item.start, item.end = start, end
        item.start_limit, item.end_limit = start_limit, end_limit
    spread(slices)


def spread(slices: Sequence[Slice]) -> None:
    """Set apart by 1 ns each what fell together in virtual time, as far as there is room before the next call.

    Where the host costs nothing slices have no length, and readers would stack them up instead of side by side.
    """
    now = -1
    stack: list[Slice] = []

    def close_until(real: float) -> None:
        nonlocal now
        while stack and stack[-1].real_end <= real:
            item = stack.pop()
            now = item.end = min(item.end_limit, max(item.end, now + 1))

    for item in slices:
        close_until(item.real_start)
        if "dur" in item.event:
            now = item.start = min(item.start_limit, max(item.start, now + 1))
            stack.append(item)
        else:
            item.start = max(item.start, now)
    close_until(float("inf"))


def snap_to_calls(times: Nanoseconds, calls: Nanoseconds) -> Nanoseconds:
    """`times`, those inside a call moved to the nearer end of it: a monotone map, after which no slice crosses a call.

    `calls` is (n, 2): start and end of the calls of one thread in order, none overlapping the next.
    """
    if not len(calls):
        return times
    call = np.searchsorted(calls[:, 0], times, side="right") - 1
    start, end = calls[call.clip(0), 0], calls[call.clip(0), 1]
    inside = (call >= 0) & (start < times) & (times < end)
    return np.where(inside, np.where(times - start <= end - times, start, end), times)

"""Real to virtual time: a monotone map, after which slices hold what they held."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penaltylab.emu.retime import ClockMap, Slice, nest, snap_to_calls, spread, to_ns

NEVER = 1 << 62


def clock(breaks: list[tuple[int, float]], ahead: int = 0, error: int = 0) -> ClockMap:
    """A map whose marks say that Kineto's clock is `ahead` of perf_counter, give or take `error` ns."""
    readings = list(range(0, 32_000, 1000))
    marks = [item("mark", reading + ahead - error, reading + ahead + error) for reading in readings]
    return ClockMap.of(marks, readings, breaks)


def item(name: str, start: int, end: int, category: str = "cpu_op") -> Slice:
    event: dict[str, Any] = {"name": name, "cat": category, "dur": 0}
    return Slice(event, start, end, start, end, NEVER, NEVER)


def extents(slices: list[Slice]) -> list[tuple[str, int, int]]:
    return [(each.event["name"], each.start, each.end) for each in slices]


def test_a_call_that_blocks_makes_virtual_time_jump() -> None:
    blocked = clock([(1000, 0.0), (2000, 1.0), (2500, 51.0), (3500, 52.0)])
    assert blocked.virtual_ns(np.array([1500, 2000, 2500, 3000])).tolist() == [500, 1000, 51_000, 51_500]


def test_before_the_first_break_and_after_the_last_one_virtual_time_stands_still() -> None:
    assert clock([(1000, 5.0), (2000, 6.0)]).virtual_ns(np.array([0, 9000])).tolist() == [5000, 6000]


def test_the_clocks_of_profiler_and_log_are_related_by_marks() -> None:
    assert clock([(1000, 0.0), (2000, 1.0)], ahead=7777).virtual_ns(np.array([1500 + 7777])).tolist() == [500]


def test_a_time_as_close_to_a_break_as_the_clocks_are_known_is_that_break() -> None:
    unsure = clock([(1000, 0.0), (2000, 100.0), (3000, 101.0)], error=40)
    assert unsure.error_ns == 40
    assert unsure.virtual_ns(np.array([1040, 1041, 1960])).tolist() == [0, 4100, 100_000]


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 9)), min_size=1), st.lists(st.integers(-99, 50_000)))
def test_the_map_is_monotone(steps: list[tuple[int, int]], times: list[int]) -> None:
    real = np.sort([real for real, _ in steps])
    virtual = np.cumsum([us for _, us in steps])
    ordered = clock(list(zip(real.tolist(), virtual.tolist(), strict=True)), error=25).virtual_ns(np.sort(times))
    assert (np.diff(ordered) >= 0).all()


def test_a_slice_that_cuts_a_call_gives_way_to_it() -> None:
    calls = np.array([[10, 20], [20, 26]])
    assert snap_to_calls(np.array([9, 10, 13, 16, 20, 22, 24, 30]), calls).tolist() == [9, 10, 10, 20, 20, 20, 26, 30]


def test_slices_of_no_length_are_set_side_by_side_before_the_next_call() -> None:
    slices = [item("parent", 0, 9), item("one", 1, 2), item("two", 3, 4), item("op", 5, 8)]
    for each in slices:
        each.start, each.end, each.start_limit = 100, 100, 5000
    slices[0].end = slices[3].end = 9000
    spread(slices)
    assert extents(slices) == [("parent", 100, 9001), ("one", 101, 102), ("two", 103, 104), ("op", 105, 9000)]


def test_what_finds_no_room_before_the_next_call_stays_together() -> None:
    slices = [item("one", 1, 2), item("two", 3, 4)]
    for each in slices:
        each.start, each.end, each.start_limit, each.end_limit = 100, 100, 101, 101
    spread(slices)
    assert extents(slices) == [("one", 100, 101), ("two", 101, 101)]


def test_an_annotation_that_begins_in_one_function_and_ends_in_another_shortens_both() -> None:
    enter, step = item("enter", 0, 10, "python_function"), item("step", 5, 50)
    leave, after = item("exit", 40, 60, "python_function"), item("after", 70, 80)
    nest([enter, step, leave, after])
    assert [(each.real_start, each.real_end) for each in (enter, step, leave, after)] == [
        (0, 5),
        (5, 50),
        (40, 50),
        (70, 80),
    ]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.booleans())))
def test_after_nesting_no_two_slices_cross(given_slices: list[tuple[int, int, bool]]) -> None:
    slices = [
        item("", start, start + length, "python_function" if frame else "cpu_op")
        for start, length, frame in given_slices
    ]
    slices.sort(key=lambda each: (each.real_start, -each.real_end))
    nest(slices)
    for first in slices:
        for second in slices:
            assert not first.real_start < second.real_start < first.real_end < second.real_end


def test_half_a_nanosecond_rounds_one_way() -> None:
    assert to_ns(0.1 + 0.2 + 0.0005) == to_ns(0.3 + 0.0005) == 301

"""Intervals: slices of one depth never overlap, and what is taken out is out."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penaltylab.widgets.intervals import depths, without

TIMES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=40)


def of(*slices: tuple[float, float]) -> list[int]:
    start, dur = np.array(slices, float).reshape(-1, 2).T
    return depths(start, dur).tolist()


def test_slices_in_a_row_are_not_nested() -> None:
    assert of((0, 10), (10, 5), (20, 5)) == [0, 0, 0]


def test_what_begins_inside_another_lies_below_it() -> None:
    assert of((0, 10), (1, 8), (2, 3), (6, 2), (20, 1)) == [0, 1, 2, 2, 0]


def test_a_rounding_of_the_profiler_nests_nothing() -> None:
    assert of((0, 10), (9.9995, 5)) == [0, 0]


@given(TIMES)
def test_slices_of_one_depth_do_not_overlap(slices: list[tuple[int, int]]) -> None:
    ordered = sorted(slices, key=lambda one: (one[0], -one[1]))
    levels: dict[int, list[tuple[int, int]]] = {}
    for one, depth in zip(ordered, of(*ordered), strict=True):
        levels.setdefault(depth, []).append(one)
    for level in levels.values():
        assert all(begin + dur <= after for (begin, dur), (after, _) in pairwise(level))


Pairs = list[tuple[int, int]]


def left(kept: Pairs, taken: Pairs) -> Pairs:
    rows = (np.array(pairs, float).reshape(-1, 2) for pairs in (kept, taken))
    return [(int(begin), int(end)) for begin, end in without(*rows).tolist()]


def test_what_is_taken_out_leaves_the_rest() -> None:
    assert left([(0, 10), (20, 30)], [(2, 4), (8, 22), (25, 26)]) == [(0, 2), (4, 8), (22, 25), (26, 30)]
    assert left([(0, 10)], [(0, 10)]) == []
    assert left([(0, 10)], []) == [(0, 10)]
    assert left([], [(0, 10)]) == []


EDGES = st.lists(st.integers(0, 50), unique=True, max_size=20).map(sorted)


@given(EDGES, EDGES)
def test_each_moment_is_left_exactly_if_it_is_kept_and_not_taken(kept: list[int], taken: list[int]) -> None:
    pairs = [list(zip(edges[::2], edges[1::2], strict=False)) for edges in (kept, taken)]

    def inside(intervals: Pairs) -> set[int]:
        return {moment for begin, end in intervals for moment in range(begin, end)}

    assert inside(left(*pairs)) == inside(pairs[0]) - inside(pairs[1])

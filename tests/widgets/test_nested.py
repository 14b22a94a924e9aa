"""Nesting: slices of one depth never overlap."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penaltylab.widgets.nested import depths

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

"""The check of paired measurement by real runs reports how often it is right."""

import pytest

from penaltylab.bench.pairs import run

pytestmark = pytest.mark.slow


def test_a_repetition_tells_the_control_and_the_planted_slowdown_apart() -> None:
    same, slower = run(repetitions=1)
    assert same["median ratio"] < slower["median ratio"]
    assert same["repetitions"] == slower["repetitions"] == 1

"""Verdicts: what synthetic runs allow to be said, and what they do not."""

import numpy as np
import pytest

from penaltylab.study.stats import Comparison, compare_groups, compare_modelled, compare_pairs

PAIRS = 20


def runs(random: np.random.Generator, slowdown: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Step times of pairs of runs: 1.5 % noise, a drift that both runs of a pair share, one run in 20 disturbed."""
    drift = np.cumsum(random.normal(0, 0.01, PAIRS))
    noise = random.normal(0, 0.015, (2, PAIRS)) + (random.random((2, PAIRS)) < 0.05) * 0.5
    a, b = 2500 * (1 + drift + noise)
    return a, b * slowdown


def repeated(slowdown: float) -> list[Comparison]:
    random = np.random.default_rng(7)
    return [compare_pairs(*runs(random, slowdown), seed=seed) for seed in range(100)]


def test_the_interval_of_the_same_twice_covers_one() -> None:
    assert sum(found.low <= 1 <= found.high for found in repeated(1.0)) >= 90


def test_a_planted_slowdown_of_three_percent_is_found() -> None:
    assert [found.verdict for found in repeated(1.03)].count("slower") >= 90


def test_a_planted_speedup_is_not_called_a_slowdown() -> None:
    verdicts = [found.verdict for found in repeated(1 / 1.05)]
    assert verdicts.count("faster") >= 90
    assert "slower" not in verdicts


def test_the_ratio_is_the_median_over_pairs_and_not_the_ratio_of_medians() -> None:
    a = np.array([1.0, 2.0, 4.0] * 10)
    b = a * np.array([1.1, 1.2, 1.3] * 10)
    assert compare_pairs(a, b).ratio == pytest.approx(1.2)


def test_the_same_runs_give_the_same_interval() -> None:
    a, b = runs(np.random.default_rng(1))
    assert compare_pairs(a, b) == compare_pairs(a, b)


def test_outliers_are_counted_and_kept() -> None:
    a = np.linspace(1000, 1001, PAIRS)
    b = a * np.linspace(1.05, 1.051, PAIRS)
    b[3] *= 5
    found = compare_pairs(a, b)
    assert (found.outliers, found.pairs, found.verdict) == (1, PAIRS, "slower")


def test_a_difference_too_small_to_matter_is_none() -> None:
    a = np.linspace(1000, 1001, PAIRS)
    found = compare_pairs(a, a * np.linspace(1.004, 1.005, PAIRS))
    assert found.low > 1
    assert found.verdict == "no difference"


def test_noise_that_hides_what_matters_cannot_tell_and_says_what_to_do() -> None:
    random = np.random.default_rng(3)
    found = compare_pairs(1 + random.normal(0, 0.2, PAIRS), 1 + random.normal(0, 0.2, PAIRS))
    assert found.verdict == "cannot tell"
    assert "a quieter machine" in found.reason


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ([1.0] * 19, [1.1] * 19, "take at least 20"),
        ([1.0] * 20, [1.1] * 20, "no width"),
        ([1.0] * 20, [1.0] * 20, "no width"),
        ([1.0] * 19 + [np.nan], [1.1] * 20, "1 of its runs have no step time"),
        ([0.0] * 20, [1.0] * 20, "20 of its runs"),
        ([], [], "no runs of both"),
    ],
)
def test_what_cannot_be_judged(a: list[float], b: list[float], says: str) -> None:
    for compare in (compare_pairs, compare_groups):
        found = compare(a, b)
        assert found.verdict == "cannot tell"
        assert says in found.reason


def test_runs_taken_apart_are_compared_by_their_medians() -> None:
    random = np.random.default_rng(5)
    a, b = random.normal(1000, 5, 30), random.normal(1030, 5, 25)
    found = compare_groups(a, b)
    assert found.ratio == pytest.approx(np.median(b) / np.median(a))
    assert (found.verdict, found.pairs) == ("slower", 25)
    assert found.low < 1.03 < found.high


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [(100, 97, "faster"), (100, 103, "slower"), (100, 100.5, "no difference"), (np.nan, 1, "cannot tell")],
)
def test_modelled_runs_carry_no_interval(a: float, b: float, verdict: str) -> None:
    found = compare_modelled(a, b)
    assert found.verdict == verdict
    assert np.isnan([found.low, found.high]).all()


def test_a_comparison_reads_as_a_sentence() -> None:
    a = np.linspace(1000, 1001, PAIRS)
    assert compare_pairs(a, a * np.linspace(1.029, 1.031, PAIRS)).text().startswith("slower: +3.0 % [+")
    assert compare_modelled(100, 97).text() == "faster: -3.0 %"
    assert compare_pairs([], []).text() == "cannot tell"

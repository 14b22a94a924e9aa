"""Rounds: every arm once in each, in an order of its own, with a control that can fail."""

import random

import pytest

from penaltylab.study.measure import CONTROL, Measurement, measure, rounds


def test_each_round_runs_every_arm_and_the_control_once() -> None:
    found = rounds(["a", "b", "c"], pairs=30)
    assert len(found) == 30
    assert all(sorted(order) == sorted(["a", "b", "c", CONTROL]) for order in found)


def test_the_order_is_random_and_repeatable() -> None:
    found = rounds(["a", "b"], pairs=60)
    assert found == rounds(["a", "b"], pairs=60)
    assert found != rounds(["a", "b"], pairs=60, seed=1)
    assert len({tuple(order) for order in found}) == 6


def measured(slowdown: float, control: float = 1.0) -> Measurement:
    noise = random.Random(5)
    factor = {"a": 1.0, "b": slowdown, CONTROL: control}
    return measure(["a", "b"], lambda arm, pair: 2500 * factor[arm] * noise.gauss(1, 0.003))


def test_an_arm_is_judged_against_the_baseline_of_its_own_round() -> None:
    found = measured(1.03)
    assert found.against_baseline("b").verdict == "slower"
    assert found.control
    assert found.control.verdict == "no difference"
    assert found.doubt is None


def test_a_control_that_fails_puts_all_in_doubt() -> None:
    doubt = measured(1.03, control=1.02).doubt
    assert doubt
    assert "CONTROL FAILED" in doubt
    assert "slower" in doubt


def test_a_control_of_too_few_rounds_says_so() -> None:
    doubt = measure(["a", "b"], lambda arm, pair: 100 + pair, pairs=3).doubt
    assert doubt
    assert "CONTROL CANNOT TELL" in doubt
    assert "take at least 20" in doubt


def test_what_is_set_up_once_is_not_counted() -> None:
    seen: set[str] = set()

    def run(arm: str, pair: int) -> float:
        first = arm not in seen
        seen.add(arm)
        return 1e9 if first and arm != CONTROL else 100 + pair / 100

    assert max(measure(["a", "b"], run).times["b"].values()) < 101


def test_modelled_arms_run_once_without_a_control() -> None:
    ran: list[tuple[str, int]] = []

    def run(arm: str, pair: int) -> float:
        ran.append((arm, pair))
        return {"a": 100.0, "b": 90.0}[arm]

    found = measure(["a", "b"], run, modelled=True)
    assert ran == [("a", 0), ("b", 0)]
    assert (found.control, found.doubt) == (None, None)
    assert found.against_baseline("b").text() == "faster: -10.0 %"


@pytest.mark.parametrize("missing", [{}, {0: 1.0}])
def test_rounds_that_lack_one_run_are_no_pairs(missing: dict[int, float]) -> None:
    found = Measurement("a", times={"a": dict.fromkeys(range(20), 1.0), "b": missing})
    assert found.against_baseline("b").verdict == "cannot tell"

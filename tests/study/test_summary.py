"""Arms, controls and answers from rows: what was run is put together, and nothing is said that was not measured."""

import random
from typing import Any

import pytest

from penaltylab.params import Params
from penaltylab.study.answer import answer
from penaltylab.study.measure import CONTROL
from penaltylab.study.metrics import row
from penaltylab.study.records import Record, Row, SweepRecord
from penaltylab.study.summary import against, arms, baselines, controls, throttled

EMU = {"name": "SIMULATED h100", "simulated": True}
SWEEP = Record(
    penaltylab="0",
    started="",
    given={},
    sweep=SweepRecord(cells=2, runs=2, baseline="h2d=blocking", workers=1, engine="local"),
)
NOTEBOOKS = Record(penaltylab="0", started="", given={})


def one(cell: str, arm: str, step_us: float, pair: int | None = None, **changes: Any) -> Row:
    given = {name: changes.pop(name) for name in ("path", "h2d") if name in changes}
    params = Params.of(device="emu", host_time="modelled" if pair is None else "measured", **given)
    return row(cell, arm, params, EMU, pair=pair, step_us_median=step_us, **changes)


def measured(scale: float, control: float = 1.0) -> list[Row]:
    """Twenty rounds of a blocking and a pinned cell, with the control of the first."""
    noise = random.Random(3)
    return [
        one(f"h2d={h2d}", arm, 2500 * factor * noise.gauss(1, 0.002), pair, h2d=h2d)
        for pair in range(20)
        for h2d, arm, factor in (
            ("blocking", "run", 1.0),
            ("pinned_async", "run", scale),
            ("blocking", CONTROL, control),
        )
    ]


def test_the_runs_of_an_arm_are_put_together_and_controls_apart() -> None:
    found = arms(measured(0.9))
    assert [(arm.cell, arm.name, len(arm.rows)) for arm in found] == [
        ("h2d=blocking", "run", 20),
        ("h2d=pinned_async", "run", 20),
    ]
    assert against(found[0], found[1]).verdict == "faster"


def test_a_control_is_compared_with_the_runs_of_its_own_rounds() -> None:
    (control,) = controls(measured(0.9))
    assert (control.name, control.comparison.verdict, control.failed) == ("h2d=blocking", "no difference", False)
    (control,) = controls(measured(0.9, control=1.05))
    assert control.failed


def test_a_control_of_a_notebook_is_named_after_its_arm() -> None:
    rows = [
        one("book", f"normal 28397{extra}", 100 + pair, pair) for pair in range(20) for extra in ("", f": {CONTROL}")
    ]
    assert [control.name for control in controls(rows)] == ["book: normal 28397"]


def test_each_path_has_its_own_baseline() -> None:
    rows = [
        one("a", "run", 1, path="normal"),
        one("b", "run", 2, path="eagle"),
        one("c", "run", 3, path="eagle", h2d="blocking"),
    ]
    assert {path: arm.cell for path, arm in baselines(arms(rows)).items()} == {"normal": "a", "eagle": "b"}


def test_throttled_runs_are_counted_among_those_that_can_tell() -> None:
    rows = [one("a", "run", 1.0, gpu={"throttled": found}) for found in ([], ["power cap"])] + [one("a", "run", 1.0)]
    assert throttled(rows) == {"runs": 1, "of": 2, "reasons": ["power cap"]}


def test_the_answer_of_the_study_has_three_sentences_with_numbers() -> None:
    rows = [
        one("02", "normal 28397", 2767, cumulate_us_median=2455),
        one("02", "normal 28491", 2596, cumulate_us_median=46),
        one("02", "eagle 28491", 2960, cumulate_us_median=2091, wait_us_median={"seq_lens": 10.0}),
        one("02", "eagle 28500", 2737, cumulate_us_median=49, wait_us_median={"seq_lens": 1827.0}),
    ]
    normal, eagle, control = answer(NOTEBOOKS, rows)
    for said, numbers in ((normal, ("2,767", "2,596", "-6.2 %", "2,455", "46")), (eagle, ("2,960", "-7.5 %", "1,827"))):
        assert said.startswith("SIMULATED h100: ")
        assert all(number in said for number in numbers), said
    assert "no control that could fail" in control


def test_the_answer_of_a_sweep_counts_verdicts_and_names_the_extremes() -> None:
    _, verdicts, control = answer(SWEEP, measured(0.9))
    assert "1 faster" in verdicts
    assert "h2d=pinned_async (faster: -1" in verdicts
    assert "none found a difference" in control


def test_a_failed_control_is_the_answer() -> None:
    assert "THE CONTROL FAILED" in answer(SWEEP, measured(0.9, control=1.05))[-1]


@pytest.mark.parametrize("rows", [[], [one("a", "run", 1.0, status="failed")]])
def test_nothing_measured_is_no_answer(rows: list[Row]) -> None:
    assert answer(SWEEP, rows) == []

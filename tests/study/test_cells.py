"""A sweep becomes cells and cells become runs, and everything wrong with it is said before one starts."""

from typing import Any

import pytest

from penaltylab.errors import InputError
from penaltylab.params import Params, revisions
from penaltylab.study.cells import ARM, estimate_s, plan_cells, tasks
from penaltylab.study.measure import CONTROL

EMU = {"device": "emu"}
HUNDRED = ",".join(map(str, range(100, 200)))


def test_a_sweep_is_the_product_of_its_values() -> None:
    cells = plan_cells(EMU, {"h2d": "blocking,pinned_async", "batch_size": "1,8,64"})
    assert [cell.name for cell in cells][:2] == ["h2d=blocking,batch_size=1", "h2d=blocking,batch_size=8"]
    assert len({cell.params.hash() for cell in cells}) == len(cells) == 6
    assert cells[5].params == Params.of(device="emu", h2d="pinned_async", batch_size=64)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("revision", list(revisions())),
        ("barrier", ["coarse", "read_done", "none"]),
        ("overlap", [True, False]),
    ],
)
def test_all_stands_for_every_value_of_a_fixed_set(name: str, values: list[Any]) -> None:
    assert [getattr(cell.params, name) for cell in plan_cells(EMU, {name: "all"})] == values


def test_quick_is_short_and_yields_to_a_value() -> None:
    (cell,) = plan_cells(EMU | {"steps": "24"}, {"seed": "0"}, quick=True)
    assert (cell.params.steps, cell.params.warmup) == (24, 4)


@pytest.mark.parametrize(
    ("values", "sweeps", "says"),
    [
        ({}, {"stepz": "1,2"}, "unknown parameter 'stepz'"),
        ({}, {"steps": "16,many"}, "steps='many'"),
        ({}, {"seed": ""}, "a value missing"),
        ({}, {"seed": "1,,2"}, "a value missing"),
        ({}, {"seed": "1,1"}, "would run twice"),
        ({}, {"overlap": "true,1"}, "would run twice"),
        ({}, {"seed": "all"}, "seed has no fixed set"),
        ({}, {"nonsense": "all"}, "nonsense has no fixed set"),
        ({"seed": "1"}, {"seed": "1,2"}, "both set by -p and swept"),
        ({}, dict.fromkeys(["seed", "steps", "batch_size"], HUNDRED), "1,000,000 cells: give --yes"),
    ],
)
def test_what_cannot_run_is_refused(values: dict[str, str], sweeps: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        plan_cells(EMU | values, sweeps)


def test_many_cells_run_when_asked_for() -> None:
    sweeps = {"seed": ",".join(map(str, range(101))), "batch_size": HUNDRED}
    assert len(plan_cells(EMU, sweeps, yes=True)) == 10_100


def test_a_modelled_cell_is_one_run() -> None:
    found = tasks(plan_cells(EMU, {"seed": "1,2"}), emulated=True, pairs=20, setting="here")
    assert [(task.cell, task.arm, task.pair, task.setting) for task in found] == [
        ("seed=1", ARM, None, "here"),
        ("seed=2", ARM, None, "here"),
    ]


def test_measured_cells_run_in_rounds_with_the_first_as_control() -> None:
    cells = plan_cells(EMU | {"host_time": "measured"}, {"seed": "1,2"})
    found = tasks(cells, emulated=True, pairs=20)
    assert len(found) == 20 * 3
    assert [task.pair for task in found] == [pair for pair in range(20) for _ in range(3)]
    for pair in range(20):
        runs = sorted((task.cell, task.arm) for task in found if task.pair == pair)
        assert runs == [("seed=1", CONTROL), ("seed=1", ARM), ("seed=2", ARM)]
    assert len({task.key for task in found}) == len(found)


def test_auto_is_modelled_only_where_it_means_the_emulated_device() -> None:
    cells = plan_cells({"device": "auto"}, {"seed": "1"})
    assert len(tasks(cells, emulated=True, pairs=20)) == 1
    assert len(tasks(cells, emulated=False, pairs=20)) == 40


def test_each_cell_leaves_one_trace_if_asked() -> None:
    cells = plan_cells(EMU | {"host_time": "measured"}, {"seed": "1,2"})
    traces = [task.trace for task in tasks(cells, emulated=True, pairs=20, traces=True) if task.trace]
    assert sorted(traces) == sorted(f"{cell.params.hash()}.json.gz" for cell in cells)


def test_the_estimate_grows_with_the_work_and_shrinks_with_the_workers() -> None:
    few, many = (tasks(plan_cells(EMU, {"seed": text}), True, 20) for text in ("1,2", "1,2,3,4"))
    assert estimate_s(many, 1) == pytest.approx(2 * estimate_s(few, 1))
    assert estimate_s(many, 2) == pytest.approx(estimate_s(few, 1))

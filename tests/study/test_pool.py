"""The pool: every task settles once, rounds stay together, and a worker's death costs one retry."""

import threading
from collections import defaultdict

import pytest

from penaltylab.errors import InputError
from penaltylab.params import Params
from penaltylab.study.cells import Task, plan_cells, tasks
from penaltylab.study.metrics import row
from penaltylab.study.pool import run_tasks
from penaltylab.study.records import Row
from penaltylab.study.slots import WorkerDidNotStart, WorkerDied

MODELLED = tasks(plan_cells({"device": "emu"}, {"seed": ",".join(map(str, range(30)))}), True, 20)
MEASURED = tasks(plan_cells({"device": "emu", "host_time": "measured"}, {"seed": "1,2,3"}), True, 20)
DEVICE = {"name": "SIMULATED", "simulated": True}


class FakeSlot:
    """Notes what it is given, and dies where it is told to: how often for which cell."""

    def __init__(self, deaths: dict[str, int] | None = None, death: type[WorkerDied] = WorkerDied) -> None:
        self.deaths = defaultdict(int, deaths or {})
        self.death = death
        self.given: list[Task] = []
        self.closed = False

    def run(self, task: Task) -> Row:
        self.given.append(task)
        if self.deaths[task.cell]:
            self.deaths[task.cell] -= 1
            raise self.death("its worker ended (signal SIGKILL)")
        return row(task.cell, task.arm, Params(**task.params), DEVICE, pair=task.pair, step_us_median=1.0)

    def close(self) -> None:
        self.closed = True


def settled(given: list[Task], *slots: FakeSlot) -> list[Row]:
    rows: list[Row] = []
    run_tasks(given, slots, rows.append, lambda: None)
    assert all(slot.closed for slot in slots)
    return rows


def test_every_task_settles_once() -> None:
    rows = settled(MODELLED, FakeSlot(), FakeSlot(), FakeSlot())
    assert sorted(found.cell for found in rows) == sorted(task.cell for task in MODELLED)


def test_a_round_stays_on_one_slot_in_its_order() -> None:
    slots = [FakeSlot(), FakeSlot()]
    settled(MEASURED, *slots)
    assert sum(len(slot.given) for slot in slots) == len(MEASURED)
    for slot in slots:
        pairs = {task.pair for task in slot.given}
        assert slot.given == [task for task in MEASURED if task.pair in pairs]


def test_a_death_costs_one_retry_and_nobody_else_anything() -> None:
    slot = FakeSlot(deaths={"seed=3": 1})
    rows = settled(MODELLED, slot)
    assert {found.status for found in rows} == {"ok"}
    assert len(slot.given) == len(MODELLED) + 1


def test_a_second_death_is_that_runs_result() -> None:
    rows = settled(MODELLED, FakeSlot(deaths={"seed=3": 2}))
    failed = [found for found in rows if found.status != "ok"]
    assert [(found.cell, found.status) for found in failed] == [("seed=3", "failed")]
    assert failed[0].reason == "its worker ended (signal SIGKILL), 2 times"
    assert len(rows) == len(MODELLED)


def test_workers_that_do_not_start_end_the_run_in_one_line() -> None:
    with pytest.raises(InputError, match="its worker ended"):
        settled(MODELLED, FakeSlot(deaths={"seed=0": 2}, death=WorkerDidNotStart))


def test_told_to_stop_it_starts_nothing_more() -> None:
    rows: list[Row] = []
    enough = threading.Event()

    def settle(found: Row) -> None:
        rows.append(found)
        enough.set()

    slot = FakeSlot()
    run_tasks(MODELLED * 200, [slot], settle, lambda: "stop" if enough.is_set() else None)
    assert slot.closed
    assert len(rows) < len(MODELLED) * 200


def test_a_row_that_cannot_be_written_ends_the_run() -> None:
    def settle(found: Row) -> None:
        raise OSError(28, "No space left on device")

    slot = FakeSlot()
    with pytest.raises(OSError, match="No space left"):
        run_tasks(MODELLED, [slot], settle, lambda: None)
    assert slot.closed

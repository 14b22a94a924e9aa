"""What is there in the same setting is used again; whatever differs is measured anew, and nothing is thrown away."""

from pathlib import Path
from typing import Any

import msgspec

from penaltylab.params import Params
from penaltylab.study.cells import Task, plan_cells, tasks
from penaltylab.study.metrics import row
from penaltylab.study.records import Row, append_row, read_rows
from penaltylab.study.resume import resume

DEVICE = {"name": "SIMULATED", "simulated": True}
SETTINGS: dict[str, dict[str, Any]] = {"old": {"code": "1", "driver": "a"}, "new": {"code": "2", "driver": "a"}}


def planned(seeds: str, setting: str = "old", **values: str) -> list[Task]:
    return tasks(plan_cells({"device": "emu", **values}, {"seed": seeds}), True, 20, setting)


def leave(folder: Path, given: list[Task], **changes: Any) -> None:
    for task in given:
        measured = {"pair": task.pair, "setting": task.setting, "step_us_median": 1.0} | changes
        append_row(folder, row(task.cell, task.arm, Params(**task.params), DEVICE, **measured))


def superseded(folder: Path) -> list[Row]:
    path = folder / "superseded.jsonl"
    return [msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines()] if path.exists() else []


def test_what_is_there_is_not_run_again(tmp_path: Path) -> None:
    leave(tmp_path, planned("1,2"))
    found = resume(tmp_path, planned("1,2,3"), SETTINGS)
    assert [task.cell for task in found.tasks] == ["seed=3"]
    assert (found.reused, found.replaced) == (2, {})
    assert len(list(read_rows(tmp_path))) == 2


def test_another_setting_is_run_again_and_says_what_differs(tmp_path: Path) -> None:
    leave(tmp_path, planned("1,2"))
    found = resume(tmp_path, planned("1,2", setting="new"), SETTINGS)
    assert len(found.tasks) == 2
    assert found.replaced == {"another code": 2}
    assert list(read_rows(tmp_path)) == []
    assert len(superseded(tmp_path)) == 2


def test_a_setting_that_nobody_wrote_down_is_not_trusted(tmp_path: Path) -> None:
    leave(tmp_path, planned("1"), setting="lost")
    assert resume(tmp_path, planned("1"), SETTINGS).replaced == {"its setting is not known": 1}


def test_other_parameters_are_other_cells_and_stay(tmp_path: Path) -> None:
    leave(tmp_path, planned("1"))
    found = resume(tmp_path, planned("1", steps="32"), SETTINGS)
    assert (len(found.tasks), found.reused, found.replaced) == (1, 0, {})
    assert len(list(read_rows(tmp_path))) == 1


def test_what_had_failed_is_run_again(tmp_path: Path) -> None:
    leave(tmp_path, planned("1"), status="failed", reason="its worker ended")
    found = resume(tmp_path, planned("1"), SETTINGS)
    assert (len(found.tasks), found.replaced) == (1, {"it had failed": 1})


def test_a_line_cut_short_by_a_kill_goes_and_its_run_comes_again(tmp_path: Path) -> None:
    leave(tmp_path, planned("1,2"))
    path = tmp_path / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert [task.cell for task in resume(tmp_path, planned("1,2"), SETTINGS).tasks] == ["seed=2"]
    assert path.read_bytes().endswith(b"\n")


def test_a_round_that_was_not_finished_is_run_again_as_a_whole(tmp_path: Path) -> None:
    all_of_it = planned("1,2", host_time="measured")
    leave(tmp_path, all_of_it[:10])
    found = resume(tmp_path, all_of_it, SETTINGS)
    assert {task.pair for task in found.tasks} == set(range(3, 20))
    assert (found.reused, found.replaced) == (9, {"its round was not finished": 1})
    assert len(found.tasks) == len(all_of_it) - 9

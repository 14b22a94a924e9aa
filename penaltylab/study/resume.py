"""What an earlier run left in a folder: which of its rows can be used again, and why not the others."""

from collections import Counter
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Any

import msgspec

from penaltylab.errors import InputError
from penaltylab.study.cells import SweepCell, Task
from penaltylab.study.records import Record, Row, read_record, read_rows, write_atomically
from penaltylab.study.setting import differences


@dataclass
class Resumed:
    """`tasks` are still to be run; `reused` rows are not; `replaced` counts, by reason, those that were set aside."""

    tasks: list[Task]
    reused: int = 0
    replaced: Counter[str] = field(default_factory=Counter)


def resume(folder: Path, tasks: list[Task], settings: dict[str, dict[str, Any]]) -> Resumed:
    """Keep the rows of `results.jsonl` that are results of `tasks` in their setting, and those of other cells.

    Rows that `tasks` will measure anew move to `superseded.jsonl`. A round of paired runs counts as a whole: one run
    that is missing repeats them all, since only runs that were taken together make pairs. `settings` are those of
    `record.json`, by hash, to name what differs.
    """
    rows = list(read_rows(folder))
    wanted = {task.key: task for task in tasks}
    why = {_key(row): _why_not(row, wanted[_key(row)], settings) for row in rows if _key(row) in wanted}
    good = {key for key, reason in why.items() if reason is None}
    unfinished = {task.pair for task in tasks if task.pair is not None and task.key not in good}
    result = Resumed([task for task in tasks if task.key not in good or task.pair in unfinished])
    again = {task.key for task in result.tasks}
    kept, old = [], []
    for row in rows:
        if _key(row) in again:
            old.append(row)
            result.replaced[why[_key(row)] or "its round was not finished"] += 1
        else:
            kept.append(row)
            result.reused += _key(row) in wanted
    if old:
        with (folder / "superseded.jsonl").open("ab") as file:
            file.write(_lines(old))
    write_atomically(folder / "results.jsonl", _lines(kept))
    return result


def in_order(folder: Path, cells: list[SweepCell]) -> None:
    """Put the rows of `results.jsonl` in order by round and cell, in whatever order they came."""
    place = {cell.params.hash(): index for index, cell in enumerate(cells)}

    def key(row: Row) -> tuple[int, int, str]:
        return -1 if row.pair is None else row.pair, place.get(row.params_hash, len(place)), row.arm

    write_atomically(folder / "results.jsonl", _lines(sorted(read_rows(folder), key=key)))


def resume_notebooks(folder: Path, record: Record) -> set[int]:
    """The indices of the notebooks of `record` that are still to be run; those that an earlier run has done in the same
    setting take its entry. What the others had left is taken away.
    """
    old = read_record(folder)
    if old.sweep is not None:
        raise InputError(f"{folder}: holds a sweep without notebooks; notebooks need a folder of their own")
    done = {entry.fingerprint: entry for entry in old.notebooks if entry.status == "ok"}
    todo = {index for index, entry in enumerate(record.notebooks) if entry.fingerprint not in done}
    record.notebooks = [done.get(entry.fingerprint, entry) for entry in record.notebooks]
    again = {record.notebooks[index].cell for index in todo}
    write_atomically(folder / "results.jsonl", _lines([row for row in read_rows(folder) if row.cell not in again]))
    for cell in again:
        for left in [*(folder / "traces").glob(f"{escape(cell)}.*"), *(folder / "figures").glob(f"{escape(cell)}.*")]:
            left.unlink()
    return todo


def _key(row: Row) -> tuple[str, str, int | None]:
    return row.params_hash, row.arm, row.pair


def _why_not(row: Row, task: Task, settings: dict[str, dict[str, Any]]) -> str | None:
    if row.status != "ok":
        return f"it had {row.status}"
    if row.setting == task.setting:
        return None
    changed = differences(settings.get(row.setting, {}), settings[task.setting])
    return f"another {', '.join(changed)}" if row.setting in settings else "its setting is not known"


def _lines(rows: list[Row]) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)

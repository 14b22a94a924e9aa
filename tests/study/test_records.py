"""Records are whole or absent, and say `interrupted` until a run has ended."""

import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penaltylab.params import Params
from penaltylab.study.records import CellRecord, Record, Row, append_row, read_record, read_rows, write_atomically
from penaltylab.study.records import write_record as write

REQUIRED = [
    *("schema", "cell", "params", "params_hash", "device", "simulated", "host_time", "arm", "pair", "status"),
    *("step_us_median", "cumulate_us_median", "stall_us_median", "tokens_per_s", "fwd_occupancy", "hazards"),
]


def row(arm: str = "a", **measured: float) -> Row:
    params = Params.of()
    return Row(
        cell="c", arm=arm, params=params.asdict(), params_hash=params.hash(), device="d", simulated=True, **measured
    )


def record() -> Record:
    entry = CellRecord(cell="c", notebook="c.ipynb", arguments={}, params={}, params_hash="0")
    return Record(penaltylab="0", started="now", given={}, notebooks=[entry])


def test_a_line_of_results_has_every_key_and_null_for_what_was_not_measured(tmp_path: Path) -> None:
    append_row(tmp_path, row(stall_us_median=math.nan, step_us_median=2.5))
    (line,) = (tmp_path / "results.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert [key for key in REQUIRED if key not in found] == []
    assert (found["stall_us_median"], found["step_us_median"], found["schema"]) == (None, 2.5, 1)


def test_rows_come_back_as_they_went(tmp_path: Path) -> None:
    rows = [row("a"), row("b", tokens_per_s=1.0)]
    for one in rows:
        append_row(tmp_path, one)
    assert list(read_rows(tmp_path)) == rows


def test_rows_written_side_by_side_do_not_mix(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: append_row(tmp_path, row(str(index))), range(200)))
    assert sorted(int(one.arm) for one in read_rows(tmp_path)) == list(range(200))


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    append_row(tmp_path, row("whole"))
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(b'{"schema": 1, "cell": "c"')
    assert [one.arm for one in read_rows(tmp_path)] == ["whole"]


def test_nothing_measured_is_no_rows(tmp_path: Path) -> None:
    assert list(read_rows(tmp_path)) == []


def test_a_record_says_interrupted_until_told_otherwise(tmp_path: Path) -> None:
    write(tmp_path, record())
    found = read_record(tmp_path)
    assert (found.status, found.notebooks[0].status) == ("interrupted", "interrupted")
    assert found.reason


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    write_atomically(tmp_path / "a", b"old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "a", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"

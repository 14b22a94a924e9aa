"""What a run leaves behind: `record.json` (what ran and how it ended) and `results.jsonl` (what was measured)."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

SCHEMA = 1
Status = Literal["ok", "failed", "interrupted"]


class Row(Struct, kw_only=True, omit_defaults=False):
    """One line of `results.jsonl`: one measured run. Times are in us; null is "not measured here"."""

    schema: int = SCHEMA
    cell: str
    arm: str
    """What was run, among the things that the cell compares."""
    pair: int | None = None
    """The number of the pair of runs that this one belongs to, where runs are paired."""
    params: dict[str, Any]
    params_hash: str
    device: str
    simulated: bool
    host_time: str | None = None
    step_us_median: float | None = None
    step_us_p10: float | None = None
    step_us_p90: float | None = None
    step_us_p99: float | None = None
    prepare_us_median: float | None = None
    cumulate_us_median: float | None = None
    stall_us_median: float | None = None
    wait_us_median: dict[str, float] = field(default_factory=dict)
    tokens_per_s: float | None = None
    fwd_occupancy: float | None = None
    bubble_us_median: float | None = None
    copies_per_step: float | None = None
    syncs_per_step: float | None = None
    peak_memory_bytes: float | None = None
    hazards: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """What only this arm has, name to number."""
    gpu: dict[str, Any] = field(default_factory=dict)
    """On a GPU: clock and temperature before and after the run, and what throttled it."""
    setting: str = ""
    """The hash of what else could have changed the result, see `penaltylab.study.setting`."""
    status: Status = "ok"
    reason: str | None = None


class CellRecord(Struct, kw_only=True):
    """How one cell, a notebook with its values, ended."""

    cell: str
    notebook: str
    status: Status = "interrupted"
    reason: str | None = "not started"
    elapsed_s: float = 0.0
    arguments: dict[str, Any]
    params: dict[str, Any]
    params_hash: str
    executed: str | None = None


class Record(Struct, kw_only=True):
    """`record.json`. Its status is `interrupted` until the run ends otherwise, so that a killed run says so too."""

    schema: int = SCHEMA
    penaltylab: str
    status: Status = "interrupted"
    reason: str | None = "the run has not ended, or was killed"
    started: str
    finished: str | None = None
    given: dict[str, Any]
    notebooks: list[CellRecord]
    provenance: dict[str, Any] = field(default_factory=dict)


def write_record(folder: Path, record: Record) -> None:
    """Write `record.json`; a reader sees the old one or the new one, never half of one."""
    write_atomically(folder / "record.json", msgspec.json.format(msgspec.json.encode(record), indent=2))


def read_record(folder: Path) -> Record:
    """Read `record.json` of a run."""
    return msgspec.json.decode((folder / "record.json").read_bytes(), type=Record)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file as a whole, or leave what was there."""
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise


def append_row(folder: Path, row: Row) -> None:
    """Append a line to `results.jsonl` in one write, so that notebooks that run side by side do not mix theirs."""
    handle = os.open(folder / "results.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, msgspec.json.encode(row) + b"\n")
    finally:
        os.close(handle)


def read_rows(folder: Path) -> Iterator[Row]:
    """The lines of `results.jsonl`; none where nothing was measured. A last line cut short by a kill is left out."""
    path = folder / "results.jsonl"
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        if line.endswith(b"\n"):
            yield msgspec.json.decode(line, type=Row)


def now() -> str:
    """The time of day in UTC, as records have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

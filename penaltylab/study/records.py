"""What a run leaves behind: `record.json` (what ran and how it ended) and `results.jsonl` (what was measured)."""

import errno
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from penaltylab.errors import InputError

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
    fingerprint: str = ""
    """Equal for runs of the same notebook with the same values in the same setting."""
    executed: str | None = None


class SweepRecord(Struct, kw_only=True):
    """A sweep without a notebook: how many cells and runs there are, and where this run of it got them from."""

    cells: int
    runs: int
    baseline: str
    workers: int
    engine: str
    measured: int = 0
    reused: int = 0
    replaced: dict[str, int] = field(default_factory=dict)
    """How many earlier rows were measured again, by reason."""
    failed: int = 0


class Record(Struct, kw_only=True):
    """`record.json`. Its status is `interrupted` until the run ends otherwise, so that a killed run says so too."""

    schema: int = SCHEMA
    penaltylab: str
    status: Status = "interrupted"
    reason: str | None = "the run has not ended, or was killed"
    started: str
    finished: str | None = None
    given: dict[str, Any]
    notebooks: list[CellRecord] = field(default_factory=list)
    sweep: SweepRecord | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What else could have changed the results, by the hash that rows name; see `penaltylab.study.setting`."""


def write_record(folder: Path, record: Record) -> None:
    """Write `record.json`; a reader sees the old one or the new one, never half of one."""
    write_atomically(folder / "record.json", msgspec.json.format(msgspec.json.encode(record), indent=2))


def read_record(folder: Path) -> Record:
    """Read `record.json` of a run. Raises InputError where there is none, or one that this version cannot read."""
    path = folder / "record.json"
    try:
        content = path.read_bytes()
        _check_schema(path, msgspec.json.decode(content, type=_Versioned).schema)
        return msgspec.json.decode(content, type=Record)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; is {folder} the folder of a run?") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: not a record of a run ({error})") from None


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
    line = msgspec.json.encode(row) + b"\n"
    handle = os.open(folder / "results.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        written = os.write(handle, line)
        if written < len(line):
            os.ftruncate(handle, os.fstat(handle).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(handle)


def read_rows(folder: Path) -> Iterator[Row]:
    """The lines of `results.jsonl`; none where nothing was measured. A last line cut short by a kill is left out.

    Raises InputError for any other line that is no result, or is one of another version.
    """
    path = folder / "results.jsonl"
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True) if path.exists() else [], 1):
        if not line.endswith(b"\n"):
            continue
        try:
            _check_schema(path, msgspec.json.decode(line, type=_Versioned).schema)
            yield msgspec.json.decode(line, type=Row)
        except msgspec.DecodeError as error:
            raise InputError(f"{path}, line {number}: not a result ({error})") from None


class _Versioned(Struct):
    schema: int


def _check_schema(path: Path, schema: int) -> None:
    if schema != SCHEMA:
        raise InputError(f"{path}: schema {schema}, written by another penaltylab; this one reads schema {SCHEMA}")


def now() -> str:
    """The time of day in UTC, as records have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

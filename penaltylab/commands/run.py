"""`penaltylab run`: plan, run, record, report."""

import contextlib
import errno
import shutil
import time
from pathlib import Path

from penaltylab import __version__
from penaltylab.errors import InputError
from penaltylab.study.notebooks import find
from penaltylab.study.records import CellRecord, Record, Status, now, write_record
from penaltylab.study.sweep import Cell, assignments, plan

FREE_BYTES = 32 << 20
RESERVED_BYTES = 256 << 10


def run_study(
    notebooks: list[str],
    device: str | None,
    out: str | None,
    values: list[str],
    sweeps: list[str],
    workers: int,
    deadline_s: float,
    quick: bool,
) -> int:
    """Run notebooks into the folder `out`. Returns 0 when all ended well, else 1.

    Raises InputError for everything that can be known to be wrong before one starts, and for a full disk.
    """
    given = assignments(values)
    if device is not None:
        if "device" in given:
            raise InputError("the device is given twice: by --device and by -p")
        given["device"] = device
    cells = plan(find(notebooks), given, assignments(sweeps), quick=quick)
    if workers < 1 or not 0 < deadline_s < float("inf"):
        raise InputError(f"--workers {workers} --deadline {deadline_s:g}: both must be positive")
    _check_devices(cells)
    folder = _prepare(Path(out or time.strftime("runs/%Y%m%d-%H%M%S")))
    options = {"values": given, "sweeps": assignments(sweeps), "workers": workers, "quick": quick}
    try:
        record = _run(cells, folder, workers, deadline_s, options)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    if record.status != "ok" and any(_disk_full(entry.reason) for entry in record.notebooks):
        raise InputError(f"{folder}: no space left on the disk; what was written before is there")
    print(f"{record.status}: {folder / 'report.html'}")
    return 0 if record.status == "ok" else 1


def _check_devices(cells: list[Cell]) -> None:
    if any(cell.params.device == "cuda" for cell in cells):
        from penaltylab import devices

        devices.resolve("cuda")


def _prepare(folder: Path) -> Path:
    """The empty folder of a run, with the places that it needs. Raises InputError where it cannot be had."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder}: not empty; give --out a new folder")
        for name in ("notebooks", "traces", "figures"):
            (folder / name).mkdir()
    except OSError as error:
        raise _cannot_write(folder, error) from error
    if shutil.disk_usage(folder).free < FREE_BYTES:
        raise InputError(f"{folder}: less than {FREE_BYTES >> 20} MiB free on its disk")
    return folder.resolve()


def _run(cells: list[Cell], folder: Path, workers: int, deadline_s: float, given: dict[str, object]) -> Record:
    from penaltylab.study.progress import Progress
    from penaltylab.study.provenance import provenance
    from penaltylab.study.report import write_report
    from penaltylab.study.runner import Runner

    entries = [
        CellRecord(
            cell=cell.name,
            notebook=cell.notebook.path.name,
            arguments=cell.arguments,
            params=cell.params.asdict(),
            params_hash=cell.params.hash(),
        )
        for cell in cells
    ]
    record = Record(penaltylab=__version__, started=now(), given=given, notebooks=entries, provenance=provenance())
    write_record(folder, record)
    reserve = folder / ".reserve"  # so that a disk that has filled up has room for the record
    reserve.write_bytes(bytes(RESERVED_BYTES))

    def save_progress() -> None:
        with contextlib.suppress(OSError):  # said at the end, when it is tried again
            write_record(folder, record)

    with Progress(len(cells)) as progress:
        runner = Runner(folder, workers, deadline_s, progress)
        runner.run(cells, entries, save_progress)
    record.status, record.reason = _verdict(entries, runner.interrupted)
    record.finished = now()
    reserve.unlink()
    write_record(folder, record)
    write_report(folder, record)
    return record


def _verdict(entries: list[CellRecord], interrupted: str | None) -> tuple[Status, str | None]:
    if interrupted:
        return "interrupted", interrupted
    failed = [entry for entry in entries if entry.status != "ok"]
    if failed:
        return "failed", f"{len(failed)} of {len(entries)}: " + "; ".join(f"{e.cell}: {e.reason}" for e in failed)
    return "ok", None


def _disk_full(reason: str | None) -> bool:
    return f"[Errno {errno.ENOSPC}]" in (reason or "")


def _cannot_write(folder: Path, error: OSError) -> InputError:
    return InputError(f"{folder}: cannot be written ({error.strerror or error}); give --out another folder")

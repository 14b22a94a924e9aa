"""`penaltylab run`: plan, run, record, report."""

import contextlib
import errno
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penaltylab import __version__
from penaltylab.commands.sweep import run_sweep
from penaltylab.errors import InputError
from penaltylab.study.folder import reserve, run_folder
from penaltylab.study.notebooks import find
from penaltylab.study.provenance import gpus, provenance
from penaltylab.study.records import CellRecord, Record, Status, now, write_record
from penaltylab.study.resume import resume_notebooks
from penaltylab.study.setting import setting
from penaltylab.study.slots import has_gpu
from penaltylab.study.sweep import Cell, assignments, plan
from penaltylab.study.torch_build import answer, ask


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line gave."""

    notebooks: list[str]
    device: str | None
    out: str | None
    values: list[str]
    sweep: list[str]
    workers: int | None
    deadline: float
    quick: bool
    engine: str
    resume: bool
    pairs: int
    traces: bool
    yes: bool
    with_names: bool


def run_study(options: Options) -> int:
    """Run notebooks, or, given a sweep and no notebook, the cells of the sweep. Returns 0 when all ended well, else 1.

    Raises InputError for everything that can be known to be wrong before one starts, and for a full disk.
    """
    given = assignments(options.values)
    if options.device is not None:
        if "device" in given:
            raise InputError("the device is given twice: by --device and by -p")
        given["device"] = options.device
    for name, value in {"workers": options.workers or 1, "deadline": options.deadline, "pairs": options.pairs}.items():
        if not 0 < value < float("inf"):
            raise InputError(f"--{name} {value:g}: must be positive")
    if options.workers == 0:
        raise InputError("--workers 0: must be positive")
    if options.resume and not options.out:
        raise InputError("--resume: name the folder to go on with by --out DIR")
    out = Path(options.out or time.strftime("runs/%Y%m%d-%H%M%S"))
    if options.sweep and not options.notebooks:
        return run_sweep(options, given, out)
    if options.engine != "local":
        raise InputError(f"--engine {options.engine}: takes a sweep without notebooks; notebooks run on this machine")
    return _run_notebooks(options, given, out)


def _run_notebooks(options: Options, given: dict[str, str], out: Path) -> int:
    sweeps = assignments(options.sweep)
    cells = plan(find(options.notebooks), given, sweeps, quick=options.quick)
    _check_devices(cells)
    with run_folder(out, options.resume) as folder:
        record = _run(cells, folder, options, {"values": given, "sweeps": sweeps, "quick": options.quick})
        if record.status != "ok" and any(_disk_full(entry.reason) for entry in record.notebooks):
            raise OSError(errno.ENOSPC, "")
    print(f"{record.status}: {folder / 'report.html'}")
    return 0 if record.status == "ok" else 1


def _check_devices(cells: list[Cell]) -> None:
    if any(cell.params.device == "cuda" for cell in cells):
        from penaltylab import devices

        devices.resolve("cuda")


def _run(cells: list[Cell], folder: Path, options: Options, given: dict[str, object]) -> Record:
    from penaltylab.study.progress import Progress
    from penaltylab.study.report import write_report
    from penaltylab.study.runner import Runner

    here = setting(_device_names(cells))
    record = Record(penaltylab=__version__, started=now(), given=given, provenance=provenance(options.with_names))
    record.settings = {here.hash(): msgspec.to_builtins(here)}
    record.notebooks = [_entry(cell, here.hash()) for cell in cells]
    todo = resume_notebooks(folder, record) if options.resume else set(range(len(cells)))
    write_record(folder, record)
    build = ask()

    def save_progress() -> None:
        with contextlib.suppress(OSError):  # said at the end, when it is tried again
            write_record(folder, record)

    with reserve(folder), Progress(len(todo)) as progress:
        runner = Runner(folder, options.workers or _workers(cells), options.deadline, progress)
        left = sorted(todo)
        runner.run([cells[index] for index in left], [record.notebooks[index] for index in left], save_progress)
    record.provenance["torch"] = answer(build)
    record.status, record.reason = _verdict(record.notebooks, runner.interrupted)
    record.finished = now()
    write_record(folder, record)
    write_report(folder, record)
    return record


def _workers(cells: list[Cell]) -> int:
    """Notebooks at a time: what shares a real clock disturbs each other, what counts modelled time does not."""
    modelled = _device_names(cells) == "emu" and all(cell.params.host_time == "modelled" for cell in cells)
    return min(os.cpu_count() or 1, 4) if modelled else 1


def _device_names(cells: list[Cell]) -> str:
    """What the cells run on, as far as it can be told without importing torch where there is no GPU."""
    if not has_gpu() or all(cell.params.device == "emu" for cell in cells):
        return "emu"
    return ", ".join(sorted({gpu["name"] for gpu in gpus()})) or "emu"


def _entry(cell: Cell, setting_hash: str) -> CellRecord:
    source = cell.notebook.path.read_bytes()
    identity = msgspec.json.encode([cell.arguments, cell.params.hash(), setting_hash], order="sorted")
    return CellRecord(
        cell=cell.name,
        notebook=cell.notebook.path.name,
        arguments=cell.arguments,
        params=cell.params.asdict(),
        params_hash=cell.params.hash(),
        fingerprint=hashlib.sha256(identity + source).hexdigest()[:16],
    )


def _verdict(entries: list[CellRecord], interrupted: str | None) -> tuple[Status, str | None]:
    if interrupted:
        return "interrupted", interrupted
    failed = [entry for entry in entries if entry.status != "ok"]
    if failed:
        return "failed", f"{len(failed)} of {len(entries)}: " + "; ".join(f"{e.cell}: {e.reason}" for e in failed)
    return "ok", None


def _disk_full(reason: str | None) -> bool:
    return f"[Errno {errno.ENOSPC}]" in (reason or "")

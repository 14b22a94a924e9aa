"""`penaltylab run --sweep ...` without a notebook: plan, measure in a pool, record, report."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from penaltylab import __version__
from penaltylab.errors import InputError
from penaltylab.study.cells import SweepCell, Task, estimate_s, plan_cells, tasks
from penaltylab.study.folder import reserve, run_folder
from penaltylab.study.records import (
    Record,
    Row,
    Status,
    SweepRecord,
    append_row,
    now,
    read_record,
    read_rows,
    write_record,
)
from penaltylab.study.resume import in_order, resume
from penaltylab.study.setting import Setting, setting
from penaltylab.study.slots import has_gpu, local_slots
from penaltylab.study.sweep import assignments
from penaltylab.study.torch_build import answer, ask

if TYPE_CHECKING:
    from penaltylab.commands.run import Options

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_sweep(options: "Options", given: dict[str, str], out: Path) -> int:
    """Measure every cell of a sweep into the folder `out`. Returns 0 when all ended well, else 1.

    Raises InputError for everything that can be known to be wrong before one starts, and for a full disk.
    """
    sweeps = assignments(options.sweep)
    cells = plan_cells(given, sweeps, quick=options.quick, yes=options.yes)
    build = answer(ask()) if has_gpu() and options.engine == "local" else None
    gpus: list[str] = build["gpus"] if build else []
    if any(cell.params.device == "cuda" for cell in cells) and not gpus and options.engine == "local":
        raise InputError("device cuda: this machine's torch sees no GPU; use --device emu, or see `penaltylab doctor`")
    with run_folder(out, options.resume) as folder:
        slots: list[Any] = []
        if options.engine == "ray":
            from penaltylab.study.cluster import ray_slots

            slots = [*ray_slots(folder, options.workers, options.deadline)]
            gpus = slots[0].torch["gpus"]
        names = "emu" if not gpus or all(cell.params.device == "emu" for cell in cells) else ", ".join(sorted({*gpus}))
        here = setting(names)
        planned = tasks(cells, not gpus, options.pairs, here.hash(), options.traces)
        if not slots:
            workers = options.workers or _workers(planned, names, gpus)
            slots = [*local_slots(folder, _visible(gpus) if names != "emu" else [], workers, options.deadline)]
        summary = SweepRecord(
            cells=len(cells), runs=len(planned), baseline=cells[0].name, workers=len(slots), engine=options.engine
        )
        record = _record(folder, options, {"values": given, "sweeps": sweeps}, here, summary)
        _measure(folder, record, summary, planned, slots, cells)
    print(f"{record.status}: {folder / 'report.html'}")
    return 0 if record.status == "ok" else 1


def _workers(planned: list[Task], device: str, gpus: list[str]) -> int:
    """A slot a GPU. Runs in modelled time do not disturb one another and take a slot a core; any others take one."""
    if device != "emu":
        return len(gpus)
    return len(os.sched_getaffinity(0)) if all(task.pair is None for task in planned) else 1


def _visible(gpus: list[str]) -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(index) for index in range(len(gpus))]


def _record(folder: Path, options: "Options", given: dict[str, Any], here: Setting, summary: SweepRecord) -> Record:
    from penaltylab.study.provenance import provenance

    old = read_record(folder) if options.resume and (folder / "record.json").exists() else None
    if old is not None and old.sweep is None:
        raise InputError(f"{folder}: holds a run of notebooks; a sweep without one needs a folder of its own")
    record = Record(
        penaltylab=__version__, started=now(), given=given, sweep=summary, provenance=provenance(options.with_names)
    )
    record.settings = (old.settings if old else {}) | {here.hash(): msgspec.to_builtins(here)}
    return record


def _measure(
    folder: Path, record: Record, summary: SweepRecord, planned: list[Task], slots: list[Any], cells: list[SweepCell]
) -> None:
    from penaltylab.study.pool import run_tasks
    from penaltylab.study.progress import SweepProgress
    from penaltylab.study.report import write_report
    from penaltylab.study.sweep_figure import draw_history

    found = resume(folder, planned, record.settings)
    summary.reused, summary.replaced = found.reused, dict(found.replaced)
    write_record(folder, record)
    trouble: OSError | None = None
    with reserve(folder), SweepProgress(len(found.tasks)) as progress, _stopped() as stopped:
        progress.say(_announcement(len(cells), found.tasks, len(slots), summary))

        def settle(row: Row) -> None:
            append_row(folder, row)
            summary.measured += 1
            summary.failed += row.status != "ok"
            progress.advance(row.cell, row.status, row.reason)

        try:
            run_tasks(found.tasks, slots, settle, stopped)
        except OSError as error:
            trouble = error
    record.provenance["torch"] = next((slot.torch for slot in slots if slot.torch), None)
    record.status, record.reason = ("failed", str(trouble)) if trouble else _verdict(summary, stopped())
    record.finished = now()
    log = folder / "workers.log"
    with contextlib.suppress(FileNotFoundError):
        if not log.stat().st_size:
            log.unlink()
    write_record(folder, record)
    if trouble:
        raise trouble
    in_order(folder, cells)
    draw_history(folder, list(read_rows(folder)), record.given["sweeps"])
    write_report(folder, record)


def _announcement(cells: int, left: list[Task], workers: int, summary: SweepRecord) -> str:
    seconds = estimate_s(left, workers)
    about = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    reused = f", {summary.reused:,} already there" if summary.reused else ""
    again = "".join(f", {count:,} again ({reason})" for reason, count in summary.replaced.items())
    return f"{cells:,} cells, {len(left):,} runs to do, about {about} on {workers} workers{reused}{again}"


def _verdict(summary: SweepRecord, interrupted: str | None) -> tuple[Status, str | None]:
    if interrupted:
        return "interrupted", interrupted
    if summary.failed:
        return "failed", f"{summary.failed:,} of {summary.runs:,} runs failed; results.jsonl has their reasons"
    return "ok", None


@contextmanager
def _stopped() -> Iterator[Callable[[], str | None]]:
    """Yields a function that says by which signal this process was told to stop, if it was."""
    reason: list[str] = []

    def stop(number: int, frame: FrameType | None) -> None:
        reason.append(f"stopped by {signal.Signals(number).name}")

    previous = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield lambda: reason[0] if reason else None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

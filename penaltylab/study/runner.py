"""Run the cells of a study: a pool of notebooks, the driver's own progress, and an orderly end in every case."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from penaltylab.study.process import Event, Outcome, run_notebook
from penaltylab.study.progress import Progress
from penaltylab.study.records import CellRecord
from penaltylab.study.sweep import Cell

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Runner:
    """Runs cells into the folder `out`; `interrupted` says by which signal it was stopped, if it was."""

    def __init__(self, out: Path, workers: int, deadline_s: float, progress: Progress) -> None:
        self._out = out
        self._workers = workers
        self._deadline_s = deadline_s
        self._progress = progress
        self.interrupted: str | None = None

    def run(self, cells: list[Cell], records: list[CellRecord], ended: Callable[[], None]) -> None:
        """Run every cell and fill in its record. `ended()` is called after each, so that the caller can save them.

        A signal (Ctrl-C, SIGTERM, SIGHUP) ends the running notebooks, keeps what is done, and starts no more.
        """
        with self._signals(), ThreadPoolExecutor(self._workers) as pool:
            running: dict[Future[Outcome], CellRecord] = {}
            for cell, record in zip(cells, records, strict=True):
                running[pool.submit(self._run_cell, cell)] = record
            while running:
                done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in done:
                    self._settle(running.pop(future), future.result())
                    ended()

    def _run_cell(self, cell: Cell) -> Outcome:
        if self.interrupted:
            return Outcome("interrupted", "not started", 0.0)
        job = {
            "notebook": str(cell.notebook.path),
            "executed": str(self._executed(cell.name)),
            "arguments": cell.arguments | _place(cell, self._out),
        }
        self._progress.start(cell.name)

        def watch(event: Event) -> None:
            if "cell" in event:
                self._progress.advance(cell.name, event["cell"], event["of"])

        log = self._executed(cell.name).with_suffix(".log")
        outcome = run_notebook(job, self._deadline_s, lambda: self.interrupted, watch, log)
        if not log.stat().st_size:
            log.unlink()
        return outcome

    def _executed(self, cell: str) -> Path:
        return self._out / "notebooks" / f"{cell}.ipynb"

    def _settle(self, record: CellRecord, outcome: Outcome) -> None:
        record.status, record.reason, record.elapsed_s = outcome.status, outcome.reason, outcome.elapsed_s
        if self._executed(record.cell).exists():
            record.executed = f"notebooks/{record.cell}.ipynb"
        self._progress.finish(record.cell, outcome.status, outcome.reason, outcome.elapsed_s)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(number: int, frame: FrameType | None) -> None:
            self.interrupted = self.interrupted or f"stopped by {signal.Signals(number).name}"

        previous = {number: signal.signal(number, stop) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _place(cell: Cell, out: Path) -> dict[str, Any]:
    """The reserved parameters: where a notebook leaves its results and under which name, for those that take them."""
    reserved = {"out_dir": str(out), "cell": cell.name}
    return {name: value for name, value in reserved.items() if name in cell.notebook.options}

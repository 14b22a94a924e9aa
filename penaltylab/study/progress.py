"""The driver's progress: bars on a terminal, a line a notebook elsewhere."""

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from penaltylab.study.records import Status


class Progress:
    """Shows which notebooks run, how far each is, and how each ended, on standard error."""

    def __init__(self, total: int) -> None:
        self._console = Console(file=sys.stderr, highlight=False)
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._all = self._bars.add_task("all notebooks", total=total)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def start(self, cell: str) -> None:
        """A notebook starts."""
        self._tasks[cell] = self._bars.add_task(f"  {cell}", total=None)

    def advance(self, cell: str, done: int, total: int) -> None:
        """`done` of its `total` cells have run."""
        self._bars.update(self._tasks[cell], completed=done, total=total)

    def finish(self, cell: str, status: Status, reason: str | None, elapsed_s: float) -> None:
        """A notebook has ended, or will not start."""
        if cell in self._tasks:
            self._bars.remove_task(self._tasks.pop(cell))
        self._bars.advance(self._all)
        self._console.print(
            f"{status:<11} {elapsed_s:6.1f} s  {cell}{f': {reason}' if reason else ''}", markup=False, soft_wrap=True
        )


class SweepProgress:
    """Shows how many runs of a sweep are done, how many failed and how long the rest may take, on standard error."""

    EVERY_S = 10.0

    def __init__(self, total: int) -> None:
        self._console = Console(file=sys.stderr, highlight=False)
        self._bar = Bars(
            TextColumn("runs"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left{task.description}", markup=False),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=total)
        self._total, self._done, self._failed = total, 0, 0
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def advance(self, cell: str, status: Status, reason: str | None) -> None:
        """A run of `cell` has ended."""
        self._done += 1
        if status != "ok":
            self._failed += 1
            self.say(f"{status}: {cell}: {reason}")
        self._bar.update(self._task, completed=self._done, description=self._failures())
        if not self._console.is_terminal and time.monotonic() - self._said > self.EVERY_S:
            self.say(f"{self._done:,} of {self._total:,} runs{self._failures()}")

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._said = time.monotonic()
        self._console.print(text, markup=False, soft_wrap=True)

    def _failures(self) -> str:
        return f", {self._failed:,} failed" if self._failed else ""

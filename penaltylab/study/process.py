"""One notebook in processes of its own: started, watched, and ended whole, its kernel included."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from penaltylab.study.records import Status

PACKAGE_PARENT = Path(__file__).resolve().parents[2]
GRACE_S = 5.0
TICK_S = 0.1

Event = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a notebook ended, decided from what happened to it."""

    status: Status
    reason: str | None
    elapsed_s: float


def run_notebook(
    job: Event, deadline_s: float, stop: Callable[[], str | None], watch: Callable[[Event], None], log: Path
) -> Outcome:
    """Execute `job` (see `penaltylab.study.execute`) in a child process, and return how it ended.

    `stop()` is asked ten times a second; a text that it returns is the reason to interrupt. `watch` gets every event.
    What the child and the kernel print goes to `log`.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penaltylab-") as scratch, log.open("wb") as stderr:
        child = _Child(job, _environment(scratch), stderr)
        try:
            while (event := child.next_event()) is None or "status" not in event:
                if event:
                    watch(event)
                if child.ended:
                    return Outcome(
                        "failed", f"the process of the notebook ended by itself ({child.code()})", _since(start)
                    )
                if reason := stop():
                    return Outcome("interrupted", reason, _since(start))
                if _since(start) > deadline_s:
                    return Outcome("failed", f"not done within its deadline of {deadline_s:g} s", _since(start))
            return Outcome(event["status"], event["reason"], _since(start))
        finally:
            child.end()


def _since(start: float) -> float:
    return round(time.monotonic() - start, 3)


def _environment(scratch: str) -> dict[str, str]:
    """The kernel's environment: this package, this interpreter's kernel, and nobody's start-up files or history.

    One thread an operator, unless the caller has set a number: the tensors are small, and threads that wait for one
    another cost more than they bring as soon as the machine does anything else.
    """
    inherited = {"OMP_NUM_THREADS": "1"} | {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    search = os.pathsep.join(filter(None, [str(PACKAGE_PARENT), inherited.get("PYTHONPATH")]))
    own = {"JUPYTER_PREFER_ENV_PATH": "1", "JUPYTER_RUNTIME_DIR": scratch, "IPYTHONDIR": scratch, "PYTHONPATH": search}
    return inherited | own


class _Child:
    """The executing process and the kernel below it, each the leader of a process group."""

    def __init__(self, job: Event, environment: dict[str, str], stderr: IO[bytes]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penaltylab.study.execute"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
        self._kernel: int | None = None
        self._buffer = b""
        self.ended = False
        assert self._process.stdin
        assert self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._stdout, selectors.EVENT_READ)
        with contextlib.suppress(BrokenPipeError):  # it died at once; `ended` will tell
            self._stdin.write(json.dumps(job).encode() + b"\n")
            self._stdin.flush()

    def next_event(self) -> Event | None:
        """The next event, or None when there is none within a tick."""
        if b"\n" not in self._buffer and self._ready.select(TICK_S):
            chunk = os.read(self._stdout.fileno(), 65536)
            self.ended = not chunk
            self._buffer += chunk
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        event: Event = json.loads(line)
        self._kernel = event.get("kernel", self._kernel)
        return event

    def code(self) -> str:
        """How the process ended, in words."""
        code = self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def end(self) -> None:
        """End the kernel; the executing process then saves what there is and follows, or is ended after a grace."""
        self._kill(self._kernel)
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._kill(self._process.pid)
            self._process.wait()
        self._ready.close()
        self._stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    @staticmethod
    def _kill(group: int | None) -> None:
        if group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

"""Slots: where runs of a sweep take place. One worker process each, on a GPU of its own where there are any."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Protocol

import msgspec

from penaltylab.study.cells import Task
from penaltylab.study.process import PACKAGE_PARENT
from penaltylab.study.records import Row


class WorkerDied(Exception):
    """The worker of a slot is gone, and with it the run it was at; the text says how it ended."""


class WorkerDidNotStart(WorkerDied):
    """The worker ended before it could take a run: something is wrong with it rather than with the run."""


class Slot(Protocol):
    """One place where runs take place, one after another."""

    def run(self, task: Task) -> Row:
        """Measure `task`. Raises WorkerDied; the next call starts another worker."""

    def close(self) -> None:
        """End the worker, whatever it is doing. May be called from another thread."""


class LocalSlot:
    """A worker process on this machine, started with the first run. `gpu` names the only GPU that it sees."""

    def __init__(self, folder: Path, gpu: str | None, deadline_s: float) -> None:
        self._folder = folder
        self._gpu = gpu
        self._deadline_s = deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self.torch: dict[str, Any] | None = None

    def run(self, task: Task) -> Row:
        """See Slot. A run that takes longer than the deadline dies with its worker."""
        process = self._process = self._process or self._start()
        timer = threading.Timer(self._deadline_s, process.kill)
        timer.start()
        line = self._ask(process, task)
        late = timer.finished.is_set()
        timer.cancel()
        if not line.endswith(b"\n"):
            self._process = None
            raise WorkerDied(
                f"not done within {self._deadline_s:g} s" if late else f"its worker ended ({_code(process)})"
            )
        return msgspec.json.decode(line, type=Row)

    def close(self) -> None:
        """See Slot."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _ask(self, process: "subprocess.Popen[bytes]", task: Task) -> bytes:
        assert process.stdin
        assert process.stdout
        if self.torch is None:
            self.torch = self._hello(process)
        try:
            process.stdin.write(msgspec.json.encode(task) + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return b""
        return process.stdout.readline()

    def _hello(self, process: "subprocess.Popen[bytes]") -> dict[str, Any]:
        assert process.stdout
        line = process.stdout.readline()
        if not line.endswith(b"\n"):
            self._process = None
            said = (self._folder / "workers.log").read_text(errors="replace").split("\n")
            error = next((text for text in reversed(said) if "Error: " in text), "see workers.log")
            raise WorkerDidNotStart(f"a worker ended as it started ({_code(process)}; {error})")
        found: dict[str, Any] = msgspec.json.decode(line)
        return found

    def _start(self) -> "subprocess.Popen[bytes]":
        self.torch = None
        search = os.pathsep.join(filter(None, [str(PACKAGE_PARENT), os.environ.get("PYTHONPATH")]))
        environment = {"OMP_NUM_THREADS": "1"} | os.environ | {"PYTHONPATH": search}
        if self._gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpu
        with (self._folder / "workers.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "penaltylab.study.worker", str(self._folder / "traces")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )


def _code(process: "subprocess.Popen[bytes]") -> str:
    code = process.wait()
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def has_gpu() -> bool:
    """Whether this machine may have a GPU: its driver has left a device file. Costs nothing, unlike asking torch."""
    if os.environ.get("PENALTYLAB_EMU") == "1":
        return False
    return any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))


def local_slots(folder: Path, gpus: list[str], workers: int, deadline_s: float) -> list[LocalSlot]:
    """`workers` slots, which take the GPUs in turn; without a GPU they share the machine's CPUs."""
    return [LocalSlot(folder, gpus[i % len(gpus)] if gpus else None, deadline_s) for i in range(workers)]

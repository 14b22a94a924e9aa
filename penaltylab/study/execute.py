"""The process that executes one notebook, and tells its parent how it goes.

It reads a job (one JSON line) from standard input and writes an event a line to standard output:
`{"kernel": PID}` at once, `{"cell": I, "of": N}` for every cell, at the end `{"status": ..., "reason": ...}`.
When standard input ends, the parent is gone, and so is the kernel a moment later.
"""

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import nbformat
import papermill
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.exceptions import PapermillExecutionError

START_TIMEOUT_S = 180


class _Events:
    """Standard output as it was at the start: what a kernel prints later must not be taken for an event."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self.kernel: int | None = None

    def send(self, **event: Any) -> None:
        self._file.write(json.dumps(event) + "\n")

    def orphaned(self) -> None:
        """Wait for the parent's end, then end the kernel and this process."""
        sys.stdin.read()
        if self.kernel is not None:
            os.killpg(self.kernel, signal.SIGKILL)
        os._exit(1)


def _manager(events: _Events) -> type[AsyncKernelManager]:
    class TcpKernelManager(AsyncKernelManager):
        """Over TCP, since IPC sockets fail under long paths; its kernel leads a process group, whose id it tells."""

        async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
            self.transport = "tcp"
            if self.has_trait("transport_encryption"):  # jupyter_client 8.10; other users of this machine cannot listen
                self.transport_encryption = "auto"
            await super()._async_start_kernel(extra_arguments=[*options.pop("extra_arguments", []), *_QUIET], **options)
            events.kernel = self.provisioner.pid  # type: ignore[union-attr]
            events.send(kernel=events.kernel)

    return TcpKernelManager


_QUIET = ["--HistoryManager.enabled=False"]


def execute(job: dict[str, Any], events: _Events) -> None:
    """Execute `job["notebook"]` with `job["arguments"]` into `job["executed"]`, as far as it goes."""
    logging.getLogger("papermill").setLevel(logging.ERROR)  # it warns of every default that is not on one line
    cells = len(nbformat.read(job["notebook"], as_version=4).cells)
    try:
        papermill.execute_notebook(
            job["notebook"],
            job["executed"],
            parameters=job["arguments"],
            kernel_name="python3",
            progress_bar=False,
            store_widget_state=False,  # a megabyte that no viewer shows: the PNG beside a widget is what is kept
            start_timeout=START_TIMEOUT_S,
            cwd=str(Path(job["notebook"]).parent),
            kernel_manager_class=_manager(events),
            on_cell_complete=lambda cell, cell_index: events.send(cell=cell_index + 1, of=cells + 1),
        )
    except PapermillExecutionError as error:
        events.send(status="failed", reason=f"cell {error.exec_count or '?'}: {error.ename}: {error.evalue}")
    except DeadKernelError:
        events.send(status="failed", reason="the kernel died")
    except (CellTimeoutError, TimeoutError, RuntimeError) as error:
        events.send(status="failed", reason=f"{type(error).__name__}: {error}")
    except OSError as error:
        events.send(status="failed", reason=f"{error}")
    else:
        events.send(status="ok", reason=None)


def main() -> None:
    events = _Events()
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=events.orphaned, daemon=True).start()
    execute(job, events)


if __name__ == "__main__":
    main()

"""The process of one slot: it measures one run after another, so that importing torch is paid once.

It reads a task a line from standard input and writes a row a line to standard output; its first line tells of torch.
When standard input ends, the driver is gone, and so is the worker, in the middle of a run too.
"""

import gc
import os
import queue
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from penaltylab import devices
from penaltylab.engine.run import decode
from penaltylab.params import Params
from penaltylab.study import gpu_state
from penaltylab.study.cells import Task
from penaltylab.study.metrics import metrics, row
from penaltylab.study.recording import record
from penaltylab.study.records import Row
from penaltylab.study.torch_build import torch_build


class Measurer:
    """Runs tasks; in measured time the first run of each cell is repeated, since it pays for what is set up once."""

    def __init__(self, traces: Path) -> None:
        self._traces = traces
        self._warm: set[str] = set()

    def run(self, task: Task) -> Row:
        """The row of a task, of one that fails too."""
        params = Params.of(**task.params)
        described: dict[str, Any] = {"name": params.device, "simulated": params.device == "emu"}
        try:
            described = devices.describe(devices.resolve(params.device))
            measured = self._measure(task, params, described)
        except Exception as error:  # whatever goes wrong in a run is its result
            measured = {"status": "failed", "reason": f"{type(error).__name__}: {' '.join(str(error).split())}"}
        return row(task.cell, task.arm, params, described, pair=task.pair, setting=task.setting, **measured)

    def _measure(self, task: Task, params: Params, described: dict[str, Any]) -> dict[str, Any]:
        if task.pair is not None and task.params_hash not in self._warm:
            decode(**task.params)
            self._warm.add(task.params_hash)
        before = gpu_state.read(described.get("uuid", ""))
        run = decode(**task.params)
        gpu = gpu_state.change(before, gpu_state.read(described.get("uuid", "")) if before else {})
        if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
            gpu["visible"] = visible
        if task.trace:
            record(out=self._traces / task.trace, **task.params)
        return metrics(run) | {"gpu": gpu}


def main() -> None:
    """Serve the tasks of standard input; the argument is the folder for traces."""
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what anybody prints must not be taken for a row
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin.buffer:
            inbox.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    measurer = Measurer(Path(sys.argv[1]))
    gc.freeze()  # what torch has brought is not garbage: looking through it again costs a tenth of a run
    output.write(msgspec.json.encode(torch_build()) + b"\n")
    while True:
        found = measurer.run(msgspec.json.decode(inbox.get(), type=Task))
        output.write(msgspec.json.encode(found) + b"\n")


if __name__ == "__main__":
    main()

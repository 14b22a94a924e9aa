"""Slots on a Ray cluster: an actor with `num_gpus=1` each, so that Ray places no two of them on one GPU."""

import logging
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from penaltylab.errors import InputError
from penaltylab.study.cells import Task
from penaltylab.study.records import Row, write_atomically
from penaltylab.study.setting import code_hash
from penaltylab.study.slots import WorkerDied


class Remote:
    """What runs on a node of the cluster. It needs penaltylab installed there, the same as here."""

    def __init__(self) -> None:
        from penaltylab.study.worker import Measurer

        self._traces = Path(tempfile.mkdtemp(prefix="penaltylab-"))
        self._measurer = Measurer(self._traces)

    def hello(self) -> tuple[str, dict[str, Any]]:
        """The hash of this node's penaltylab, and its torch."""
        from penaltylab.study.torch_build import torch_build

        return code_hash(), torch_build()

    def run(self, line: bytes) -> tuple[bytes, bytes | None]:
        """The row of a task, and the trace if it asks for one."""
        task = msgspec.json.decode(line, type=Task)
        row = msgspec.json.encode(self._measurer.run(task))
        trace = self._traces / task.trace
        return row, trace.read_bytes() if task.trace and trace.is_file() else None


class RaySlot:
    """One GPU of the cluster, held while the slot is open."""

    def __init__(self, folder: Path, deadline_s: float) -> None:
        self._folder = folder
        self._deadline_s = deadline_s
        self._actor: Any = None
        self.torch: dict[str, Any] | None = None

    def run(self, task: Task) -> Row:
        """See Slot."""
        import ray

        try:
            self.open()
            row, trace = ray.get(self._actor.run.remote(msgspec.json.encode(task)), timeout=self._deadline_s)
        except ray.exceptions.GetTimeoutError:
            self.close()
            raise WorkerDied(f"not done within {self._deadline_s:g} s") from None
        except ray.exceptions.RayActorError as error:
            self._actor = None
            raise WorkerDied(f"its worker ended ({str(error).splitlines()[0]})") from None
        if trace is not None:
            write_atomically(self._folder / "traces" / task.trace, trace)
        return msgspec.json.decode(row, type=Row)

    def open(self) -> None:
        """Start the actor. Raises InputError where its node has another penaltylab."""
        import ray

        if self._actor is None:
            self._actor = ray.remote(num_gpus=1, max_restarts=0)(Remote).remote()
            code, self.torch = ray.get(self._actor.hello.remote())
            if code != code_hash():
                raise InputError("a node of the Ray cluster has another penaltylab than this one: install the same")

    def close(self) -> None:
        """See Slot."""
        import ray

        if self._actor is not None:
            ray.kill(self._actor)
            self._actor = None


def ray_slots(folder: Path, workers: int | None, deadline_s: float) -> list[RaySlot]:
    """`workers` slots, by default one for each GPU that the cluster declares; the first is open.

    Raises InputError where Ray is missing, no cluster can be reached, or it declares too few GPUs.
    """
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray: Ray is not installed; pip install 'penaltylab[cluster]'") from None
    address = os.environ.get("RAY_ADDRESS", "auto")
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        what = str(error).splitlines()[0]
        raise InputError(f"--engine ray: no cluster at {address} ({what}); `ray start --head` starts one") from None
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if gpus < (workers or 1):
        raise InputError(f"--engine ray: the cluster declares {gpus} GPUs; each worker takes one")
    slots = [RaySlot(folder, deadline_s) for _ in range(workers or gpus)]
    slots[0].open()
    return slots


def _knock(address: str) -> None:
    """Raises OSError where nobody listens at `address`; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()

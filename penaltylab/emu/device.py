"""The emulated device: all of its state, and what its runtime calls do to it."""

import os
import threading
from pathlib import Path
from typing import Any

import torch

from penaltylab.emu.backward import Backward
from penaltylab.emu.clock import Clock
from penaltylab.emu.freed import FreedMemory
from penaltylab.emu.hazards import Hazards
from penaltylab.emu.hostwrites import HostWrites
from penaltylab.emu.log import Log, Recorder
from penaltylab.emu.machine import Machine, load_machine
from penaltylab.emu.pinned import PinnedPool
from penaltylab.emu.queues import CopyEngine, Order, Queue, Stamp
from penaltylab.emu.sites import Site, Sites
from penaltylab.emu.synchronize import Sync, Syncs

DEFAULT_STREAM = 7
_POOL = 32


class _Current(threading.local):
    """A thread's current stream, those it left by entering another, how many nodes of autograd it had made."""

    def __init__(self) -> None:
        self.queue: Queue | None = None
        self.left: list[Queue | None] = []
        self.node_number = 0


class Device:
    """One virtual accelerator. `configure` starts it afresh in place, so that whoever holds it sees the new one."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.clock = Clock()
        self.recorder = Recorder()
        self.sites = Sites()
        self.current = _Current()
        self.default = Queue(DEFAULT_STREAM)
        self.queues: dict[int, Queue] = {DEFAULT_STREAM: self.default}
        self.number = 0
        self.host_order: Order = {}
        self.host_version = 0
        self.syncs = Syncs()
        self.freed = FreedMemory(self)
        self.hazards = Hazards(self.host_order, self.freed)
        self.host_writes = HostWrites(self)
        self.pinned = PinnedPool(self)
        self.backward = Backward(self)
        self.configure("h100", "modelled")
        os.register_at_fork(after_in_child=self.clock.forbid)

    def configure(self, machine: str | Path | Machine, host_time: str) -> None:
        """Clock at 0, streams idle, nothing pinned, no hazards, no recording."""
        self.machine = machine if isinstance(machine, Machine) else load_machine(machine)
        self.clock.reset(host_time)
        self.recorder.log = None
        self.recorder.correlation = 0
        for queue in self.queues.values():
            queue.reset()
            self.know(queue.order)
        self._created = {-1: 0, 0: 0}
        self.h2d, self.d2h = CopyEngine(), CopyEngine()
        self.copies = 0
        self.syncs.found = []
        self.freed.reset()
        self.hazards.found = []
        self.hazards.host_lost.clear()
        self.host_writes.reset()
        self.pinned.reset()
        self.backward.reset()

    def new_queue(self, priority: int = 0) -> Queue:
        """The next stream of the pool: 32 of each priority, given out in turn and then again, as PyTorch does."""
        level = -1 if priority < 0 else 0
        index = self._created[level] % _POOL
        self._created[level] += 1
        stream_id = DEFAULT_STREAM + 6 + 4 * index + (2 if level else 0)
        if stream_id not in self.queues:
            self.queues[stream_id] = Queue(stream_id, level)
        return self.queues[stream_id]

    def queue_of(self, stream: torch.Stream) -> Queue:
        """The queue behind a stream of PyTorch's."""
        try:
            return self.queues[stream.stream_id]
        except KeyError:
            raise RuntimeError(f"emu: {stream!r} is no stream of this device") from None

    def current_queue(self) -> Queue:
        """The current stream of this thread; in a thread of autograd, that of the node's forward."""
        queue = self.current.queue
        if queue is None:
            node: Any = torch._C._current_autograd_node()
            queue = self.default if node is None else self.backward.queue(node)
        return queue

    # What happened before what

    def stamp(self, queue: Queue, site: Site, name: str) -> Stamp:
        """Number the next operation of `queue`. Whatever the host knows to be done happened before it."""
        if queue.host_seen != self.host_version:
            queue.join(self.host_order)
            queue.host_seen = self.host_version
        self.number = queue.order[queue.stream_id] = self.number + 1
        return self.number, site, name

    def know(self, order: Order) -> None:
        """The host has waited for everything in `order`."""
        mine = self.host_order
        for stream_id, number in order.items():
            if mine.get(stream_id, 0) < number:
                mine[stream_id] = number
        self.host_version += 1
        self.host_writes.settle(mine)

    # Runtime calls

    def launch(self, queue: Queue, stamp: Stamp, dur_us: float, nbytes: int = 0) -> None:
        """A kernel: the host pays for the dispatch and the launch and goes on."""
        machine, clock = self.machine, self.clock
        called = clock.now_us + machine.dispatch_us
        start = called + machine.launch_to_start_us
        after = queue.tail_us + machine.kernel_gap_us
        start = max(start, after)
        queue.tail_us = end = start + dur_us
        queue.recent.append((start, end, stamp))
        clock.now_us = called + machine.launch_us
        recorder = self.recorder
        if recorder.log is not None:
            recorder.call("cudaLaunchKernel", called, machine.launch_us, queue.stream_id, stamp[1])
            recorder.operation("kernel", stamp[2], queue.stream_id, start, dur_us, nbytes)

    def copy(
        self,
        queue: Queue,
        stamp: Stamp,
        engine: CopyEngine | None,
        dur_us: float,
        nbytes: int,
        held: float | None = None,
    ) -> float:
        """`cudaMemcpyAsync` on `engine`; with `held` it returns only when all but that share of the copy is done.

        Returns for how long it blocked.
        """
        machine, clock, recorder = self.machine, self.clock, self.recorder
        self.copies += 1
        called = clock.now_us
        ready = max(called + machine.launch_to_start_us, queue.tail_us + machine.kernel_gap_us)
        start = engine.reserve(ready, dur_us, called) if engine is not None else ready
        queue.tail_us = end = start + dur_us
        queue.recent.append((start, end, stamp))
        clock.now_us = called + machine.memcpy_call_us
        blocked = clock.block_until(end - held * dur_us) if held is not None else 0.0
        recorder.call("cudaMemcpyAsync", called, clock.now_us - called, queue.stream_id, stamp[1], blocked)
        recorder.operation("gpu_memcpy", stamp[2], queue.stream_id, start, dur_us, nbytes)
        return blocked

    def call(self, name: str, cost_us: float, stream: int, site: Site) -> None:
        """A runtime call that starts nothing and never waits."""
        self.recorder.call(name, self.clock.now_us, cost_us, stream, site)
        self.clock.now_us += cost_us

    def planned(self, kind: str, op: str, queue: Queue, site: Site) -> Sync:
        """Announce that the host is about to wait for `queue`.

        Raises:
            HiddenSyncError: inside `forbid_sync`.
        """
        if queue.host_seen != self.host_version:
            queue.join(self.host_order)
        return self.planned_until(kind, op, queue.stream_id, queue.tail_us, queue.order, site)

    def planned_until(self, kind: str, op: str, stream: int, done_us: float, order: Order, site: Site) -> Sync:
        """`planned`, for a wait until `done_us` for what `order` holds."""
        self.host_writes.look(site, thorough=True)
        now = self.clock.now_us
        waited: list[tuple[float, str]] = []
        if done_us > now:
            for queue in self.queues.values():
                number = order.get(queue.stream_id, 0)
                for start, end, (index, _, operation) in reversed(queue.recent):
                    if end <= now:
                        break
                    if index <= number:
                        waited.append((start, operation))
        blocked = max(0.0, done_us + self.machine.sync_return_us - now) if done_us > now else 0.0
        name = self.queues[stream].name if stream in self.queues else ""
        sync = Sync(kind, op, stream, now, blocked, [operation for _, operation in sorted(waited)], site, name)
        self.syncs.add(sync)
        return sync

    def wait(self, call: str, queue_id: int, done_us: float, order: Order, site: Site) -> float:
        """A call that returns when `done_us` has passed; returns for how long it blocked."""
        clock, machine = self.clock, self.machine
        start = clock.now_us
        clock.now_us = start + machine.sync_idle_us
        blocked = clock.block_until(done_us + machine.sync_return_us) if done_us > start else 0.0
        self.recorder.call(call, start, clock.now_us - start, queue_id, site, blocked)
        self.know(order)
        return blocked

    # Recording

    def start_log(self) -> Log:
        """A fresh log, filled from here on."""
        self.clock.start_breaks()
        return self.recorder.start()

    def stop_log(self) -> Log:
        """The finished log."""
        log = self.recorder.stop()
        log.breaks = self.clock.stop_breaks()
        log.stream_names = {queue.stream_id: queue.name for queue in self.queues.values() if queue.name}
        log.machine, log.host_time = self.machine, self.clock.host_time
        return log

    def forked(self) -> bool:
        """Whether this process is a child of the one the device was made in."""
        return os.getpid() != self._pid

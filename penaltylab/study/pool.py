"""Run tasks on slots: a round of paired runs stays on one slot, and a worker that dies costs its run one retry."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence

from penaltylab.errors import InputError
from penaltylab.params import Params
from penaltylab.study.cells import Task
from penaltylab.study.metrics import row
from penaltylab.study.records import Row
from penaltylab.study.slots import Slot, WorkerDidNotStart, WorkerDied

ATTEMPTS = 2


class _Queue:
    """What is left to do. A slot that has taken a run of a round gets the rest of that round, in its order."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._lock = threading.Lock()
        self._single = deque(task for task in tasks if task.pair is None)
        by_pair: dict[int, deque[Task]] = {}
        for task in tasks:
            if task.pair is not None:
                by_pair.setdefault(task.pair, deque()).append(task)
        self._rounds = deque(by_pair.values())
        self._own: dict[int, deque[Task]] = {}

    def take(self, slot: int) -> Task | None:
        """The next task of a slot; None when nothing is left for it."""
        with self._lock:
            if not self._own.get(slot) and self._rounds and not self._single:
                self._own[slot] = self._rounds.popleft()
            mine = self._single or self._own.get(slot)
            return mine.popleft() if mine else None


def run_tasks(
    tasks: Sequence[Task], slots: Sequence[Slot], settle: Callable[[Row], None], stop: Callable[[], str | None]
) -> None:
    """Run every task and hand each row to `settle`, in this thread. Ends early, its workers with it, when `stop()`
    returns a text; raises what `settle` raises, workers ended too. Raises InputError where workers do not even start.
    """
    todo, rows = _Queue(tasks), queue.SimpleQueue[Row | WorkerDidNotStart]()
    stopping = threading.Event()

    def serve(index: int) -> None:
        while not stopping.is_set() and (task := todo.take(index)):
            found = _attempt(slots[index], task, stopping)
            if found is not None:
                rows.put(found)

    threads = [threading.Thread(target=serve, args=(index,), daemon=True) for index in range(len(slots))]
    for thread in threads:
        thread.start()
    left = len(tasks)
    try:
        while left and not stop():
            try:
                found = rows.get(timeout=0.1)
            except queue.Empty:
                continue
            if isinstance(found, WorkerDidNotStart):
                raise InputError(str(found))
            left -= 1
            settle(found)
    finally:
        stopping.set()
        for slot in slots:
            slot.close()
        for thread in threads:
            thread.join()


def _attempt(slot: Slot, task: Task, stopping: threading.Event) -> Row | WorkerDidNotStart | None:
    """The row of a task; one of failure when its worker died every time; None when it was told to stop."""
    last: WorkerDied | None = None
    for _ in range(ATTEMPTS):
        try:
            return slot.run(task)
        except WorkerDied as error:
            if stopping.is_set():
                return None
            last = error
    if isinstance(last, WorkerDidNotStart):
        return last
    device = {"name": task.params["device"], "simulated": task.params["device"] == "emu"}
    failure = {"status": "failed", "reason": f"{last}, {ATTEMPTS} times", "pair": task.pair, "setting": task.setting}
    return row(task.cell, task.arm, Params(**task.params), device, **failure)

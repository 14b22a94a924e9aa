"""Profile a run on the emulated device: `torch.profiler` for the host, the emulator's log for the device, one trace."""

import os
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from penaltylab import emu
from penaltylab.emu.log import Log, RuntimeCall
from penaltylab.emu.retime import ClockMap, Slice, is_mark, nest, retime, take_marks
from penaltylab.emu.trace_events import (
    Event,
    annotation_events,
    call_event,
    device_event,
    enclosing,
    extent,
    flow_event,
    metadata_event,
    name_events,
)
from penaltylab.traces.record import TorchProfiler
from penaltylab.traces.write import check_writable, write_trace

Rows = dict[tuple[Any, Any], list[Slice]]
Calls = dict[int, list[RuntimeCall]]

_EMULATOR = "penaltylab/emu/"


class Profiler:
    """A context manager: profiles its body, and then exports, once, a trace with the schema of a CUDA trace.

    The host's slices (operators, annotations, with `with_stack` Python's functions, of all threads) are those of
    `torch.profiler`, moved from real to virtual time; runtime calls, device rows and flows are the emulator's.
    """

    def __init__(self, with_stack: bool = False) -> None:
        emu.register()
        self._torch = TorchProfiler(with_stack)
        self._readings: list[int] = []
        self._log: Log | None = None

    def __enter__(self) -> Self:
        self._torch.__enter__()
        self._readings = take_marks()
        emu.start_log()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._log = emu.stop_log()
            self._readings += take_marks()
        finally:
            self._torch.__exit__(kind, error, traceback)

    def export(self, path: str | Path, metadata: dict[str, Any]) -> None:
        """Write the trace to `path` (`.json` or `.json.gz`); `metadata` lands under the top-level key `penaltylab`.

        That key holds `simulated`, `machine` (the cost model), `host_time` and `clock_error_us` as well, the last being
        how well the profiler's clock is known on the log's. Times are us of the virtual clock; `baseTimeNanoseconds` is
        the real time at which it stood at 0. Raises InputError where `path` cannot be written.
        """
        if self._log is None:
            raise RuntimeError("the profile is not over: export after the with statement")
        path = check_writable(path)
        document = simulated_trace(self._torch.document(), self._log, self._readings, metadata)
        write_trace(path, msgspec.json.encode(document | {"traceName": path.name}))


def simulated_trace(profile: Event, log: Log, readings: list[int], metadata: dict[str, Any]) -> Event:
    """The trace of `profile`, Kineto's document of the host alone, and `log`, on the virtual clock."""
    marks = [Slice.of(event) for event in profile["traceEvents"] if is_mark(event)]
    clock = ClockMap.of(marks, readings, log.breaks)
    pid = os.getpid()
    machine = log.machine or emu.machine()
    device_name = f"SIMULATED {machine.device_name} (penaltylab emu)"
    rows, calls = _host_rows(profile["traceEvents"]), _calls_by_thread(log)
    for (row_pid, tid), slices in rows.items():
        retime(slices, clock, [extent(call) for call in calls.get(tid, [])] if row_pid == pid else [])
    _number_operators(rows)
    events = _host_names(profile["traceEvents"], rows, calls, pid) + name_events(log, pid, device_name)
    events += [item.retimed_event() for slices in rows.values() for item in slices if not _is_empty_frame(item)]
    events += _emulated_events(log, rows, calls, pid)
    profile.pop("host_name", None)  # a trace is to be shown around; whose machine it was made on is nobody's business
    return profile | {
        "deviceProperties": [{"id": 0, "name": device_name, "totalGlobalMem": machine.memory_bytes}],
        "baseTimeNanoseconds": profile["baseTimeNanoseconds"] + clock.kineto_ns_at_virtual_zero(),
        "penaltylab": {
            "simulated": True,
            "machine": machine.asdict(),
            "host_time": log.host_time,
            "clock_error_us": clock.error_ns / 1e3,
            **metadata,
        },
        "traceEvents": events,
    }


def _host_rows(events: list[Event]) -> Rows:
    """The profiler's own slices, instants and flows by row, in order of real time, without the emulator's frames."""
    rows: Rows = defaultdict(list)
    hidden = set()
    timed = [Slice.of(event) for event in events if event["ph"] != "M" and not is_mark(event)]
    for item in sorted(timed, key=lambda item: (item.real_start, -item.real_end)):
        event = item.event
        if item.is_frame:
            arguments = event["args"]
            if _EMULATOR in event["name"] or arguments["Python parent id"] in hidden:
                hidden.add(arguments["Python id"])
                continue
        rows[event["pid"], event["tid"]].append(item)
    for slices in rows.values():
        nest([item for item in slices if item.event["ph"] == "X"])
    return rows


def _is_empty_frame(item: Slice) -> bool:
    """Whether this is a Python function for which virtual time had no room: hundreds may share one instant."""
    return item.is_frame and item.start == item.end


def _calls_by_thread(log: Log) -> Calls:
    calls: Calls = defaultdict(list)
    for call in sorted(log.calls, key=lambda call: call.start_us):
        calls[call.thread].append(call)
    return calls


def _number_operators(rows: Rows) -> None:
    """Count `External id` from 1: PyTorch's goes on from profile to profile, and would tell two equal runs apart."""
    arguments = [item.event.get("args", {}) for slices in rows.values() for item in slices]
    for number, numbered in enumerate((each for each in arguments if "External id" in each), 1):
        numbered["External id"] = number


def _host_names(events: list[Event], rows: Rows, calls: Calls, pid: int) -> list[Event]:
    """Kineto's names of processes and rows, each once, and a name for each thread of this process that it left out."""
    names = {(event["name"], event["pid"], event["tid"]): event | {"ts": 0.0} for event in events if event["ph"] == "M"}
    names.pop(("process_labels", pid, 0), None)
    for tid in sorted({tid for row_pid, tid in rows if row_pid == pid} | set(calls)):
        names.setdefault(("thread_name", pid, tid), metadata_event("thread_name", pid, tid, f"thread {tid} (python)"))
        names.setdefault(("thread_sort_index", pid, tid), metadata_event("thread_sort_index", pid, tid, tid))
    return list(names.values())


def _emulated_events(log: Log, rows: Rows, calls: Calls, pid: int) -> list[Event]:
    """Runtime calls, device rows and the flows between them."""
    events: list[Event] = []
    launches: dict[int, tuple[int | None, tuple[Slice, ...]]] = {}
    launching = {op.correlation for op in log.device_ops}
    for tid, of_thread in calls.items():
        for call, around in zip(of_thread, enclosing(of_thread, rows.get((pid, tid), [])), strict=True):
            event = call_event(call, pid, around)
            events.append(event)
            if call.correlation in launching:
                launches[call.correlation] = event["args"].get("External id"), around
                events.append(flow_event("s", event))
    launched = []
    for op in sorted(log.device_ops, key=lambda op: op.start_us):
        external_id, around = launches.get(op.correlation, (None, ()))
        event = device_event(op, external_id)
        events.append(event)
        if op.correlation in launches:
            events.append(flow_event("f", event))
        launched.append((op, around))
    return annotation_events(launched) + events  # a reader lets the first of two equal slices hold the other

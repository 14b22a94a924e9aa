"""The emulator's log as the events that Kineto writes for CUDA: runtime calls, device rows, flows, names."""

from collections.abc import Iterator, Sequence
from typing import Any

from penaltylab.emu.log import DeviceOp, Log, RuntimeCall
from penaltylab.emu.retime import Slice, to_ns

Event = dict[str, Any]

DEVICE_PID = 0
_AFTER_THE_HOST = 1 << 24  # Kineto's sort index of the first device
_FIRST_CORRELATION = 1 << 16
"""CUDA's do not start at 0 either; HolisticTraceAnalysis keeps row numbers in the type that holds the correlations."""

# CUPTI's callback ids of the runtime API (cupti_runtime_cbid.h), as they stand in real traces.
_CBID = {
    "cudaMalloc": 20,
    "cudaFree": 22,
    "cudaFreeHost": 26,
    "cudaHostAlloc": 27,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaStreamQuery": 132,
    "cudaEventRecord": 135,
    "cudaEventSynchronize": 137,
    "cudaEventQuery": 138,
    "cudaEventElapsedTime": 139,
    "cudaStreamWaitEvent": 147,
    "cudaDeviceSynchronize": 165,
    "cudaLaunchKernel": 211,
}


def correlation(item: RuntimeCall | DeviceOp) -> int:
    """What a launch and the device op that it started share in the trace."""
    return _FIRST_CORRELATION + item.correlation


def extent(item: RuntimeCall | DeviceOp) -> tuple[int, int]:
    """Start and end of a call or a device op in whole ns."""
    return to_ns(item.start_us), to_ns(item.start_us + item.dur_us)


def call_event(call: RuntimeCall, pid: int, around: Sequence[Slice]) -> Event:
    """A runtime call on its thread's row. `External id` is that of the operator around it, as Kineto gives it."""
    operators = [item for item in around if item.event["cat"] == "cpu_op"]
    arguments: Event = {"External id": operators[-1].event["args"]["External id"]} if operators else {}
    if call.name in _CBID:
        arguments["cbid"] = _CBID[call.name]
    arguments["correlation"] = correlation(call)
    if call.site:
        arguments["Call stack"] = call.site
    return _slice(*extent(call), "cuda_runtime", call.name, pid, call.thread, arguments)


def device_event(op: DeviceOp, external_id: int | None) -> Event:
    """A device op on its stream's row. What a simulation has no value for (grid, block, registers) is left out."""
    start, end = extent(op)
    arguments: Event = {} if external_id is None else {"External id": external_id}
    arguments |= {"device": 0, "context": 1, "stream": op.stream, "correlation": correlation(op)}
    if op.kind != "kernel":
        arguments |= {"bytes": op.bytes, "memory bandwidth (GB/s)": op.bytes / max(1, end - start)}
    return _slice(start, end, op.kind, op.name, DEVICE_PID, op.stream, arguments)


def flow_event(phase: str, on: Event) -> Event:
    """One end of the arrow from a launch to its device op: `s` on the call's event, `f` on the op's."""
    row = {"pid": on["pid"], "tid": on["tid"], "ts": on["ts"]}
    bound = {"bp": "e"} if phase == "f" else {}
    return {"ph": phase, "id": on["args"]["correlation"], **row, "cat": "ac2g", "name": "ac2g", **bound}


def metadata_event(kind: str, pid: int, tid: int, value: str | int) -> Event:
    """A name, a label or a place in the order (`kind` is Chrome's word for it) of a process or of one of its rows."""
    key = "labels" if kind == "process_labels" else "sort_index" if kind.endswith("sort_index") else "name"
    return {"ph": "M", "name": kind, "ts": 0.0, "pid": pid, "tid": tid, "args": {key: value}}


def name_events(log: Log, pid: int, device_name: str) -> list[Event]:
    """Names and order of the device's process and of its streams; both processes are labelled SIMULATED."""
    events = [
        metadata_event("process_labels", pid, 0, "SIMULATED CPU"),
        metadata_event("process_name", DEVICE_PID, 0, device_name),
        metadata_event("process_labels", DEVICE_PID, 0, "SIMULATED GPU 0"),
        metadata_event("process_sort_index", DEVICE_PID, 0, _AFTER_THE_HOST),
    ]
    for stream in sorted({op.stream for op in log.device_ops}):
        name = f"stream {stream} {log.stream_names.get(stream, '')}"
        events.append(metadata_event("thread_name", DEVICE_PID, stream, name))
        events.append(metadata_event("thread_sort_index", DEVICE_PID, stream, stream))
    return events


def enclosing(calls: Sequence[RuntimeCall], slices: Sequence[Slice]) -> Iterator[tuple[Slice, ...]]:
    """For each call of a thread, in order, the operators and annotations it lies in, outermost first.

    `slices` are the thread's, retimed, in order of real start.
    """
    coming = iter([item for item in slices if item.event.get("cat") in ("cpu_op", "user_annotation")])
    stack: list[Slice] = []
    item = next(coming, None)
    for call in calls:
        start, end = extent(call)
        while item is not None and item.start <= start:
            while stack and stack[-1].real_end <= item.real_start:
                stack.pop()
            stack.append(item)
            item = next(coming, None)
        while stack and stack[-1].end < end:
            stack.pop()
        yield tuple(stack)


def annotation_events(launched: Sequence[tuple[DeviceOp, Sequence[Slice]]]) -> list[Event]:
    """`gpu_user_annotation` rows: an annotation's extent on a stream is that of the device ops launched inside it.

    Two threads that launch on one stream may give extents that cross; of those the later one is left out.
    """
    extents: dict[tuple[int, int], tuple[int, int, Slice]] = {}
    for op, around in launched:
        start, end = extent(op)
        for item in around:
            if item.event["cat"] == "user_annotation":
                first, last, _ = extents.get((op.stream, id(item)), (start, end, item))
                extents[op.stream, id(item)] = min(first, start), max(last, end), item
    events: list[Event] = []
    open_ends: dict[int, list[int]] = {}
    order = sorted(extents.items(), key=lambda entry: (entry[0][0], entry[1][0], -entry[1][1], entry[1][2].real_start))
    for (stream, _), (start, end, item) in order:
        stack = open_ends.setdefault(stream, [])
        while stack and stack[-1] <= start:
            stack.pop()
        if not stack or end <= stack[-1]:
            stack.append(end)
            arguments = {"External id": item.event["args"]["External id"]}
            name = item.event["name"]
            events.append(_slice(start, end, "gpu_user_annotation", name, DEVICE_PID, stream, arguments))
    return events


def _slice(start: int, end: int, category: str, name: str, pid: int, tid: int, arguments: Event) -> Event:
    times = {"ts": start / 1e3, "dur": (end - start) / 1e3}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": arguments}

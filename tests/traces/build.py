"""Small Kineto traces, written out by hand for the tests: one line an event, times in microseconds."""

import json
from typing import Any

Json = dict[str, Any]
NVIDIA = {"id": 0, "name": "NVIDIA H100 80GB HBM3"}
AMD = {"id": 0, "name": "AMD Instinct MI300X"}
HOST = 100
"""Process id and main thread of the recorded program."""


def slice_(cat: str, name: str, ts: float, dur: float, pid: Any = HOST, tid: Any = HOST, **args: Any) -> Json:
    """A complete event; argument names with a space are passed through `**{...}`."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def call(
    name: str, ts: float, dur: float, correlation: int, ext: int | None = None, tid: int = HOST, **args: Any
) -> Json:
    """A runtime call; `ext` is the External id of the operator around it."""
    known = {"cbid": 1, "correlation": correlation, **args}
    return slice_("cuda_runtime", name, ts, dur, HOST, tid, **(known if ext is None else {"External id": ext, **known}))


def kernel(name: str, ts: float, dur: float, correlation: int, stream: int = 7) -> Json:
    return slice_("kernel", name, ts, dur, 0, stream, device=0, stream=stream, correlation=correlation)


def memcpy(what: str, ts: float, dur: float, correlation: int, size: int = 64, stream: int = 7) -> Json:
    """A copy on the device; `what` as in `HtoD (Pageable -> Device)`."""
    args = {"device": 0, "context": 1, "stream": stream, "correlation": correlation, "bytes": size}
    return slice_("gpu_memcpy", f"Memcpy {what}", ts, dur, 0, stream, **args)


def op(name: str, ts: float, dur: float, ext: int, tid: int = HOST, **args: Any) -> Json:
    return slice_("cpu_op", name, ts, dur, HOST, tid, **{"External id": ext, **args})


def frame(name: str, ts: float, dur: float, tid: int = HOST) -> Json:
    return slice_("python_function", name, ts, dur, HOST, tid)


def note(name: str, ts: float, dur: float, tid: int = HOST) -> Json:
    """A `record_function` annotation."""
    return slice_("user_annotation", name, ts, dur, HOST, tid)


def thread(pid: Any, tid: Any, name: str) -> Json:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}


def blocking_copy(
    ts: float, wait: float, correlation: int, what: str = "HtoD (Pageable -> Device)", **more: Any
) -> list[Json]:
    """PyTorch's `memcpy_and_sync` inside `aten::copy_`: it returns when the copy, begun after `wait`, is done."""
    stream, size, ext = more.get("stream", 7), more.get("size", 64), correlation + 1000
    return [
        op("aten::copy_", ts, wait + 20, ext),
        call("cudaMemcpyAsync", ts + 1, 5, correlation, ext),
        memcpy(what, ts + 1 + wait, 2, correlation, size, stream),
        call("cudaStreamSynchronize", ts + 7, wait, correlation + 1, ext),
    ]


def document(*events: Json | list[Json], device: Json | None = NVIDIA, **top: Any) -> Json:
    """A whole trace of these events (lists are flattened)."""
    flat = [one for group in events for one in (group if isinstance(group, list) else [group])]
    return {"schemaVersion": 1, "deviceProperties": [device] if device else [], "traceEvents": flat, **top}


def written(*events: Json | list[Json], **top: Any) -> bytes:
    return json.dumps(document(*events, **top)).encode()

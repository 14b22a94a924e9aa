"""What a real CUDA trace tells about its machine: the values of a cost model, each the median of what was seen."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penaltylab.errors import InputError
from penaltylab.traces import schema
from penaltylab.traces.calls import Role
from penaltylab.traces.copies import PAGEABLE, PINNED, STAGED_BYTES, TO_DEVICE, TO_HOST
from penaltylab.traces.stalls import Analysis
from penaltylab.traces.trace import Floats, Slices

_FEWEST: Final = 3
_LARGE_BYTES: Final = 256 << 10
_SMALL_BYTES: Final = 256
_LAUNCHES: Final = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
_CALLS: Final = {
    "launch_us": _LAUNCHES,
    "event_record_us": ("cudaEventRecord", "cudaEventRecordWithFlags"),
    "event_wait_us": ("cudaStreamWaitEvent",),
    "event_query_us": ("cudaEventQuery",),
    "host_alloc_us": ("cudaHostAlloc", "cudaMallocHost"),
}
_OPERATORS: Final = {"view_us": ("aten::view", "aten::as_strided"), "alloc_us": ("aten::empty", "aten::empty_strided")}


@dataclass(frozen=True, slots=True)
class Measured:
    """One value of a cost model (us, bytes or bytes a us), and how it was found."""

    name: str
    value: float | int
    source: str


def calibrate(analysis: Analysis) -> list[Measured]:
    """All values that a trace can tell; one that it cannot tell is not in the list.

    Raises:
        InputError: the trace was not recorded on an NVIDIA GPU.
    """
    trace = analysis.trace
    if trace.device.vendor != "nvidia" or not len(trace.gpu):
        raise InputError(f"{trace.path}: a cost model needs a real CUDA trace; this one is of {trace.device.name}")
    found = [
        *_calls(analysis),
        *_synchronizations(analysis),
        *_kernels(analysis),
        *_copies(analysis),
        *_memory(analysis),
    ]
    return [one for one in found if np.isfinite(one.value) and one.value > 0]


def _median(name: str, values: Floats, what: str) -> Iterator[Measured]:
    if len(values) >= _FEWEST:
        number = float(f"{np.median(values):.4g}")
        yield Measured(name, number, f"measured: median of {len(values):,} {what}")


def _durations(analysis: Analysis, table: Slices, names: tuple[str, ...]) -> Floats:
    codes = [code for code, name in enumerate(analysis.trace.names) if name in names]
    return table.dur[np.isin(table.name, codes)]


def _calls(analysis: Analysis) -> Iterator[Measured]:
    for name, calls in _CALLS.items():
        yield from _median(name, _durations(analysis, analysis.trace.runtime, calls), f"calls of {calls[0]}")
    for name, operators in _OPERATORS.items():
        yield from _median(name, _durations(analysis, analysis.trace.operators, operators), " and ".join(operators))


def _synchronizations(analysis: Analysis) -> Iterator[Measured]:
    """An idle synchronize, and how long after the last operation one that waited returns."""
    gpu, runtime = analysis.trace.gpu, analysis.trace.runtime
    calls = np.flatnonzero(np.isin(analysis.role, (Role.STREAM_SYNC, Role.DEVICE_SYNC)))
    start, end, ends = runtime.start[calls], runtime.end[calls], np.sort(gpu.end)
    started, ended = np.searchsorted(gpu.start, start), np.searchsorted(ends, start, side="right")
    idle = (started == ended) & (analysis.role[calls] == Role.STREAM_SYNC)
    yield from _median("sync_idle_us", (end - start)[idle], "stream synchronizations of an idle device")
    last = ends[np.maximum(np.searchsorted(ends, end, side="right") - 1, 0)]
    quiet = np.searchsorted(gpu.start, end) == np.searchsorted(ends, end, side="right")
    waited = (last > start) & quiet
    yield from _median(
        "sync_return_us", (end - last)[waited], "synchronizations, from the last operation's end to their return"
    )


def _kernels(analysis: Analysis) -> Iterator[Measured]:
    """Latency of a launch on an idle stream, and the gap between two kernels that were both queued."""
    trace, launch = analysis.trace, analysis.launch
    order = np.lexsort((trace.gpu.start, trace.gpu.lane))
    before, after = order[:-1], order[1:]
    pairs = (trace.gpu.lane[before] == trace.gpu.lane[after]) & (launch[after] >= 0)
    pairs &= (trace.gpu.kind[after] == schema.KERNEL) & (trace.gpu.kind[before] == schema.KERNEL)
    before, after = before[pairs], after[pairs]
    call = launch[after]
    single = _single(launch, call)
    idle = (trace.gpu.end[before] < trace.runtime.start[call]) & single
    latency = trace.gpu.start[after] - trace.runtime.start[call]
    yield from _median("launch_to_start_us", latency[idle], "launches on an idle stream, call to start")
    queued = (trace.runtime.end[call] < trace.gpu.start[before]) & single
    gaps = (trace.gpu.start[after] - trace.gpu.end[before])[queued]
    yield from _median("kernel_gap_us", gaps[gaps >= 0], "gaps between queued kernels")
    kernels = trace.gpu.dur[(trace.gpu.kind == schema.KERNEL) & (trace.gpu.dur > 0)]
    if len(kernels) >= _FEWEST:
        shortest = round(float(np.quantile(kernels, 0.01)), 2)
        yield Measured("kernel_min_us", shortest, f"measured: first percentile of {len(kernels):,} kernels")


def _single(launch: NDArray[np.intp], call: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether a call launched one operation alone: a graph's launch says nothing about its kernels' latency."""
    counts: NDArray[np.intp] = np.bincount(launch[launch >= 0])
    single: NDArray[np.bool_] = counts[call] == 1
    return single


def _copies(analysis: Analysis) -> Iterator[Measured]:
    trace, copies = analysis.trace, analysis.copies
    dur, size = trace.gpu.dur[copies.gpu], copies.bytes
    small = (copies.direction == TO_DEVICE) & (size >= 0) & (size <= _SMALL_BYTES)
    yield from _median("copy_min_us", dur[small], f"host-to-device copies of up to {_SMALL_BYTES} bytes")
    asynchronous = (copies.call >= 0) & ~copies.blocking & (size <= STAGED_BYTES)
    calls = trace.runtime.dur[copies.call[asynchronous]] if len(trace.runtime) else np.zeros(0)
    yield from _median("memcpy_call_us", calls, "cudaMemcpyAsync of small copies that did not wait")
    for name, direction, memory, word in (
        ("h2d_bytes_per_us", TO_DEVICE, PINNED, "pinned host-to-device"),
        ("h2d_pageable_bytes_per_us", TO_DEVICE, PAGEABLE, "pageable host-to-device"),
        ("d2h_bytes_per_us", TO_HOST, PINNED, "pinned device-to-host"),
        ("d2h_pageable_bytes_per_us", TO_HOST, PAGEABLE, "pageable device-to-host"),
    ):
        large = (copies.direction == direction) & (copies.memory == memory) & (size >= _LARGE_BYTES) & (dur > 0)
        yield from _median(name, size[large] / dur[large], f"{word} copies of at least {_LARGE_BYTES >> 10} KiB")
    early = asynchronous_pageable(analysis)
    if len(early) >= _FEWEST:
        what = f"measured: the largest of {len(early):,} pageable copies whose call returned before they ran"
        yield Measured("pageable_async_max_bytes", int(early.max()), what)


def asynchronous_pageable(analysis: Analysis) -> NDArray[np.int64]:
    """Sizes of the pageable host-to-device copies whose call returned before the copy had ended."""
    trace, copies = analysis.trace, analysis.copies
    rows = np.flatnonzero((copies.direction == TO_DEVICE) & (copies.memory == PAGEABLE) & (copies.call >= 0))
    returned = trace.runtime.end[copies.call[rows]] < trace.gpu.start[copies.gpu[rows]]
    sizes: NDArray[np.int64] = copies.bytes[rows[returned]]
    return sizes


def _memory(analysis: Analysis) -> Iterator[Measured]:
    listed: Any = analysis.trace.metadata.get("deviceProperties")
    for item in listed if isinstance(listed, list) else []:
        size = item.get("totalGlobalMem") if isinstance(item, dict) else None
        if isinstance(size, int) and item.get("name") == analysis.trace.device.name:
            yield Measured("memory_bytes", size, "the trace's deviceProperties: totalGlobalMem")
            return

"""Copies between host and device, and which of them made the host wait.

The rules are those that held for every copy of 22 public traces; they are applied in this order:

1. the call waits by definition: `hipMemcpyWithStream`, `cudaMemcpy`;
2. the operator was told `non_blocking=True` (traces with `record_shapes`): it did not wait;
3. `cudaMemcpyAsync` is followed on its thread by `cudaStreamSynchronize` inside the same operator, or with the same
   External id: PyTorch's `memcpy_and_sync`;
4. the operator was told `non_blocking=False`;
5. in a trace without any synchronization call (a sampled one): the copy started long after its call had returned, and
   yet ended inside the operator;
6. a pageable copy whose call lasts until the copy has ended: to the host always, to the device above the 64 KiB that
   CUDA stages.

Pageable is not the same as blocking, and flows are never used: in real files thousands of them dangle.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penaltylab.traces import schema
from penaltylab.traces.calls import Role
from penaltylab.traces.nesting import Index, Nest
from penaltylab.traces.trace import Floats, Trace

STAGED_BYTES: Final = 64 << 10
"""The size up to which CUDA's documentation says that a pageable host-to-device copy is staged and returns at once."""

TO_DEVICE, TO_HOST = 1, 2
UNKNOWN, PAGEABLE, PINNED = 0, 1, 2
MEMORY: Final = ("unknown", "pageable", "pinned")
_ADJACENT_US = 20.0
_LATE_US = 20.0


@dataclass(slots=True)
class Copies:
    """One row a copy between host and device; `gpu` and `call` index the trace's tables, -1 where there is no such row.

    `end` is when the host went on: the end of the synchronization, the call or the operator; NaN if it did not wait.
    `sync` is the runtime call that is the second half of a blocking copy.
    """

    gpu: Index
    call: Index
    direction: NDArray[np.int8]
    memory: NDArray[np.int8]
    bytes: NDArray[np.int64]
    end: Floats
    sync: Index

    @property
    def blocking(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.end)


def call_of(trace: Trace) -> Index:
    """The runtime call that launched each GPU operation, joined on the correlation id; -1 without one."""
    known = np.flatnonzero(trace.runtime.correlation >= 0)
    order = known[np.argsort(trace.runtime.correlation[known], kind="stable")]
    sorted_ids = trace.runtime.correlation[order]
    wanted = trace.gpu.correlation
    at = np.searchsorted(sorted_ids, wanted)
    hit = (at < len(order)) & (wanted >= 0)
    hit[hit] = sorted_ids[at[hit]] == wanted[hit]
    found = np.full(len(wanted), -1, np.intp)
    found[hit] = order[at[hit]]
    return found


def find_copies(trace: Trace, role: NDArray[np.int8], launch: Index) -> Copies:
    """All copies between host and device, with whether and until when the host waited for each."""
    direction, memory = _by_name(trace)
    gpu = np.flatnonzero(trace.gpu.kind == schema.MEMCPY)
    call = launch[gpu]
    way, has_call = direction[trace.gpu.name[gpu]], call >= 0
    # ROCm calls pinned host memory "Device" (.item() copies into it): what the blocking call was asked to do is true.
    asked = np.where(has_call & (role[call] == Role.COPY_BLOCKING), trace.runtime.kind[call], 0) if len(role) else way
    way = np.where((way == 0) & np.isin(asked, (TO_DEVICE, TO_HOST)), asked, way)
    chosen = way > 0
    gpu, call, way = gpu[chosen], call[chosen], way[chosen].astype(np.int8)
    size = trace.gpu.bytes[gpu]
    if len(role):
        size = np.where((size < 0) & (call >= 0), trace.runtime.bytes[call], size)
    copies = Copies(gpu, call, way, memory[trace.gpu.name[gpu]], size, np.full(len(gpu), np.nan), np.full(len(gpu), -1))
    if len(gpu) and len(role):
        _decide(trace, role, copies)
    return copies


def _by_name(trace: Trace) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Direction and host memory of a copy by its name, e.g. `Memcpy HtoD (Pageable -> Device)`."""
    direction, memory = np.zeros((2, len(trace.names) or 1), np.int8)
    for code in np.unique(trace.gpu.name[trace.gpu.kind == schema.MEMCPY]).tolist():
        name = trace.names[code]
        if "HtoD" in name or "M2D" in name or "HostToDevice" in name:
            direction[code] = TO_DEVICE
        elif "DtoH" in name or "D2M" in name or "DeviceToHost" in name:
            direction[code] = TO_HOST
        memory[code] = PAGEABLE if "Pageable" in name else PINNED if "Pinned" in name else UNKNOWN
    return direction, memory


def _decide(trace: Trace, role: NDArray[np.int8], copies: Copies) -> None:
    rows = np.flatnonzero(copies.call >= 0)
    call = copies.call[rows]
    runtime, end_of_call = trace.runtime, trace.runtime.end[call]
    nest = Nest.of(trace.operators)
    operator = _operator(trace, nest, call)
    flag, operator_end = np.full(len(call), -1), np.full(len(call), np.nan)
    inside = operator >= 0
    flag[inside], operator_end[inside] = trace.operators.kind[operator[inside]], trace.operators.end[operator[inside]]
    copy_end = trace.gpu.end[copies.gpu[rows]]
    follower = _next_call(trace, role, call)
    synced = follower >= 0
    synced[synced] = role[follower[synced]] == Role.STREAM_SYNC
    synced &= _together(trace, nest, call, follower, operator)
    waits_itself = role[call] == Role.COPY_BLOCKING
    no_syncs = not np.any(role == Role.STREAM_SYNC)
    unpinned = copies.memory[rows] != PINNED
    end = np.full(len(call), np.nan)
    staged = (copies.direction[rows] == TO_DEVICE) & (copies.bytes[rows] <= STAGED_BYTES)
    unstaged = unpinned & ~staged & (end_of_call >= copy_end)
    end[unstaged] = end_of_call[unstaged]
    late = trace.gpu.start[copies.gpu[rows]] - end_of_call > _LATE_US
    sampled = no_syncs & (flag < 0) & late & (operator_end >= copy_end)
    end[sampled] = operator_end[sampled]
    end[flag == 0] = operator_end[flag == 0]
    paired = synced & (flag != 1) & ~waits_itself
    end[paired] = runtime.end[follower[paired]]
    end[waits_itself] = end_of_call[waits_itself]
    copies.end[rows] = end
    copies.sync[rows[paired]] = follower[paired]


def _operator(trace: Trace, nest: Nest, call: Index) -> Index:
    """The innermost operator around each call, as an index of the operators table; -1 where there is none."""
    if not len(trace.operators):
        return np.full(len(call), -1, np.intp)
    runtime = trace.runtime
    at = nest.innermost(runtime.lane[call], runtime.start[call], runtime.end[call])
    return np.where(at >= 0, nest.order[at], -1)


def _next_call(trace: Trace, role: NDArray[np.int8], call: Index) -> Index:
    """The next call on the same thread that is not a mere query."""
    real = np.flatnonzero(role != Role.QUERY)
    order = real[np.argsort(trace.runtime.lane[real], kind="stable")]
    place = np.full(len(role), -1, np.intp)
    place[order] = np.arange(len(order))
    after = place[call] + 1
    follower = np.where(after < len(order), order[np.minimum(after, len(order) - 1)], -1)
    return np.where(trace.runtime.lane[follower] == trace.runtime.lane[call], follower, -1)


def _together(trace: Trace, nest: Nest, call: Index, follower: Index, operator: Index) -> NDArray[np.bool_]:
    """Whether a call and its follower belong to one operator: PyTorch's `memcpy_and_sync`, not two statements."""
    runtime = trace.runtime
    same_id = (runtime.external_id[call] == runtime.external_id[follower]) & (runtime.external_id[call] > 0)
    if not len(trace.operators):
        close = runtime.start[follower] - runtime.end[call] < _ADJACENT_US
        return same_id | (close & (runtime.external_id[call] <= 0))
    return same_id | ((operator >= 0) & (_operator(trace, nest, follower) == operator))

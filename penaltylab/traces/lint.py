"""What a reader of the figures should know about the file: what is missing, crooked, coarse or repaired in it."""

from collections.abc import Iterator

import numpy as np

from penaltylab.traces import schema
from penaltylab.traces.calls import Role
from penaltylab.traces.copies import TO_DEVICE
from penaltylab.traces.stalls import Analysis
from penaltylab.traces.trace import Slices, Trace

_ROUNDING_US = 0.002
_LAUNCHES = ("LaunchKernel", "Memcpy", "Memset")


def lint(analysis: Analysis) -> list[str]:
    """Warnings about a trace, one line each; those of the reader come first."""
    trace = analysis.trace
    checks = (_device_rows(analysis), _clock(analysis), _crossing(trace), _stacks(analysis), _limits(analysis))
    return [*trace.notes, *(line for check in checks for line in check)]


def _device_rows(analysis: Analysis) -> Iterator[str]:
    """Calls without an operation on the device, and operations without a call."""
    trace = analysis.trace
    if not trace.events:
        yield "the trace holds no events"
    if len(trace.runtime) and not len(trace.gpu):
        yield "runtime calls but no GPU operations: another profiler held CUPTI, or the file was filtered"
        return
    if not len(trace.runtime) and len(trace.gpu):
        yield "GPU operations but no runtime calls: host stalls cannot be seen in this file"
        return
    launching = np.array([any(word in name for word in _LAUNCHES) for name in trace.names], bool)
    if not launching.size or not len(trace.gpu):
        return
    calls = np.flatnonzero(launching[trace.runtime.name] & (trace.runtime.correlation >= 0))
    missing = calls[~np.isin(trace.runtime.correlation[calls], trace.gpu.correlation)]
    if missing.size:
        edge = int((trace.runtime.start[missing] > trace.gpu.start.max()).sum())
        where = f", {edge:,} of them after the last GPU operation" if edge else ""
        yield f"{missing.size:,} of {calls.size:,} launches have no GPU operation (dropped by CUPTI, or cropped){where}"
    orphans = int((analysis.launch < 0).sum())
    if orphans:
        yield f"{orphans:,} of {len(trace.gpu):,} GPU operations have no runtime call (launched earlier, or cropped)"
    known = trace.runtime.correlation[calls]
    if len(np.unique(known)) < known.size:
        yield "correlation ids occur more than once: several processes or windows in one file, joins may be wrong"


def _clock(analysis: Analysis) -> Iterator[str]:
    """Times that were clamped, run backwards or are coarse."""
    trace, call = analysis.trace, analysis.launch
    tables = [table for table in (trace.gpu, trace.runtime, trace.operators) if len(table)]
    if trace.origin_us < 0:
        yield "negative timestamps: viewers drop such events"
    zero = sum(int((table.start + trace.origin_us == 0).sum()) for table in tables)
    if zero > 1 and trace.origin_us == 0 and trace.span_us > 0:
        yield f"{zero:,} events start at time 0: their timestamps were clamped"
    if tables and all(bool(np.all(np.mod(table.start + trace.origin_us, 1) == 0)) for table in tables):
        yield "times are whole microseconds: lengths below about 10 us are rough"
    if len(trace.gpu):
        early = int((trace.gpu.start[call >= 0] < trace.runtime.start[call[call >= 0]] - 1).sum())
        if early:
            yield f"{early:,} GPU operations start before the call that launched them: host and device clocks disagree"


def _crossing(trace: Trace) -> Iterator[str]:
    count = sum(crossing(table) for table in (trace.gpu, trace.runtime, trace.operators, trace.frames))
    if count:
        yield f"{count:,} slices cross another one on their row: viewers drop or move them (penaltylab view keeps all)"


def crossing(slices: Slices) -> int:
    """How many slices begin inside the one before them on their row, or inside the longest so far, and outlast it."""
    order = np.argsort(slices.lane, kind="stable")
    lane, start, end = slices.lane[order], slices.start[order], slices.end[order]
    count = 0
    for one in np.unique(lane):
        here = lane == one
        first, last = start[here], end[here]
        crosses = np.zeros(max(len(first) - 1, 0), bool)
        for outer in (last[:-1], np.maximum.accumulate(last)[:-1]):
            crosses |= (first[1:] < outer - _ROUNDING_US) & (last[1:] > outer + _ROUNDING_US)
        count += int(crosses.sum())
    return count


def _stacks(analysis: Analysis) -> Iterator[str]:
    if analysis.stalls and not any(stall.site for stall in analysis.stalls):
        yield "no Python stack around any stall: record with profile(with_stack=True) to see the line of each"


def _limits(analysis: Analysis) -> Iterator[str]:
    """What the rules could not decide in this file."""
    trace, role = analysis.trace, analysis.role
    copies = analysis.copies
    lost = int((copies.call < 0).sum())
    if lost:
        yield f"{lost:,} copies have no runtime call: whether the host waited for them cannot be told"
    if len(copies.gpu) and not np.any(np.isin(role, (Role.STREAM_SYNC, Role.COPY_BLOCKING))):
        yield "no synchronization calls in the file (sampled?): only waits that show in the operators are reported"
    call = analysis.launch
    asked = trace.runtime.kind[call] if len(role) else np.zeros(len(call))
    device = np.array(["DtoD" in name for name in trace.names] or [False], bool)
    hidden = (trace.gpu.kind == schema.MEMCPY) & device[trace.gpu.name] & (call >= 0) & (asked == TO_DEVICE)
    if hidden.any():
        count = int(hidden.sum())
        yield f"{count:,} copies from pinned memory are called DtoD by ROCm: they do not count as host-to-device here"

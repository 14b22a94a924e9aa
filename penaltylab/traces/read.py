"""Reading a trace: any file that `torch.profiler` has written since the Kineto format exists."""

from typing import Any

from penaltylab.errors import InputError
from penaltylab.traces import schema
from penaltylab.traces.chunks import Pieces
from penaltylab.traces.columns import Columns
from penaltylab.traces.sources import Source, blocks, name_of
from penaltylab.traces.trace import Device, Trace


def read_trace(source: Source) -> Trace:
    """Read a trace into typed columns; memory grows with the events that are kept, not with the file.

    Args:
        source: path of a .json, .json.gz or .zip file, or an open binary file.

    Returns:
        The trace. `notes` says what was repaired, dropped or only partly understood.

    Raises:
        InputError: the file cannot be read, or holds no trace at all.
    """
    notes: list[str] = []
    name = name_of(source)
    pieces = Pieces(blocks(source, notes), name)
    columns = Columns()
    for events in pieces:
        columns.add(events)
    if columns.events == columns.phaseless and (columns.events or pieces.bare or pieces.damage.sentences()):
        raise InputError(f"{name}: not a profiler trace: no event in it could be read")
    notes += pieces.damage.sentences()
    return assemble(name, columns, pieces.metadata, notes)


def assemble(name: str, columns: Columns, metadata: dict[str, Any], notes: list[str]) -> Trace:
    """The trace that the collected columns and the metadata of a file make."""
    if columns.unusable:
        notes.append(f"dropped: {columns.unusable:,} event(s) without a usable time")
    notes += dict.fromkeys(text for cat, text in schema.PARTLY_UNDERSTOOD.items() if cat in columns.categories)
    origin = columns.first if columns.first < float("inf") else 0.0
    tables = ("gpu", "runtime", "syncs", "operators", "annotations", "frames", "overhead")
    trace = Trace(
        path=name,
        device=Device("", ""),
        simulated=False,
        origin_us=origin,
        events=columns.events,
        names=list(columns.names),
        lanes=list(columns.lanes),
        lane_names=columns.lane_names,
        categories=dict(columns.categories),
        metadata=metadata,
        notes=notes,
        **{table: getattr(columns, table).finish(origin) for table in tables},
    )
    trace.device, trace.simulated = _device(trace)
    return trace


def _device(trace: Trace) -> tuple[Device, bool]:
    """Which accelerator: as the file names it, else as its runtime calls give it away."""
    name = _device_name(trace)
    calls = "".join(trace.names[code] for code in trace.runtime.name[:200].tolist())
    simulated = bool(trace.penaltylab.get("simulated")) or name.startswith("SIMULATED")
    if simulated:
        return Device(name or "SIMULATED device", "simulated"), True
    if "hip" in calls or name.startswith("AMD") or "hip_runtime_version" in trace.metadata:
        return Device(name or "AMD GPU", "amd"), False
    if "cuda" in calls or "cuLaunch" in calls or "NVIDIA" in name or "cuda_runtime_version" in trace.metadata:
        return Device(name or "NVIDIA GPU", "nvidia"), False
    if "xpu_runtime" in trace.categories:
        return Device(name or "Intel GPU", "intel"), False
    if "mtia_runtime" in trace.categories or "mtia_ccp_events" in trace.categories:
        return Device(name or "MTIA", "mtia"), False
    if len(trace.gpu):
        return Device(name or "unknown GPU", "unknown"), False
    return Device(name or "CPU", "unknown" if name else "cpu"), False


def _device_name(trace: Trace) -> str:
    listed: Any = trace.metadata.get("deviceProperties")
    devices = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    used = {trace.lanes[lane][0] for lane in trace.gpu.lane[:1000].tolist()}
    found = [str(item.get("name") or "") for item in devices if item.get("id") in used]
    found = found or [str(item.get("name") or "") for item in devices]
    return found[0] if found else ""

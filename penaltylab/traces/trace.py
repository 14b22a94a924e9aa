"""A trace in memory: typed numpy columns, one table for each sort of event."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.int8]


@dataclass(slots=True)
class Slices:
    """Complete events, sorted by start and, where starts are equal, the longest first.

    `start` and `dur` are microseconds from `Trace.origin_us`; `name` and `lane` index `Trace.names` and `Trace.lanes`.
    """

    start: Floats
    dur: Floats
    name: Codes
    lane: Codes

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> Floats:
        return self.start + self.dur


@dataclass(slots=True)
class LinkedSlices(Slices):
    """Slices that carry what joins the host to the device; -1 where the file does not say.

    `kind` is the kind of GPU operation (`schema.KERNEL` ...), of a runtime call its memcpy kind (1 HtoD, 2 DtoH,
    3 DtoD), and of an operator its `non_blocking` argument (0 false, 1 true). `stream` is what a call waits on, `stack`
    the code of its `Call stack` argument in `Trace.names`.
    """

    correlation: Ints
    external_id: Ints
    bytes: Ints
    stream: Ints
    kind: Flags
    stack: Codes


class Device(msgspec.Struct, frozen=True):
    """The accelerator that a trace was recorded on."""

    name: str
    vendor: str


@dataclass(slots=True)
class Trace:
    """Everything that analysis needs of one file."""

    path: str
    device: Device
    simulated: bool
    origin_us: float
    events: int
    names: list[str]
    lanes: list[tuple[Any, Any]]
    lane_names: dict[int, str]
    gpu: LinkedSlices
    runtime: LinkedSlices
    syncs: LinkedSlices
    operators: LinkedSlices
    annotations: Slices
    frames: Slices
    overhead: Slices
    categories: dict[str, int]
    metadata: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def penaltylab(self) -> dict[str, Any]:
        """What this project's own recordings say about their run; empty for a foreign trace."""
        own = self.metadata.get("penaltylab")
        return own if isinstance(own, dict) else {}

    @property
    def span_us(self) -> float:
        """From the first to the last GPU operation or runtime call; 0 where there is neither."""
        tables = [table for table in (self.gpu, self.runtime) if len(table)]
        if not tables:
            return 0.0
        return max(float(table.end.max()) for table in tables) - min(float(table.start.min()) for table in tables)

    def stream_of(self, lane: int) -> int | str | None:
        """The stream that a GPU lane stands for: its tid, a number wherever the file has one."""
        if lane < 0:
            return None
        tid = self.lanes[lane][1]
        if isinstance(tid, str):
            digits = tid.removeprefix("stream ").strip()
            return int(digits) if digits.isdecimal() and len(digits) < 19 else tid
        return int(tid) if isinstance(tid, (int, float)) else None

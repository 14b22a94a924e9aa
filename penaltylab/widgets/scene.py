"""What a timeline shows, as plain columns: the runs, their lanes, and the slices of every row of a lane."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from penaltylab.traces import rows as kinds
from penaltylab.traces.trace import Floats

RUNNING, STALL, WAIT, KERNEL, H2D, D2H = kinds.RUNNING, kinds.STALL, kinds.WAIT, kinds.KERNEL, kinds.H2D, kinds.D2H
ANNOTATION, OPERATOR, CALL, MEMSET = range(8, 12)
"""Sorts of slice beyond those of the figure."""

HOST, CALLS, STREAM, COPIES = "host", "calls", "stream", "copies"
"""Kinds of lane."""

Codes = NDArray[np.uint32]


@dataclass(slots=True)
class Track:
    """Slices of one row that do not overlap, in order of start; us from the run's own zero.

    `name`, `site` and `note` number texts of the scene, 0 for none; `bytes` is NaN where the file does not say.
    """

    row: int
    start: Floats
    dur: Floats
    sort: NDArray[np.uint8]
    name: Codes
    site: Codes
    note: Codes
    bytes: Floats

    @classmethod
    def of(
        cls, row: int, start: Floats, dur: Floats, sort: int | NDArray[np.uint8], name: Codes | None = None,
        site: Codes | None = None, note: Codes | None = None, size: Floats | None = None,
    ) -> "Track":  # fmt: skip
        """A track whose missing columns are empty; one `sort` may stand for all."""
        none = np.zeros(len(start), np.uint32)
        sorts = np.full(len(start), sort, np.uint8) if isinstance(sort, int) else sort
        unknown = np.full(len(start), np.nan)
        return cls(row, start, dur, sorts, none if name is None else name, none if site is None else site,
                   none if note is None else note, unknown if size is None else size)  # fmt: skip

    def __len__(self) -> int:
        return len(self.start)

    def on(self, row: int) -> "Track":
        """The same slices on another row."""
        return replace(self, row=row)

    def only(self, chosen: NDArray[np.bool_]) -> "Track":
        """The chosen slices."""
        columns = (self.start, self.dur, self.sort, self.name, self.site, self.note, self.bytes)
        return Track(self.row, *(column[chosen] for column in columns))  # type: ignore[arg-type]


@dataclass(slots=True)
class Lane:
    """One labelled band of a run: tracks at the same row are drawn over one another, the last on top."""

    label: str
    kind: str
    tracks: list[Track]

    @property
    def rows(self) -> int:
        return max((track.row for track in self.tracks), default=0) + 1


@dataclass(slots=True)
class Run:
    """One run. Times are in us from the start of the first step of its window, which all runs share as zero."""

    label: str
    summary: str
    simulated: bool
    window: float
    extent: tuple[float, float]
    steps: list[tuple[float, int]]
    lanes: list[Lane]
    note: str = ""


@dataclass(slots=True)
class Scene:
    """All that one timeline shows."""

    runs: list[Run]
    names: list[str]
    sites: list[str]
    notes: list[str] = field(default_factory=list)

    @property
    def slices(self) -> int:
        return sum(len(track) for run in self.runs for lane in run.lanes for track in lane.tracks)

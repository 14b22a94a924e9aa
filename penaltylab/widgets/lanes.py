"""The lanes of a run: its stalled threads, what they call, its streams and its copies, over the whole of a trace."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penaltylab.traces import schema
from penaltylab.traces.copies import TO_DEVICE
from penaltylab.traces.fold import human_bytes
from penaltylab.traces.rows import STALL_KINDS, duration, merged, stream_label, stream_lanes
from penaltylab.traces.sites import find_sites
from penaltylab.traces.stalls import Analysis, Stall
from penaltylab.traces.trace import Floats, LinkedSlices, Slices
from penaltylab.widgets import scene
from penaltylab.widgets.intervals import depths, without
from penaltylab.widgets.names import Table
from penaltylab.widgets.scene import Codes, Lane, Track

_MOST_STREAMS: Final = 8
_MOST_THREADS: Final = 3
_ROWS: Final = {scene.ANNOTATION: 2, scene.OPERATOR: 3, scene.CALL: 1}
"""Rows that nested annotations, operators and runtime calls may take; what is deeper is left to Perfetto."""


@dataclass(slots=True)
class Texts:
    """The texts of a scene, shared by its runs."""

    names: Table
    sites: Table
    notes: Table


@dataclass(slots=True)
class Builder:
    """Builds the lanes of one run, of the slices between `first` and `last`, in us from `zero`."""

    analysis: Analysis
    texts: Texts
    zero: float
    first: float
    last: float

    def lanes(self) -> list[Lane]:
        threads = self._threads()
        built = [lane for thread in threads for lane in self._host(thread, len(threads) > 1)]
        streams = stream_lanes(self.analysis.trace, self.first, self.last, _MOST_STREAMS)
        built += [self._stream(lane) for lane in streams]
        return [lane for lane in [*built, self._copies()] if any(len(track) for track in lane.tracks)]

    def _threads(self) -> list[int]:
        """The host threads that stood still, longest first, and the busiest one."""
        trace = self.analysis.trace
        table = trace.runtime if len(trace.runtime) else trace.operators if len(trace.operators) else trace.annotations
        stalled: dict[int, float] = {}
        for stall, lane in zip(self.analysis.stalls, self.analysis.lanes, strict=True):
            stalled[lane] = stalled.get(lane, 0.0) + stall.stall_us
        busiest = [int(np.bincount(table.lane).argmax())] if len(table) else []
        standing = sorted(stalled, key=lambda lane: -stalled[lane])
        return list(dict.fromkeys([*standing[: _MOST_THREADS - 1], *busiest, *standing]))[:_MOST_THREADS]

    def _host(self, thread: int, several: bool) -> list[Lane]:
        trace = self.analysis.trace
        calls = [
            self._calls(thread, table, sort)
            for table, sort in (
                (trace.annotations, scene.ANNOTATION),
                (trace.operators, scene.OPERATOR),
                (trace.runtime, scene.CALL),
            )
        ]
        stalls = self._stalls(thread)
        busy = without(self._union(calls), self._union(stalls))
        running = Track.of(0, busy[:, 0], busy[:, 1] - busy[:, 0], scene.RUNNING)
        label = f"host {trace.lanes[thread][1]}" if several else "host"
        return [Lane(label, scene.HOST, [running, *stalls]), Lane("calls", scene.CALLS, _stacked(calls))]

    def _union(self, tracks: list[Track]) -> Floats:
        """When any slice of these tracks goes on, as rows of begin and end."""
        begins = np.concatenate([np.zeros(0), *(track.start for track in tracks)])
        ends = begins + np.concatenate([np.zeros(0), *(track.dur for track in tracks)])
        first, last = self.first - self.zero, self.last - self.zero
        return np.array(merged(begins, ends, first, last, closed=0.0)).reshape(-1, 2) + first

    def _calls(self, thread: int, table: Slices, sort: int) -> Track:
        chosen = np.flatnonzero((table.lane == thread) & self._inside(table))
        runtime = isinstance(table, LinkedSlices) and sort == scene.CALL
        sites = self._sites(chosen) if runtime else None
        size = _sizes(table.bytes[chosen]) if isinstance(table, LinkedSlices) and runtime else None
        return self._track(table, chosen, sort, sites, size)

    def _stalls(self, thread: int) -> list[Track]:
        """Stalls and waits as tracks without overlaps."""
        own = [
            stall
            for stall, lane in zip(self.analysis.stalls, self.analysis.lanes, strict=True)
            if lane == thread and stall.start_us < self.last and stall.start_us + stall.stall_us > self.first
        ]
        start = np.array([stall.start_us for stall in own]) - self.zero
        track = Track.of(
            0,
            start,
            np.array([stall.stall_us for stall in own], float),
            np.array([scene.STALL if stall.kind in STALL_KINDS else scene.WAIT for stall in own], np.uint8),
            _codes([self.texts.names[f"{stall.kind}: {stall.call}"] for stall in own]),
            _codes([self.texts.sites[stall.site] for stall in own]),
            _codes([self.texts.notes[_explained(stall)] for stall in own]),
            np.array([np.nan if stall.bytes is None else stall.bytes for stall in own], float),
        )
        return [part.on(0) for part in _levels(track)]

    def _stream(self, lane: int) -> Lane:
        gpu = self.analysis.trace.gpu
        chosen = np.flatnonzero((gpu.lane == lane) & (gpu.kind != schema.MEMCPY) & self._inside(gpu))
        sort = np.where(gpu.kind[chosen] == schema.MEMSET, scene.MEMSET, scene.KERNEL).astype(np.uint8)
        track = self._track(gpu, chosen, sort, self._sites(self.analysis.launch[chosen]))
        return Lane(stream_label(self.analysis.trace, lane), scene.STREAM, _levels(track, 2))

    def _copies(self) -> Lane:
        copies, gpu = self.analysis.copies, self.analysis.trace.gpu
        inside = self._inside(gpu)[copies.gpu]
        tracks = []
        for row, (sort, way) in enumerate(((scene.H2D, copies.direction == TO_DEVICE),
                                           (scene.D2H, copies.direction != TO_DEVICE))):  # fmt: skip
            rows = np.flatnonzero(way & inside)
            rows = rows[np.argsort(gpu.start[copies.gpu[rows]], kind="stable")]
            size = _sizes(copies.bytes[rows])
            track = self._track(gpu, copies.gpu[rows], sort, self._sites(copies.call[rows]), size)
            tracks += [part.on(row) for part in _levels(track, 2)]
        return Lane("copies", scene.COPIES, tracks)

    def _track(
        self, table: Slices, chosen: NDArray[np.intp], sort: int | NDArray[np.uint8],
        sites: Codes | None = None, size: Floats | None = None,
    ) -> Track:  # fmt: skip
        trace = self.analysis.trace
        known, where = np.unique(table.name[chosen], return_inverse=True)
        names = _codes([self.texts.names[trace.names[code]] for code in known.tolist()])[where]
        start = table.start[chosen] - self.zero
        return Track.of(0, start, table.dur[chosen], sort, names, sites, None, size)

    def _inside(self, table: Slices) -> NDArray[np.bool_]:
        return (table.start <= self.last) & (table.end >= self.first)

    def _sites(self, calls: NDArray[np.intp]) -> Codes:
        found = np.zeros(len(calls), np.uint32)
        known = np.flatnonzero(calls >= 0)
        found[known] = [self.texts.sites[site] for site in find_sites(self.analysis.trace, calls[known])]
        return found


def _stacked(tracks: list[Track]) -> list[Track]:
    """Annotations above operators above runtime calls, each as deep as it nests and as `_ROWS` lets it."""
    placed, top = [], 0
    for track, most in zip(tracks, _ROWS.values(), strict=True):
        parts = _levels(track, most)
        placed += [part.on(top + row) for row, part in enumerate(parts)]
        top += len(parts)
    return placed


def _levels(track: Track, most: int = 4) -> list[Track]:
    """A track taken apart into tracks of slices that do not overlap; what nests deeper than `most` is left out."""
    depth = depths(track.start, track.dur)
    return [track.only(depth == level) for level in range(min(most, int(depth.max(initial=-1)) + 1))]


def _codes(numbers: list[int]) -> Codes:
    return np.array(numbers, np.uint32)


def _sizes(column: NDArray[np.int64]) -> Floats:
    return np.where(column >= 0, column, np.nan)


def _explained(stall: Stall) -> str:
    """What a stall waited on, what it cost the GPU, and what to do about it: a line each."""
    if isinstance(stall.waited_on, str):
        waited = stall.waited_on
    else:
        waited = ", ".join(f"{wait.name} on stream {wait.stream} ({duration(wait.us)})" for wait in stall.waited_on)
    size = f"{human_bytes(stall.bytes)} of {stall.memory} memory; " if stall.bytes is not None else ""
    idle = f"the GPU then idled {duration(stall.bubble_us)}" if stall.bubble_us else "no GPU time was lost by it"
    return f"{size}waited on {waited or 'nothing'}\n{idle}\n{stall.advice}"

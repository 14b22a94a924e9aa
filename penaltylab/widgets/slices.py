"""A scene as one block of bytes that a browser maps to typed arrays without reading slice by slice."""

import gzip
from typing import Any, Final

import msgspec
import numpy as np

from penaltylab.widgets.scene import Run, Scene, Track

VERSION: Final = 1
COLUMNS: Final = (
    ("start", "<f8"),
    ("bytes", "<f8"),
    ("dur", "<f4"),
    ("name", "<u4"),
    ("site", "<u4"),
    ("note", "<u4"),
    ("sort", "<u1"),
)
"""Columns in the order in which they lie in the block, widest first, so that each is aligned."""
_GZIP_LEVEL = 6


def pack(scene: Scene) -> bytes:
    """The scene, gzipped: the length of a header as 4 bytes, the header as JSON, then one column behind the other.

    Everything is little-endian. The header is padded with spaces to a multiple of 8 bytes (with its length), holds the
    texts, and says of each track how many slices of the columns are its own, in order.
    """
    tracks = [track for run in scene.runs for lane in run.lanes for track in lane.tracks]
    header = {
        "version": VERSION,
        "slices": scene.slices,
        "names": scene.names,
        "sites": scene.sites,
        "notes": scene.notes,
        "runs": [_run(run) for run in scene.runs],
    }
    text = msgspec.json.encode(header)
    text += b" " * (-(4 + len(text)) % 8)
    columns = [_column(tracks, name, kind) for name, kind in COLUMNS]
    return gzip.compress(len(text).to_bytes(4, "little") + text + b"".join(columns), _GZIP_LEVEL, mtime=0)


def _column(tracks: list[Track], name: str, kind: str) -> bytes:
    values = [getattr(track, name) for track in tracks]
    return np.concatenate([np.zeros(0), *values]).astype(kind).tobytes()


def _run(run: Run) -> dict[str, Any]:
    lanes = [
        {
            "label": lane.label,
            "kind": lane.kind,
            "rows": lane.rows,
            "tracks": [{"row": track.row, "count": len(track)} for track in lane.tracks],
        }
        for lane in run.lanes
    ]
    return {
        "label": run.label,
        "summary": run.summary,
        "simulated": run.simulated,
        "window": run.window,
        "extent": run.extent,
        "steps": run.steps,
        "note": run.note,
        "lanes": lanes,
    }

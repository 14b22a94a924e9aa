"""The block of bytes that a browser maps: read back here as the page reads it."""

import gzip
import json
from typing import Any

import numpy as np

from penaltylab.widgets.runs import scene_of
from penaltylab.widgets.scene import STREAM, Lane, Run, Scene, Track
from penaltylab.widgets.slices import COLUMNS, pack

from .build import decode_trace, large_scene

BYTES_A_SLICE = sum(int(kind[2]) for _, kind in COLUMNS)


def unpacked(block: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the columns."""
    plain = gzip.decompress(block)
    length = int.from_bytes(plain[:4], "little")
    header = json.loads(plain[4 : 4 + length])
    columns, offset = {}, 4 + length
    for name, kind in COLUMNS:
        assert offset % int(kind[2]) == 0, f"{name} is not aligned: a typed array refuses it"
        columns[name] = np.frombuffer(plain, kind, header["slices"], offset)
        offset += columns[name].nbytes
    assert offset == len(plain)
    return header, columns


def test_columns_come_back_as_they_were_in_the_order_of_the_tracks() -> None:
    first = Track.of(0, np.array([0.0, 2.5]), np.array([1.0, 0.25]), 3, np.array([1, 2], np.uint32))
    second = Track.of(1, np.array([-7.125]), np.array([4.0]), 1, size=np.array([64.0]))
    run = Run("run", "sum", True, 10.0, (-8.0, 3.0), [(0.0, 4)], [Lane("stream 7", STREAM, [first, second])], "cut")
    header, columns = unpacked(pack(Scene([run], ["", "a", "b"], [""], [""])))
    assert columns["start"].tolist() == [0.0, 2.5, -7.125]
    assert columns["dur"].tolist() == [1.0, 0.25, 4.0]
    assert columns["name"].tolist() == [1, 2, 0]
    assert columns["sort"].tolist() == [3, 3, 1]
    assert columns["bytes"][2] == 64
    assert np.isnan(columns["bytes"][:2]).all()
    assert header["names"] == ["", "a", "b"]
    assert header["runs"] == [
        {
            "label": "run", "summary": "sum", "simulated": True, "window": 10.0, "extent": [-8.0, 3.0],
            "steps": [[0.0, 4]], "note": "cut",
            "lanes": [{"label": "stream 7", "kind": "stream", "rows": 2,
                       "tracks": [{"row": 0, "count": 2}, {"row": 1, "count": 1}]}],
        }
    ]  # fmt: skip


def test_every_length_of_header_leaves_the_columns_aligned() -> None:
    for letters in range(9):
        unpacked(pack(Scene([], ["", "n" * letters], [""])))


def test_the_same_scene_makes_the_same_bytes() -> None:
    assert pack(scene_of([decode_trace()])) == pack(scene_of([decode_trace()]))


def test_two_hundred_thousand_slices_are_a_few_megabytes() -> None:
    block = pack(large_scene())
    header, columns = unpacked(block)
    assert header["slices"] == len(columns["start"]) == 200_000
    assert len(block) < 3_000_000 < 200_000 * BYTES_A_SLICE

"""Real traces of other people's programs, where they are at hand: the figures that were worked out for them by hand."""

import csv
import os
from pathlib import Path

import pytest

from penaltylab.traces.findings import Findings, inspect_trace
from penaltylab.traces.timeline import plot_timelines

FOLDER = Path(os.environ.get("PENALTYLAB_TRACES") or Path(__file__).parents[3] / "shared" / "traces")
EXPECTED = FOLDER / "EXPECTED.tsv"
ROWS = list(csv.DictReader(EXPECTED.open(), delimiter="\t")) if EXPECTED.is_file() else []
pytestmark = pytest.mark.skipif(
    not ROWS, reason="the shared traces are not here: set PENALTYLAB_TRACES to their folder"
)


def findings(name: str) -> Findings:
    return inspect_trace(FOLDER / f"{name}.json.gz").findings


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_figures_are_as_expected(row: dict[str, str]) -> None:
    found = findings(row["name"])
    copies = found.copies
    kinds = {"pageable": copies.h2d_pageable, "pinned": copies.h2d_pinned, "unknown": copies.h2d_unknown}
    assert (found.gpu_ops, copies.h2d, copies.h2d_blocking) == tuple(
        int(row[key]) for key in ("gpu_ops", "h2d", "blocking_h2d")
    )
    assert found.span_us / 1e3 == pytest.approx(float(row["span_ms"]), abs=0.06)
    assert found.stall_us["blocking-h2d"] / 1e3 == pytest.approx(float(row["stall_ms"]), rel=0.01, abs=5e-4)
    assert ",".join(kind for kind, count in kinds.items() if count) in (row["memory_kinds"], "-", "")
    waits = [stall for stall in found.stalls if stall.kind in ("device-sync", "event-sync")]
    assert len(waits) == int(row["device_or_event_syncs"])
    assert sum(stall.stall_us for stall in waits) / 1e3 == pytest.approx(
        float(row["device_or_event_sync_ms"]), abs=1e-3
    )


@pytest.mark.skipif(not ROWS, reason="the shared traces are not here")
def test_half_a_second_lost_in_one_copy_of_sixty_bytes() -> None:
    longest = max(findings("mi300x-sglang-qwen3-8b-prefill-decode").stalls, key=lambda stall: stall.stall_us)
    assert longest.stall_us == pytest.approx(493_208, rel=0.01)
    assert (longest.bytes, longest.site) == (60, "forward_batch_info.py(443): init_new")
    assert longest.waited_on == "untraced work"


def test_a_collective_on_another_stream_is_named() -> None:
    longest = max(findings("v100-dlrm-rank0").stalls, key=lambda stall: stall.stall_us)
    assert isinstance(longest.waited_on, list)
    assert (longest.stream, longest.waited_on[0].stream) == (7, 84)
    assert longest.waited_on[0].name.startswith("ncclKernel_SendRecv")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_one_can_be_drawn(row: dict[str, str]) -> None:
    assert plot_timelines([FOLDER / f"{row['name']}.json.gz"]).axes

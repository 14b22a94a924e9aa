"""The bench of the reader: the trace that it makes, and what its rows must show."""

import json
from pathlib import Path

import pytest

from penaltylab.bench import traces as bench
from penaltylab.traces.findings import inspect_trace


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENALTYLAB_TRACES", raising=False)
    monkeypatch.setattr(bench, "_SEED_STEPS", 20)


@pytest.mark.usefixtures("made_up")
def test_the_large_trace_repeats_the_small_one_with_other_times_and_ids(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    events = bench.write_large(path, 2_000_000)
    document = json.loads(path.read_text())
    assert path.stat().st_size >= 2_000_000
    assert len(document["traceEvents"]) == events
    calls = [event["args"]["correlation"] for event in document["traceEvents"] if event.get("cat") == "cuda_runtime"]
    assert len(set(calls)) == len(calls)
    stalls = inspect_trace(path).findings.stalls
    assert len(stalls) == 20 * (events // 2440)
    assert {(stall.kind, stall.stall_us, stall.site) for stall in stalls} == {
        ("blocking-h2d", 75.875, "model.py(0): layer")
    }


@pytest.mark.slow
@pytest.mark.usefixtures("made_up")
def test_reading_is_fast_bounded_and_grows_with_the_file() -> None:
    rows = {row["way"]: row for row in bench.run(megabytes=64)}
    inspect, quarter = rows["inspect"], rows["inspect, a quarter of it"]
    assert rows["json and the same analysis"]["times_inspect"] > 3
    assert rows["inspect, from .gz"]["times_inspect"] < 2
    assert inspect["peak_MiB"] * 2**20 < 60e6 + 64 * inspect["events"]
    assert inspect["seconds"] < 1.15 * 4 * quarter["seconds"]

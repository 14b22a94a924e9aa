"""What there is beyond #28500, as relations; and what is measured, simulated or calculated says which it is."""

from pathlib import Path

import pytest
from pandas import DataFrame

from penaltylab.bench.apply import Case
from penaltylab.study import alternatives
from penaltylab.study.collect import Collector
from penaltylab.study.records import read_rows

SMALL = {"device": "emu", "steps": 14, "warmup": 6, "batch_size": 4, "vocab_size": 256, "forward_ms": 2.5}
CASES = [
    Case("additive", 4, 32_000, 16),
    Case("additive", 4, 32_000, 512),
    Case("additive", 4, 32_000, 16_000),
    Case("repetition", 4, 32_000, 512),
]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Collector:
    monkeypatch.setenv("PENALTYLAB_CACHE", str(tmp_path / "cache"))
    return Collector(str(tmp_path), "alternatives", **SMALL)


def test_all_ways_give_the_same_tokens(study: Collector) -> None:
    table = alternatives.same_tokens(study)
    assert table["same"].all()
    assert (table["ways"] >= 2).all()


def test_a_way_that_gives_other_tokens_is_not_passed_over(study: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(alternatives.ARMS, "pinned_ring", alternatives.ARMS[alternatives.EXACT])
    with pytest.raises(RuntimeError, match="pinned_ring gives other tokens"):
        alternatives.same_tokens(study)


@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_only_the_blocking_copy_stalls_and_resident_makes_a_copy_less(study: Collector, path: str) -> None:
    table = alternatives.step_times(study, path)
    assert (table["stall"] > 0).tolist() == [True, False, False, False, False, False]
    assert (table["step"].iloc[1:] < table["step"]["blocking"]).all()
    assert table["copies"]["device_resident"] == table["copies"]["pinned_async"] - 1
    assert table["copies"][alternatives.EXACT] < table["copies"]["device_resident"]
    assert "SIMULATED" in table.columns.name


def test_the_host_s_cost_says_that_it_was_measured(study: Collector, tmp_path: Path) -> None:
    table = alternatives.host_costs(study, [8, 256])
    assert "CPU tensors" in table.columns.name
    assert "SIMULATED" not in table.columns.name
    assert table["ratio"][256] > table["ratio"][8] > 1
    assert [row.arm for row in read_rows(tmp_path)] == ["host, batch 8", "host, batch 256"]
    assert all("CPU tensors" in name for row in read_rows(tmp_path) for name in row.metrics)


@pytest.fixture
def costs(study: Collector) -> DataFrame:
    return alternatives.apply_costs(study, CASES)


def test_a_short_history_is_sparse_and_a_long_one_dense(costs: DataFrame) -> None:
    assert costs["chosen"].tolist() == ["sparse", "sparse", "dense", "sparse"]
    assert "CPU tensors" in costs.columns.name


def test_on_a_gpu_is_bytes_over_bandwidth_and_says_so(study: Collector, costs: DataFrame) -> None:
    table = alternatives.on_a_gpu(study, costs)
    assert "not a measurement: 3.35 TB/s" in table.columns.name
    assert (table["dense, bytes"] - table["dense, MB"] / 3.35).abs().max() < 0.1
    short, long = table.iloc[0], table.iloc[2]
    assert short["ours, MB"] < 0.01 * short["dense, MB"]
    assert short["ours, peak MB"] == 0
    assert long["ours, MB"] == long["dense, MB"]


def test_the_figures_are_pngs_and_say_what_they_are_of(study: Collector, costs: DataFrame) -> None:
    steps = alternatives.plot_steps(study, [alternatives.step_times(study, "normal")])
    apply = alternatives.plot_apply(study, costs)
    assert all(image.data.startswith(b"\x89PNG") for image in (steps, apply))
    assert "SIMULATED" in steps.alt
    assert "CPU tensors" in apply.alt

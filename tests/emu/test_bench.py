import subprocess
import sys

import msgspec
import pytest
import torch

from penaltylab import emu
from penaltylab.bench import emu as bench


@pytest.mark.slow
def test_an_operator_costs_at_most_15_us_and_a_forward_a_quarter_more_than_on_cpu() -> None:
    done = subprocess.run([sys.executable, "-m", "penaltylab.bench.emu"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
    assert {row["case"] for row in rows} >= {"add", "mm", "softmax", "cat", "view", "scatter_add_"}
    assert {row["case"]: row["overhead_us"] for row in rows if row.get("overhead_us", 0) > 15} == {}
    ratios = {row["case"]: row["ratio"] for row in rows if "ratio" in row}
    assert len(ratios) == 3
    assert {case: ratio for case, ratio in ratios.items() if ratio > 1.25} == {}


def test_a_row_is_the_difference_by_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_ROUNDS", 1)
    monkeypatch.setattr(bench, "_CALLS", 2)
    emu.register()
    (where,) = [row for row in bench.operator_rows() if row["case"] == "where"]
    assert where["overhead_us"] == pytest.approx((where["emu_us"] - where["cpu_us"]) / 2, abs=0.02)


def test_the_models_of_both_devices_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_MODEL_ROUNDS", 1)
    emu.register()
    torch.manual_seed(0)
    model = bench.GPT2(layers=2, width=32, heads=4, vocab=64, context=64).eval()
    rows = bench.model_rows(model)
    assert [row["ratio"] == pytest.approx(row["emu_us"] / row["cpu_us"], rel=0.02) for row in rows] == [True] * 3
    ids = torch.arange(9).unsqueeze(0)
    on_cpu = model(ids)
    torch.testing.assert_close(model.to("emu")(ids.to("emu")).cpu(), on_cpu)
    assert sum(p.numel() for p in bench.GPT2(layers=0).parameters()) == (50257 + 1024) * 768 + 2 * 768

import subprocess
import sys

import msgspec
import pytest

from penaltylab.bench import emu as bench


@pytest.mark.slow
def test_a_dispatched_operator_costs_at_most_15_us_more_than_on_cpu() -> None:
    done = subprocess.run([sys.executable, "-m", "penaltylab.bench.emu"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
    assert {row["case"] for row in rows} >= {"add", "mm", "softmax", "cat", "view", "scatter_add_"}
    assert {row["case"]: row["overhead_us"] for row in rows if row["overhead_us"] > 15} == {}


def test_a_row_is_the_difference_by_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_ROUNDS", 1)
    monkeypatch.setattr(bench, "_CALLS", 2)
    (where,) = [row for row in bench.run() if row["case"] == "where"]
    assert where["overhead_us"] == pytest.approx((where["emu_us"] - where["cpu_us"]) / 2, abs=0.02)

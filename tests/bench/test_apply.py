"""The bench of the apply: what it compares is bit-equal, and what it says of bytes and memory follows from shapes."""

from pathlib import Path
from typing import Any

import pytest

from penaltylab.bench.apply import HISTORIES, KINDS, Case, every_case, run
from penaltylab.bench.interleave import host_us

BATCH, VOCAB, HISTORY = 4, 32_000, 64
DENSE = 4 * BATCH * VOCAB


@pytest.fixture(autouse=True)
def without_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENALTYLAB_CACHE", str(tmp_path))


def quick(*cases: Case) -> list[dict[str, Any]]:
    return run(cases, rounds=1, at_least_us=1)


def test_a_dense_additive_step_makes_a_tensor_of_the_batch_and_passes_over_it_ten_times() -> None:
    (row,) = quick(Case("additive", BATCH, VOCAB, HISTORY))
    assert row["chosen"] == "sparse"
    assert row["upstream_bytes"] == 10 * DENSE  # zeros 1, two subtractions 3 each, the addition to the logits 3
    assert row["upstream_peak"] == DENSE


def test_a_sparse_additive_step_allocates_nothing_and_moves_what_the_history_names() -> None:
    (row,) = quick(Case("additive", BATCH, VOCAB, HISTORY))
    assert row["ours_bytes"] == BATCH * HISTORY * (8 + 3 * 4)
    assert row["ours_peak"] == 0


def test_repetition_falls_as_far() -> None:
    (row,) = quick(Case("repetition", BATCH, VOCAB, HISTORY))
    assert row["upstream_peak"] > 4 * DENSE
    assert row["ours_peak"] < 20 * BATCH * HISTORY
    assert row["upstream_bytes"] > 200 * row["ours_bytes"]


def test_a_long_history_takes_the_same_dense_passes() -> None:
    (row,) = quick(Case("additive", BATCH, VOCAB, VOCAB // 4))
    assert row["chosen"] == "dense"
    assert row["ours_bytes"] == row["upstream_bytes"]


def test_a_row_says_what_it_is() -> None:
    (row,) = quick(Case("additive", BATCH, VOCAB, HISTORY))
    where = {"kind": "additive", "batch": BATCH, "vocab": VOCAB, "history": HISTORY, "on": "CPU tensors"}
    assert (row["suite"], row["case"], row["against"]) == ("apply", where, "our dense passes")
    assert row["ratio"] == row["upstream_us"] / row["ours_us"] > 0


def test_every_case_is_within_the_limit_and_every_axis_is_covered() -> None:
    cases = every_case(1 << 28)
    assert max(4 * case.batch * case.vocab for case in cases) <= 1 << 28
    assert {case.kind for case in cases} == set(KINDS)
    assert {case.history for case in cases} == set(HISTORIES)
    assert {case.batch for case in every_case(4 << 30)} == {1, 8, 64, 256, 1024, 4096}


@pytest.mark.slow
def test_the_sparse_step_is_as_much_cheaper_as_promised() -> None:
    small, large = run([Case("additive", 64, 32_000, 512), Case("additive", 256, 128_256, 512)])
    assert small["ratio"] > 12
    assert large["ratio"] > 50  # 115 to 135 on a quiet machine; its memory is shared with whatever else runs


def test_interleaving_takes_turns_and_reports_the_lowest() -> None:
    order: list[str] = []
    took = host_us({name: lambda name=name: order.append(name) for name in "ab"}, rounds=3, at_least_us=0.001)
    assert order[-6:] == list("ababab")
    assert set(took) == {"a", "b"}
    assert all(us > 0 for us in took.values())

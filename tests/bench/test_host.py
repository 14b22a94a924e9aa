"""The bench of the host: both sides hand over the same tokens, and ours costs less."""

import pytest
import torch

from penaltylab.bench import host
from penaltylab.engine.h2d import PinnedRing, last_tokens


@pytest.mark.parametrize("size", [1, 8, 300])
def test_both_sides_hand_over_the_same_tokens(size: int) -> None:
    batch = host._batch(size, torch.device("cpu"))
    ring = PinnedRing(batch.device, size)
    assert ring(batch).tolist() == last_tokens(batch) == [rid + 1 for rid in range(size)]


def test_ours_is_cheaper_and_the_more_so_the_larger_the_batch(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("PENALTYLAB_CACHE", str(tmp_path))
    rows = host.run([8, 256])
    assert [row["case"] for row in rows] == [{"batch": size, "on": "CPU tensors"} for size in (8, 256)]
    assert [row["bytes"] for row in rows] == [64, 2048]
    assert rows[0]["ratio"] > 4
    assert rows[1]["ratio"] > 25

"""The Llama decoder: its cache against a forward without one, and both paths through the whole engine."""

import pytest
import torch

from penaltylab.engine.llama import SHAPES, Llama
from penaltylab.engine.models import ForwardBatch
from penaltylab.engine.run import decode

CPU = torch.device("cpu")
VOCAB = 50


def ask(tokens: torch.Tensor, start: int, context: int) -> ForwardBatch:
    batch, n = tokens.shape
    positions = torch.arange(start, start + n).expand(batch, n)
    return ForwardBatch(tokens, positions, torch.arange(batch), torch.zeros(batch, dtype=torch.int64), context)


def model() -> Llama:
    return Llama(SHAPES["tiny"], VOCAB, seed=0, slots=2, longest=16, device=CPU)


def test_decoding_with_the_cache_equals_one_forward_over_everything():
    tokens = torch.randint(VOCAB, (2, 10), generator=torch.Generator().manual_seed(0))
    whole = model().logits(ask(tokens, 0, 10))
    cached = model()
    steps = [cached.logits(ask(tokens[:, :4], 0, 4))]
    steps += [cached.logits(ask(tokens[:, i : i + 1], i, i + 1)) for i in range(4, 10)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)


def test_a_token_does_not_see_those_behind_it_nor_stale_cache_entries():
    tokens = torch.randint(VOCAB, (1, 6), generator=torch.Generator().manual_seed(0))
    clean, stale = model(), model()
    stale.logits(ask(tokens.flip(1), 0, 6))
    torch.testing.assert_close(stale.logits(ask(tokens, 0, 6))[:, :3], clean.logits(ask(tokens[:, :3], 0, 3)))


def test_at_asks_for_one_position_alone():
    tokens = torch.randint(VOCAB, (2, 5), generator=torch.Generator().manual_seed(0))
    every = model().logits(ask(tokens, 0, 5))
    one = model().logits(ask(tokens, 0, 5), at=torch.tensor([1, 4]))
    torch.testing.assert_close(one, torch.stack([every[0, 1:2], every[1, 4:5]]))


SMALL = {"device": "emu", "model": "llama", "vocab_size": 64, "batch_size": 3, "steps": 12, "warmup": 2}


@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_every_strategy_decodes_the_same_tokens(path):
    runs = [
        decode(**SMALL, path=path, scenario="churn", h2d=h2d) for h2d in ("blocking", "pinned_async", "device_resident")
    ]
    assert runs[0].tokens == runs[1].tokens == runs[2].tokens
    assert all(run.hazards == [] for run in runs)


def test_greedy_speculation_with_exact_penalties_is_lossless_here_too():
    normal = decode(**SMALL, accounting="exact").tokens
    eagle = decode(**SMALL, path="eagle", accounting="exact").tokens
    for rid, tokens in normal.items():
        assert eagle[rid][: len(tokens)] == tokens

"""The Markov target and draft: exact logits, and agreement at the rate asked for."""

import pytest
import torch

from penaltylab.engine.models import CONTEXTS, LOGIT_STEP, ForwardBatch, MarkovDraft, MarkovModel

CPU = torch.device("cpu")


def last(tokens: torch.Tensor, keys: torch.Tensor, positions: torch.Tensor) -> ForwardBatch:
    return ForwardBatch(tokens.unsqueeze(1), positions.unsqueeze(1), torch.zeros_like(keys), keys, context=0)


@pytest.mark.parametrize("vocab_size", [16, 257, 4096])
def test_values_of_a_row_are_distinct_and_dyadic(vocab_size):
    logits = MarkovModel(vocab_size, 0, CPU).after(torch.arange(CONTEXTS))
    assert logits.shape == (CONTEXTS, vocab_size)
    assert all(len(row.unique()) == vocab_size for row in logits)
    assert torch.equal(logits / LOGIT_STEP, (logits / LOGIT_STEP).round())


def test_next_token_is_the_argmax_of_the_row():
    model = MarkovModel(300, 3, CPU)
    ids = torch.arange(300)
    assert torch.equal(model.next_token(ids), model.after(ids).argmax(-1))


def test_a_large_vocabulary_needs_no_table_of_its_square():
    model = MarkovModel(151_936, 0, CPU)
    assert model.windows.untyped_storage().nbytes() == 4 * 4 * 151_936


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.7, 1.0])
def test_the_draft_agrees_at_the_accept_rate(rate):
    model = MarkovModel(4096, 0, CPU)
    keys, positions = torch.arange(1, 4001) * 7919, torch.arange(4000) % 50
    drafts = MarkovDraft(model, rate).propose(last(torch.arange(4000), keys, positions), k=3)
    first = (drafts[:, 0] == model.next_token(torch.arange(4000))).double().mean().item()
    third = (drafts[:, 2] == model.next_token(drafts[:, 1])).double().mean().item()
    assert first == pytest.approx(rate, abs=0.03)
    assert third == pytest.approx(rate, abs=0.03)


def test_a_proposal_depends_on_request_and_position_not_on_the_round():
    model = MarkovModel(64, 0, CPU)
    draft, key = MarkovDraft(model, 0.5), torch.tensor([123])
    whole = draft.propose(last(torch.tensor([5]), key, torch.tensor([9])), k=6)
    rest = draft.propose(last(whole[:, 2], key, torch.tensor([12])), k=3)
    assert torch.equal(whole[:, 3:], rest)

"""Sampling and verification: greedy is the argmax, and speculation leaves the target's distribution as it is."""

import torch

from penaltylab.engine.sampler import sample, verify
from penaltylab.engine.sampling import SamplingBatchInfo


def info(temperatures: list[float], vocab: int) -> SamplingBatchInfo:
    return SamplingBatchInfo(torch.tensor(temperatures).unsqueeze(1), not any(temperatures), vocab, None)


def test_greedy_ties_go_to_the_lowest_id():
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
    assert sample(logits, info([0.0], 4), torch.tensor([1]), torch.tensor([0])).tolist() == [1]


def test_greedy_verify_accepts_up_to_the_first_mismatch_and_adds_the_bonus_token():
    logits = torch.eye(5)[[3, 1, 4, 0]].unsqueeze(0)  # argmax 3, 1, 4, 0
    greedy, key, position = info([0.0], 5), torch.tensor([1]), torch.tensor([0])
    for drafts, length in ([3, 1, 4], 4), ([3, 1, 0], 3), ([3, 0, 4], 2), ([0, 1, 4], 1):
        tokens, accept_lens = verify(logits, torch.tensor([drafts]), greedy, key, position)
        assert accept_lens.tolist() == [length]
        assert tokens[0, :length].tolist() == [3, 1, 4, 0][:length]


def test_a_batch_mixes_greedy_and_sampled_rows():
    logits = torch.tensor([[0.0, 5.0, 0.0], [0.0, 5.0, 0.0]]).expand(2, 3).contiguous()
    mixed = info([0.0, 50.0], 3)
    drawn = {tuple(sample(logits, mixed, torch.tensor([1, 2]), torch.tensor([n, n])).tolist()) for n in range(60)}
    assert {first for first, _ in drawn} == {1}
    assert {second for _, second in drawn} == {0, 1, 2}


def test_speculative_sampling_has_the_targets_distribution():
    """Chi-square over 40,000 rounds; a right implementation fails with probability 1e-6 a position."""
    torch.manual_seed(0)
    vocab, rounds, k = 6, 40_000, 2
    logits = torch.randn(k + 1, vocab).expand(rounds, -1, -1).clone()
    target = torch.softmax(logits[0].double() / 0.8, -1)
    drafts = torch.tensor([[2, 4]]).expand(rounds, -1).contiguous()
    keys = torch.arange(1, rounds + 1) * 7919
    tokens, accept_lens = verify(logits, drafts, info([0.8] * rounds, vocab), keys, torch.full((rounds,), 5))
    for position in range(k + 1):
        reached = tokens[accept_lens > position, position]
        counts = torch.bincount(reached, minlength=vocab).double()
        expected = target[position] * len(reached)
        chi_square = ((counts - expected) ** 2 / expected).sum().item()
        assert chi_square < 35.9  # 5 degrees of freedom, 1e-6
    accepted = (accept_lens > 1).double().mean().item()
    assert abs(accepted - target[0, 2].item()) < 0.013

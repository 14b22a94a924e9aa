"""From penalised logits to tokens: greedy or by temperature, one token or a verified draft."""

import torch

from penaltylab.engine.noise import uniform
from penaltylab.engine.sampling import SamplingBatchInfo

ACCEPT, RESAMPLE = 1, 2


def sample(logits: torch.Tensor, info: SamplingBatchInfo, keys: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The next token of each row of `logits` (batch, vocab), as int64 (batch,); greedy ties go to the lowest id."""
    greedy = torch.argmax(logits, dim=-1)
    if info.is_all_greedy:
        return greedy
    drawn = _draw(_probabilities(logits, info.temperatures), uniform(keys, positions, RESAMPLE))
    return torch.where(info.temperatures.squeeze(1) > 0, drawn, greedy)


def verify(
    logits: torch.Tensor, drafts: torch.Tensor, info: SamplingBatchInfo, keys: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Verify `drafts` (batch, k) against the target's `logits` (batch, k + 1, vocab).

    Returns the tokens (batch, k + 1), of which the first accept length count, and the accept lengths (batch,), the
    bonus token included. Greedy: a draft is accepted while it is the argmax. With temperature: speculative sampling
    (Leviathan et al. 2023) for a draft model that proposes one token with certainty, which leaves the target's
    distribution unchanged: accept it with its probability, else draw from the others.
    """
    k = drafts.shape[1]
    tokens = torch.argmax(logits, dim=-1)
    accepted = tokens[:, :k] == drafts
    if not info.is_all_greedy:
        temperatures = info.temperatures.unsqueeze(1)
        probabilities = _probabilities(logits, temperatures)
        where = positions.unsqueeze(1) + torch.arange(k + 1, device=logits.device)
        drawn_accepted = uniform(keys.unsqueeze(1), where, ACCEPT)[:, :k] < probabilities[:, :k].gather(
            2, drafts.unsqueeze(2)
        ).squeeze(2)
        probabilities[:, :k].scatter_(2, drafts.unsqueeze(2), 0.0)
        drawn = _draw(probabilities, uniform(keys.unsqueeze(1), where, RESAMPLE))
        hot = temperatures.squeeze(2) > 0
        accepted = torch.where(hot, drawn_accepted, accepted)
        drawn[:, :k] = torch.where(drawn_accepted, drafts, drawn[:, :k])
        tokens = torch.where(hot, drawn, tokens)
    accept_lens = accepted.to(torch.int64).cumprod(1).sum(1) + 1
    return tokens, accept_lens


def _probabilities(logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
    cold = temperatures <= 0
    return torch.softmax(logits.double() / torch.where(cold, 1.0, temperatures.double()), dim=-1)


def _draw(weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """One index of the last dimension by weight (weights need not sum to 1), from `noise` uniform in [0, 1)."""
    cumulated = weights.cumsum(-1)
    return (cumulated <= noise.unsqueeze(-1) * cumulated[..., -1:]).sum(-1).clamp(max=weights.shape[-1] - 1)

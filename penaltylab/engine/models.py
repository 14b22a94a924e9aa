"""The models: a target whose logits are exact on every device, and a draft that agrees with it as often as asked."""

import numpy as np
import torch

from penaltylab.engine.noise import uniform

CONTEXTS = 8  # so few that unpenalised decoding soon repeats itself, and penalties show
LOGIT_STEP = 1 / 64  # dyadic, as the penalties of the scenarios are: sums are exact in float32
AGREE = 3


class MarkovModel:
    """Next-token logits are a function of the last token alone.

    Row r is one permuted ramp of distinct multiples of 1/64, rotated by r; a view of overlapping windows stands for the
    (vocab, vocab) table. Greedy tokens are therefore equal, to the bit, on every device.
    """

    def __init__(self, vocab_size: int, seed: int, device: torch.device) -> None:
        order = np.random.default_rng(seed).permutation(vocab_size)
        ramp = torch.tensor((order - vocab_size // 2) * LOGIT_STEP, dtype=torch.float32)
        self.windows = torch.cat([ramp, ramp]).to(device).unfold(0, vocab_size, 1)
        self.vocab_size = vocab_size
        self.top = int(order.argmax())

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Logits (n, vocab), float32, after each of `input_ids` (n,), int64."""
        return self.windows[self._row(input_ids)]

    def next_token(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The argmax of each unpenalised row, without the row."""
        return (self.top - self._row(input_ids)) % self.vocab_size

    def _row(self, input_ids: torch.Tensor) -> torch.Tensor:
        return (input_ids % CONTEXTS) * (self.vocab_size // CONTEXTS)


class MarkovDraft:
    """Proposes the target's unpenalised argmax with probability `accept_rate` at each position, else another token."""

    def __init__(self, target: MarkovModel, accept_rate: float) -> None:
        self.target = target
        self.accept_rate = accept_rate

    def propose(self, last_tokens: torch.Tensor, keys: torch.Tensor, positions: torch.Tensor, k: int) -> torch.Tensor:
        """k proposals after each of `last_tokens` (batch,), int64 (batch, k); the first stands at `positions` (batch,)."""
        where = positions.unsqueeze(1) + torch.arange(k, device=positions.device)
        misses = (uniform(keys.unsqueeze(1), where, AGREE) >= self.accept_rate).to(torch.int64)
        tokens, token = [], last_tokens
        for miss in misses.unbind(1):
            token = (self.target.next_token(token) + miss) % self.target.vocab_size
            tokens.append(token)
        return torch.stack(tokens, dim=1)

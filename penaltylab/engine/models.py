"""The models: a target whose logits are exact on every device, and a draft that agrees with it as often as asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from penaltylab.engine.noise import uniform

CONTEXTS = 16  # so few that unpenalised decoding soon repeats itself, and penalties show
UNSURE_EVERY = 4  # one context in so many has no clear favourite: there a penalty changes the token, elsewhere hardly
LOGIT_STEP = 1 / 64  # dyadic, as the penalties of the scenarios are: sums are exact in float32
AGREE = 3


@dataclass(frozen=True)
class ForwardBatch:
    """What a model is asked: tokens `input_ids` (batch, n) at `positions` (batch, n) of the requests in `slots`.

    `keys` (batch,) tell the requests' random numbers apart; no position is as large as `context`.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    keys: torch.Tensor
    context: int

    def following(self, input_ids: torch.Tensor) -> ForwardBatch:
        """The batch of `input_ids` (batch, 1), which stand behind the last of these."""
        return replace(self, input_ids=input_ids, positions=self.positions[:, -1:] + 1)


class Target(Protocol):
    """A model that verifies, or decodes by itself."""

    def logits(self, batch: ForwardBatch, at: torch.Tensor | None = None) -> torch.Tensor:
        """Logits (batch, n, vocab), float32; with `at` (batch,), (batch, 1, vocab) after that input token alone."""


class Draft(Protocol):
    """A model that proposes."""

    def propose(self, batch: ForwardBatch, k: int) -> torch.Tensor:
        """k proposals, int64 (batch, k), after input tokens (batch, 1)."""


class MarkovModel:
    """Next-token logits are a function of the last token alone: of its remainder modulo 16, its context.

    A row is one permuted ramp of distinct multiples of 1/64, rotated so that its favourite leads to the next context;
    most contexts raise their favourite's logit fourfold. A view of overlapping windows stands for the (vocab, vocab)
    table. Greedy tokens are therefore equal, to the bit, on every device.
    """

    def __init__(self, vocab_size: int, seed: int, device: torch.device) -> None:
        rng = np.random.default_rng(seed)
        order = rng.permutation(vocab_size)
        unsure = (order - vocab_size // 2) * LOGIT_STEP
        sure = np.where(order == vocab_size - 1, 4 * unsure.max(), unsure)
        ramps = torch.tensor(np.concatenate([unsure, unsure, sure, sure]), dtype=torch.float32)
        contexts = np.arange(CONTEXTS)
        favourites = (contexts + 1) % CONTEXTS + CONTEXTS * rng.integers(0, vocab_size // CONTEXTS, CONTEXTS)
        rows = (order.argmax() - favourites) % vocab_size + np.where(contexts % UNSURE_EVERY, 2 * vocab_size, 0)
        self.vocab_size = vocab_size
        self.windows = ramps.to(device).unfold(0, vocab_size, 1)
        self.rows = torch.tensor(rows).to(device)
        self.favourites = torch.tensor(favourites).to(device)

    def logits(self, batch: ForwardBatch, at: torch.Tensor | None = None) -> torch.Tensor:
        """Logits (batch, n, vocab), float32; with `at` (batch,), (batch, 1, vocab) after that input token alone."""
        return self.after(batch.input_ids if at is None else batch.input_ids.gather(1, at.unsqueeze(1)))

    def after(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Logits (..., vocab), float32, after each of `input_ids` (...), int64."""
        return self.windows[self.rows[input_ids % CONTEXTS]]

    def next_token(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The argmax of each unpenalised row, without the row."""
        return self.favourites[input_ids % CONTEXTS]


class MarkovDraft:
    """Proposes the target's unpenalised argmax with probability `accept_rate` at each position, else another token."""

    def __init__(self, target: MarkovModel, accept_rate: float) -> None:
        self.target = target
        self.accept_rate = accept_rate

    def propose(self, batch: ForwardBatch, k: int) -> torch.Tensor:
        """k proposals, int64 (batch, k), after input tokens (batch, 1)."""
        where = batch.positions + 1 + torch.arange(k, device=batch.positions.device)
        misses = (uniform(batch.keys.unsqueeze(1), where, AGREE) >= self.accept_rate).to(torch.int64)
        tokens, token = [], batch.input_ids[:, 0]
        for miss in misses.unbind(1):
            token = (self.target.next_token(token) + miss) % self.target.vocab_size
            tokens.append(token)
        return torch.stack(tokens, dim=1)

"""Exact accounting: every generated token counted once, on the device, before its request's next token is chosen.

State is indexed by request slot and touched on the forward stream alone, so it needs no copy from the host, no barrier,
and no change when requests join or leave. Counts are what is kept: n times 0.1 is one product, not a sum of n
roundings.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from penaltylab.devices import is_pin_memory_available
from penaltylab.engine.request import Req
from penaltylab.penalties.min_new_tokens import padded_stop_ids
from penaltylab.penalties.sparse import sparse_when


class SlotPenalties:
    """Penalties of up to `slots` requests that generate at most `longest` tokens each.

    Counts (slots, vocab) and coefficients (slots, 4) are float32; the history (slots, longest), int64, holds the ids at
    which a count can differ from zero, so that a step touches those alone.
    """

    def __init__(self, slots: int, vocab_size: int, longest: int, device: torch.device, apply: str) -> None:
        self.device = device
        self.vocab_size = vocab_size
        self.apply = apply
        self.counts = torch.zeros((slots, vocab_size), device=device)
        self.history = torch.zeros((slots, longest), dtype=torch.int64, device=device)
        self.lengths = torch.zeros(slots, dtype=torch.int64, device=device)
        self.coefficients = torch.zeros((slots, 4), device=device)
        self.stop_ids = torch.zeros((slots, 1), dtype=torch.int64, device=device)

    @staticmethod
    def wanted(reqs: Sequence[Req]) -> bool:
        """Whether any of `reqs` has a penalty; if none has, a launch skips all of this."""
        neutral = (0.0, 0.0, 1.0, 0.0)
        return any(_coefficients(req) != neutral for req in reqs)

    def settings(self, reqs: Sequence[Req]) -> tuple[torch.Tensor, torch.Tensor]:
        """What `reset` needs of `reqs`, on its way to the device: coefficients (batch, 4), stop ids (batch, most)."""
        pin = is_pin_memory_available(self.device)
        coefficients = torch.tensor([_coefficients(req) for req in reqs], dtype=torch.float32, pin_memory=pin)
        stop_ids = torch.tensor(padded_stop_ids(reqs), dtype=torch.int64, pin_memory=pin)
        return coefficients.to(self.device, non_blocking=True), stop_ids.to(self.device, non_blocking=True)

    def reset(self, slots: torch.Tensor, settings: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Requests with `settings` begin in `slots` (batch,); what the slots held before is forgotten."""
        coefficients, stop_ids = settings
        width = self.stop_ids.shape[1]
        if stop_ids.shape[1] > width:
            self.stop_ids = torch.cat(
                [self.stop_ids, self.stop_ids[:, :1].expand(-1, stop_ids.shape[1] - width)], dim=1
            )
        elif stop_ids.shape[1] < width:
            stop_ids = torch.cat([stop_ids, stop_ids[:, :1].expand(-1, width - stop_ids.shape[1])], dim=1)
        self.coefficients[slots] = coefficients
        self.stop_ids[slots] = stop_ids
        # Not `[slots] = 0`: PyTorch makes a host tensor of the 0, and its copy to the device waits for the stream.
        self.lengths.index_fill_(0, slots, 0)
        self.counts.index_fill_(0, slots, 0.0)

    def penalise(
        self, logits: torch.Tensor, slots: torch.Tensor, seen: int, drafts: torch.Tensor | None = None
    ) -> None:
        """Penalise `logits` (batch, positions, vocab) in place.

        `seen` is the most tokens that any of the requests can have generated. Verify position j sees the accepted
        history and drafts 0 to j - 1 of `drafts` (batch, positions - 1). The additive penalties are summed, then
        scaling is applied.
        """
        ids = self._ids(slots, seen, drafts)
        counts = self.counts[slots.unsqueeze(1), ids].unsqueeze(1)
        if drafts is not None:
            repeats = (ids.unsqueeze(1) == drafts.unsqueeze(2)).to(torch.float32).cumsum(1)
            counts = torch.cat([counts, counts + repeats], dim=1)
        frequency, presence, repetition, minimum = self.coefficients[slots].view(-1, 4, 1, 1).unbind(1)
        where = ids.unsqueeze(1).expand(-1, logits.shape[1], -1)
        generated = counts > 0
        values = logits.gather(2, where) - (frequency * counts + presence * generated)
        scaled = torch.where(values < 0, values * repetition, values / repetition)
        logits.scatter_(2, where, torch.where(generated, scaled, values))

        lengths = self.lengths[slots].view(-1, 1, 1) + torch.arange(logits.shape[1], device=self.device).view(1, -1, 1)
        stops = self.stop_ids[slots].unsqueeze(1).expand(-1, logits.shape[1], -1)
        allowed = logits.gather(2, stops)
        logits.scatter_(2, stops, torch.where(lengths < minimum, float("-inf"), allowed))

    def count(self, slots: torch.Tensor, tokens: torch.Tensor, accept_lens: torch.Tensor | None = None) -> None:
        """Count the first `accept_lens` (batch,) of `tokens` (batch, n); without accept lengths, all of them."""
        n = tokens.shape[1]
        ahead = torch.arange(n, device=self.device).unsqueeze(0)
        rows = slots.unsqueeze(1)
        weights = torch.ones_like(tokens) if accept_lens is None else ahead < accept_lens.unsqueeze(1)
        self.counts.index_put_((rows.expand_as(tokens), tokens), weights.to(torch.float32), accumulate=True)
        # Tokens behind the accept length land in the history too: their count stays zero, and the next round overwrites
        # them.
        self.history[rows, self.lengths[slots].unsqueeze(1) + ahead] = tokens
        self.lengths[slots] += n if accept_lens is None else accept_lens

    def _ids(self, slots: torch.Tensor, seen: int, drafts: torch.Tensor | None) -> torch.Tensor:
        """The ids at which a penalty can apply (batch, n); all of the vocabulary where that is cheaper."""
        most = seen + (0 if drafts is None else drafts.shape[1])
        if self.apply == "dense" or (
            self.apply == "auto" and most > sparse_when(self.vocab_size, self.device.type).at_most
        ):
            return torch.arange(self.vocab_size, device=self.device).expand(len(slots), -1)
        history = self.history[slots, :seen]
        return history if drafts is None else torch.cat([history, drafts], dim=1)


def _coefficients(req: Req) -> tuple[float, float, float, float]:
    params = req.sampling_params
    return (
        params.frequency_penalty,
        params.presence_penalty,
        params.repetition_penalty,
        float(params.min_new_tokens),
    )

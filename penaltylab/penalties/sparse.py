"""Penalties where they can differ from neutral: at the ids of the history and the stop tokens, and nowhere else.

The penalizers' dense state stays what it is; a step gathers from it, computes, and scatters into the logits. Results
are bit-equal to the dense passes, and no (batch, vocab) tensor is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from penaltylab.penalties.min_new_tokens import BatchedMinNewTokensPenalizer
from penaltylab.penalties.repetition import apply_scaling_penalties

if TYPE_CHECKING:
    from penaltylab.penalties.orchestrator import BatchedPenalizerOrchestrator

# What an id of the history costs, in dense columns: additive penalties on CPU tensors, where dense passes are cheapest
# beside gathers. `penaltylab bench apply` measures it.
SPARSE_COST = 16


@dataclass(frozen=True)
class SparsePenalties:
    """One launch's penalties of `ids` (batch, n) and of the stop tokens `stop_ids` (batch, m), as copies."""

    ids: torch.Tensor
    additive: torch.Tensor
    scaling: torch.Tensor | None
    stop_ids: torch.Tensor
    stop_penalties: torch.Tensor | None

    def apply(self, logits: torch.Tensor, repeat: int) -> None:
        """Penalise `logits` (batch * repeat, vocab) in place."""
        ids = expand(self.ids, repeat)
        values = logits.gather(1, ids)
        values.add_(expand(self.additive, repeat))
        if self.scaling is not None:
            apply_scaling_penalties(values, expand(self.scaling, repeat))
        logits.scatter_(1, ids, values)
        if self.stop_penalties is not None:
            stop_ids = expand(self.stop_ids, repeat)
            logits.scatter_(1, stop_ids, logits.gather(1, stop_ids) + expand(self.stop_penalties, repeat))


class History:
    """The tokens counted so far (batch, n) int64, and the sum of what they subtract (batch, vocab).

    Rows are as long as the longest: the state says what an id is worth, so a superfluous one is harmless.
    """

    def __init__(self, orchestrator: BatchedPenalizerOrchestrator) -> None:
        self.stop_ids = orchestrator.stop_ids()
        self.tokens = torch.zeros((len(orchestrator.reqs()), 16), dtype=torch.int64, device=orchestrator.device)
        self.additive = orchestrator.full(0.0)
        self.seen = 0

    def append(self, orchestrator: BatchedPenalizerOrchestrator, output_ids: torch.Tensor) -> None:
        """One more token a request, `output_ids` (batch,), which the penalizers of `orchestrator` have counted."""
        if self.seen == self.tokens.shape[1]:
            self.tokens = _widen(self.tokens, 2 * self.seen)
        self.tokens[:, self.seen] = output_ids
        self.seen += 1
        ids = output_ids.unsqueeze(1)
        penalties = torch.zeros(ids.shape, device=ids.device)
        for cls, penalizer in orchestrator.penalizers.items():
            if not penalizer.is_multiplicative and cls is not BatchedMinNewTokensPenalizer:
                penalizer.apply(penalties, ids)
        self.additive.scatter_(1, ids, penalties)

    def snapshot(self, orchestrator: BatchedPenalizerOrchestrator) -> SparsePenalties:
        """A launch's copy, which later changes do not reach."""
        ids = self.tokens[:, : self.seen].clone()
        minimum = orchestrator.penalizers[BatchedMinNewTokensPenalizer]
        stop_penalties = None
        if minimum.is_prepared:
            stop_penalties = torch.zeros(self.stop_ids.shape, device=ids.device)
            minimum.apply(stop_penalties, self.stop_ids)
        scaling = orchestrator.accumulate_scaling_penalties(ids)
        return SparsePenalties(ids, self.additive.gather(1, ids), scaling, self.stop_ids, stop_penalties)

    def is_short(self, vocab_size: int) -> bool:
        """Whether touching these ids alone is cheaper than touching all of the vocabulary."""
        return SPARSE_COST * (self.seen + self.stop_ids.shape[1]) <= vocab_size

    def filter(self, keep_indices: torch.Tensor) -> None:
        """Keep the rows `keep_indices`, in new tensors."""
        self.tokens, self.stop_ids = self.tokens[keep_indices], self.stop_ids[keep_indices]
        self.additive = self.additive[keep_indices]

    def merge(self, theirs: History) -> None:
        """Append the rows of `theirs`, in new tensors."""
        self.seen = max(self.seen, theirs.seen)
        for name in ("tokens", "stop_ids"):
            mine, other = getattr(self, name), getattr(theirs, name)
            width = max(mine.shape[1], other.shape[1])
            setattr(self, name, torch.cat([_widen(mine, width), _widen(other, width)]))
        self.additive = torch.cat([self.additive, theirs.additive])


def expand(penalties: torch.Tensor, repeat: int) -> torch.Tensor:
    """Each row `repeat` times, for the verify positions of speculative decoding."""
    return penalties if repeat == 1 else penalties.repeat_interleave(repeat, dim=0)


def _widen(ids: torch.Tensor, width: int) -> torch.Tensor:
    """Pad with each row's first id."""
    return ids if ids.shape[1] == width else torch.cat([ids, ids[:, :1].expand(-1, width - ids.shape[1])], dim=1)

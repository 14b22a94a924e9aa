"""History: the ids at which a penalty of a batch can differ from its neutral value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from penaltylab.penalties.orchestrator import BatchedPenalizerOrchestrator

# Gather, compute and scatter cost about this many times what a dense pass costs an element: `penaltylab bench apply`.
SPARSE_COST = 16


class History:
    """The tokens counted so far and the stop tokens, (batch, n) int64.

    Rows are as long as the longest: the penalizers' state says what an id is worth, so a superfluous one is harmless.
    """

    def __init__(self, orchestrator: BatchedPenalizerOrchestrator) -> None:
        reqs = orchestrator.reqs()
        stops = [sorted(req.stop_ids()) if req.sampling_params.min_new_tokens > 0 else [0] for req in reqs]
        most = max(map(len, stops))
        padded = [row + row[:1] * (most - len(row)) for row in stops]
        self.stop_ids = orchestrator.to_device(padded, torch.int64)
        self.tokens = torch.zeros((len(reqs), 16), dtype=torch.int64, device=orchestrator.device)
        self.seen = 0

    def append(self, output_ids: torch.Tensor) -> None:
        """One more token a request: `output_ids` (batch,)."""
        if self.seen == self.tokens.shape[1]:
            self.tokens = _widen(self.tokens, 2 * self.seen)
        self.tokens[:, self.seen] = output_ids
        self.seen += 1

    def ids(self) -> torch.Tensor:
        """A copy (batch, n) that later changes do not reach."""
        return torch.cat([self.tokens[:, : self.seen], self.stop_ids], dim=1)

    def is_short(self, vocab_size: int) -> bool:
        """Whether touching these ids alone is cheaper than touching all of the vocabulary."""
        return SPARSE_COST * (self.seen + self.stop_ids.shape[1]) <= vocab_size

    def filter(self, keep_indices: torch.Tensor) -> None:
        """Keep the rows `keep_indices`, in new tensors."""
        self.tokens, self.stop_ids = self.tokens[keep_indices], self.stop_ids[keep_indices]

    def merged(self, theirs: History) -> History:
        """Both, as a new history."""
        both = object.__new__(History)
        both.seen = max(self.seen, theirs.seen)
        for name in ("tokens", "stop_ids"):
            mine, other = getattr(self, name), getattr(theirs, name)
            width = max(mine.shape[1], other.shape[1])
            setattr(both, name, torch.cat([_widen(mine, width), _widen(other, width)]))
        return both


def _widen(ids: torch.Tensor, width: int) -> torch.Tensor:
    """Pad with each row's first id."""
    return ids if ids.shape[1] == width else torch.cat([ids, ids[:, :1].expand(-1, width - ids.shape[1])], dim=1)

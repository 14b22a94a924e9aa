"""SamplingBatchInfo: what a launch needs to turn logits into tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from penaltylab.penalties.repetition import apply_scaling_penalties
from penaltylab.penalties.sparse import SparsePenalties, expand


@dataclass
class SamplingBatchInfo:
    """Sampling state of a batch.

    `temperatures` has shape (batch, 1). The penalties of a launch are dense, of shape (batch, vocab), or sparse.
    """

    temperatures: torch.Tensor
    is_all_greedy: bool
    vocab_size: int
    penalizer_orchestrator: Any  # ours, or sglang's own; None in a launch's copy
    acc_additive_penalties: torch.Tensor | None = None
    acc_scaling_penalties: torch.Tensor | None = None
    sparse_penalties: SparsePenalties | None = None
    apply: str = "dense"

    def update_penalties(self) -> None:
        """Materialise the penalties in tensors that later writes to the penalizers' state do not reach."""
        orchestrator = self.penalizer_orchestrator
        if orchestrator is None or not orchestrator.is_required:
            self.acc_additive_penalties = self.acc_scaling_penalties = self.sparse_penalties = None
            return
        self.sparse_penalties = orchestrator.sparse_penalties() if self.apply != "dense" else None
        if self.sparse_penalties is not None:
            self.acc_additive_penalties = self.acc_scaling_penalties = None
            return
        self.acc_additive_penalties = torch.zeros(
            (len(self.temperatures), self.vocab_size), dtype=torch.float32, device=self.temperatures.device
        )
        orchestrator.accumulate_additive_penalties(self.acc_additive_penalties)
        self.acc_scaling_penalties = orchestrator.accumulate_scaling_penalties()

    def copy_for_forward(self) -> SamplingBatchInfo:
        """This launch's copy: the last read of the penalizers' state, on the stream that is current."""
        self.update_penalties()
        return replace(self, penalizer_orchestrator=None)

    def apply_logits_bias(self, logits: torch.Tensor, repeat: int = 1) -> None:
        """Penalise `logits`, shape (batch * repeat, vocab), in place.

        In speculative decoding `repeat` is the number of verify positions: upstream gives all of them one state.
        """
        if self.sparse_penalties is not None:
            self.sparse_penalties.apply(logits, repeat)
        if self.acc_additive_penalties is not None:
            logits.add_(expand(self.acc_additive_penalties, repeat))
        if self.acc_scaling_penalties is not None:
            apply_scaling_penalties(logits, expand(self.acc_scaling_penalties, repeat))

    def filter_batch(self, keep_indices: torch.Tensor) -> None:
        """Keep the rows `keep_indices`."""
        if self.penalizer_orchestrator is not None:
            self.penalizer_orchestrator.filter(keep_indices)
        self.temperatures = self.temperatures[keep_indices]

    def merge_batch(self, other: SamplingBatchInfo) -> None:
        """Append the rows of `other`, before the requests of either batch change."""
        if self.penalizer_orchestrator is not None and other.penalizer_orchestrator is not None:
            self.penalizer_orchestrator.merge(other.penalizer_orchestrator)
        self.temperatures = torch.cat([self.temperatures, other.temperatures])
        self.is_all_greedy &= other.is_all_greedy

"""SamplingBatchInfo: what a launch needs to turn logits into tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from penaltylab.penalties.repetition import apply_scaling_penalties


@dataclass
class SamplingBatchInfo:
    """Sampling state of a batch.

    `temperatures` has shape (batch, 1). Both penalties, where set, have shape (batch, vocab); with `acc_ids` set, of
    shape (batch, n), they are those of these ids, and all others are neutral.
    """

    temperatures: torch.Tensor
    is_all_greedy: bool
    vocab_size: int
    penalizer_orchestrator: Any  # ours, or sglang's own; None in a launch's copy
    acc_additive_penalties: torch.Tensor | None = None
    acc_scaling_penalties: torch.Tensor | None = None
    acc_ids: torch.Tensor | None = None
    apply: str = "dense"

    def update_penalties(self) -> None:
        """Materialise the penalties in tensors that later writes to the penalizers' state do not reach."""
        orchestrator = self.penalizer_orchestrator
        if orchestrator is None or not orchestrator.is_required:
            self.acc_additive_penalties = self.acc_scaling_penalties = None
            return
        self.acc_ids = None
        if self.apply != "dense" and (ids := orchestrator.ids()) is not None:
            self._update_sparse_penalties(orchestrator, ids)
            return
        self.acc_additive_penalties = torch.zeros(
            (len(self.temperatures), self.vocab_size), dtype=torch.float32, device=self.temperatures.device
        )
        orchestrator.accumulate_additive_penalties(self.acc_additive_penalties)
        self.acc_scaling_penalties = orchestrator.accumulate_scaling_penalties()

    def _update_sparse_penalties(self, orchestrator: Any, ids: torch.Tensor) -> None:
        self.acc_ids = ids
        self.acc_additive_penalties = torch.zeros(ids.shape, dtype=torch.float32, device=ids.device)
        orchestrator.accumulate_additive_penalties(self.acc_additive_penalties, ids)
        self.acc_scaling_penalties = orchestrator.accumulate_scaling_penalties(ids)

    def copy_for_forward(self) -> SamplingBatchInfo:
        """This launch's copy: the last read of the penalizers' state, on the stream that is current."""
        self.update_penalties()
        return replace(self, penalizer_orchestrator=None)

    def apply_logits_bias(self, logits: torch.Tensor, repeat: int = 1) -> None:
        """Penalise `logits`, shape (batch * repeat, vocab), in place.

        In speculative decoding `repeat` is the number of verify positions: upstream gives all of them one state.
        """
        if self.acc_ids is not None:
            ids = _expand(self.acc_ids, repeat)
            values = logits.gather(1, ids)
            self._apply_penalties(values, repeat)
            logits.scatter_(1, ids, values)
        else:
            self._apply_penalties(logits, repeat)

    def _apply_penalties(self, logits: torch.Tensor, repeat: int) -> None:
        if self.acc_additive_penalties is not None:
            logits.add_(_expand(self.acc_additive_penalties, repeat))
        if self.acc_scaling_penalties is not None:
            apply_scaling_penalties(logits, _expand(self.acc_scaling_penalties, repeat))

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


def _expand(penalties: torch.Tensor, repeat: int) -> torch.Tensor:
    return penalties if repeat == 1 else penalties.repeat_interleave(repeat, dim=0)

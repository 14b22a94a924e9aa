"""Repetition.

The logit of a generated token is divided by the coefficient where positive, multiplied where negative.
"""

from __future__ import annotations

import torch

from penaltylab.engine.request import Req
from penaltylab.penalties.penalizer import BatchedPenalizer, at


def apply_scaling_penalties(logits: torch.Tensor, scaling_penalties: torch.Tensor) -> None:
    """Scale `logits` in place; both have shape (rows, vocab). A penalty of 1 leaves a logit as it is."""
    logits.copy_(torch.where(logits < 0, logits * scaling_penalties, logits / scaling_penalties))


class BatchedRepetitionPenalizer(BatchedPenalizer):
    """State: the coefficients (batch, 1) and the scaling so far (batch, vocab), float32, 1 where nothing was generated.

    Only generated tokens count: sglang does not seed it from the prompt.
    """

    is_multiplicative = True
    state_names = ("repetition_penalties", "cumulated_repetition_penalties")

    @staticmethod
    def wants(req: Req) -> bool:
        return req.sampling_params.repetition_penalty != 1.0

    def _prepare(self) -> None:
        self.repetition_penalties = self.orchestrator.column(lambda req: req.sampling_params.repetition_penalty)
        self.cumulated_repetition_penalties = self.orchestrator.full(1.0)

    def _cumulate(self, output_ids: torch.Tensor) -> None:
        self.cumulated_repetition_penalties.scatter_(1, output_ids.unsqueeze(1), self.repetition_penalties)

    def _apply(self, penalties: torch.Tensor, ids: torch.Tensor | None) -> None:
        penalties.mul_(at(self.cumulated_repetition_penalties, ids))

"""Frequency: each time a token was generated lowers its logit by the coefficient."""

from __future__ import annotations

import torch

from penaltylab.engine.request import Req
from penaltylab.penalties.penalizer import BatchedPenalizer, at


class BatchedFrequencyPenalizer(BatchedPenalizer):
    """State: the coefficients (batch, 1) and the sums so far (batch, vocab), float32."""

    state_names = ("frequency_penalties", "cumulated_frequency_penalties")

    @staticmethod
    def wants(req: Req) -> bool:
        return req.sampling_params.frequency_penalty != 0.0

    def _prepare(self) -> None:
        self.frequency_penalties = self.orchestrator.column(lambda req: req.sampling_params.frequency_penalty)
        self.cumulated_frequency_penalties = self.orchestrator.full(0.0)

    def _cumulate(self, output_ids: torch.Tensor) -> None:
        self.cumulated_frequency_penalties.scatter_add_(1, output_ids.unsqueeze(1), self.frequency_penalties)

    def _apply(self, penalties: torch.Tensor, ids: torch.Tensor | None) -> None:
        penalties.sub_(at(self.cumulated_frequency_penalties, ids))

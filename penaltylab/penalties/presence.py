"""Presence: a token that was generated at all has its logit lowered by the coefficient, once."""

from __future__ import annotations

import torch

from penaltylab.engine.request import Req
from penaltylab.penalties.penalizer import BatchedPenalizer, at


class BatchedPresencePenalizer(BatchedPenalizer):
    """State: the coefficients (batch, 1) and what applies so far (batch, vocab), float32."""

    state_names = ("presence_penalties", "cumulated_presence_penalties")

    @staticmethod
    def wants(req: Req) -> bool:
        return req.sampling_params.presence_penalty != 0.0

    def _prepare(self) -> None:
        self.presence_penalties = self.orchestrator.column(lambda req: req.sampling_params.presence_penalty)
        self.cumulated_presence_penalties = self.orchestrator.full(0.0)

    def _cumulate(self, output_ids: torch.Tensor) -> None:
        self.cumulated_presence_penalties.scatter_(1, output_ids.unsqueeze(1), self.presence_penalties)

    def _apply(self, penalties: torch.Tensor, ids: torch.Tensor | None) -> None:
        penalties.sub_(at(self.cumulated_presence_penalties, ids))

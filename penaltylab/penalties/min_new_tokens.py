"""Minimum length: a token that would end the request is forbidden while too few have been generated."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from penaltylab.engine.request import Req
from penaltylab.penalties.penalizer import BatchedPenalizer, at


def padded_stop_ids(reqs: Sequence[Req]) -> list[list[int]]:
    """Each request's stop tokens, as rows of one length: shorter ones repeat their first."""
    ids = [sorted(req.stop_ids()) for req in reqs]
    most = max(map(len, ids))
    return [row + row[:1] * (most - len(row)) for row in ids]


class BatchedMinNewTokensPenalizer(BatchedPenalizer):
    """State: the minimum and the length so far (batch, 1), int32, and -inf at the stop tokens (batch, vocab), float32.

    It counts calls, not tokens: in speculative decoding one call is a round, however many tokens that accepted.
    """

    state_names = ("min_new_tokens", "stop_token_penalties", "len_output_tokens")

    @staticmethod
    def wants(req: Req) -> bool:
        return req.sampling_params.min_new_tokens > 0

    def _prepare(self) -> None:
        orchestrator = self.orchestrator
        self.min_new_tokens = orchestrator.column(lambda req: req.sampling_params.min_new_tokens, dtype=torch.int32)
        self.len_output_tokens = torch.zeros_like(self.min_new_tokens)
        self.stop_token_penalties = orchestrator.full(0.0)
        self.stop_token_penalties.scatter_(1, orchestrator.stop_ids(), float("-inf"))

    def _cumulate(self, output_ids: torch.Tensor) -> None:
        self.len_output_tokens += 1

    def _apply(self, penalties: torch.Tensor, ids: torch.Tensor | None) -> None:
        forbidden = at(self.stop_token_penalties, ids)
        too_short = self.len_output_tokens < self.min_new_tokens
        if self.orchestrator.min_tokens_mask == "where":
            penalties.add_(torch.where(too_short, forbidden, 0.0))
        else:
            # What sglang did before #28397: a boolean index has a data-dependent shape, so the host waits for the
            # stream.
            mask = too_short.expand_as(penalties)
            penalties[mask] += forbidden[mask]

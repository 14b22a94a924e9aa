"""EagleDraftInput: the speculative decode path, in which a launch is a round of draft, verify and draft-extend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from penaltylab.devices import is_pin_memory_available
from penaltylab.engine.models import Draft, ForwardBatch, Target
from penaltylab.engine.sampler import verify

if TYPE_CHECKING:
    from penaltylab.engine.batch import ScheduleBatch
    from penaltylab.engine.sampling import SamplingBatchInfo

# Penalises logits (batch, positions, vocab) in place; with drafts (batch, positions - 1) in a verify, None elsewhere.
Penalise = Callable[[torch.Tensor, torch.Tensor | None], None]


@dataclass(frozen=True)
class EagleDraftInput:
    """Rounds of `draft_tokens` = k proposals, so of k + 1 verify positions."""

    draft_tokens: int

    def prepare_for_decode(self, batch: ScheduleBatch) -> None:
        """Count the last token that the host knows, then allot cache entries for this round and the next.

        A relaxed version of penalties, in upstream's words: of a round only the last accepted token is counted, so with
        mean accept length L the frequency penalty is about 1/L of its nominal value, and min_new_tokens counts rounds.
        """
        if batch.sampling_info.penalizer_orchestrator.is_required:
            batch.cumulate_penalty_output_tokens()
        # The host does not know yet how much the running round accepts, so it reserves for two rounds from what it
        # knows.
        reserve = 2 * (self.draft_tokens + 1)
        cur_kv_lens = [req.kv_allocated_len for req in batch.reqs]
        for req in batch.reqs:
            req.kv_allocated_len = max(req.kv_allocated_len, req.kv_committed_len + reserve)
        nxt_kv_lens = [req.kv_allocated_len for req in batch.reqs]
        kv_lens = torch.tensor(
            [cur_kv_lens, nxt_kv_lens], dtype=torch.int64, pin_memory=is_pin_memory_available(batch.device)
        ).to(batch.device, non_blocking=True)
        cur, nxt = kv_lens.unsqueeze(2).unbind(0)
        positions = torch.minimum(cur + torch.arange(reserve, device=batch.device), nxt - 1)
        batch.req_to_token_pool.write(batch.req_pool_indices, positions)

    def draft(self, model: Draft, batch: ForwardBatch) -> torch.Tensor:
        """k proposals (batch, k), int64, after the last tokens, which are the input ids (batch, 1)."""
        return model.propose(batch, self.draft_tokens)

    def verify(
        self, model: Target, batch: ForwardBatch, drafts: torch.Tensor, penalise: Penalise, info: SamplingBatchInfo
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens (batch, k + 1) and accept lengths (batch,) of `drafts`, by the penalised target."""
        ahead = torch.arange(self.draft_tokens + 1, device=drafts.device)
        whole = replace(batch, input_ids=torch.cat([batch.input_ids, drafts], dim=1), positions=batch.positions + ahead)
        logits = model.logits(whole)
        penalise(logits, drafts)
        return verify(logits, drafts, info, batch.keys, batch.positions.squeeze(1) + 1)

"""The history of a batch, as the sparse apply needs it: which ids were counted, and what that does to their logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from penaltylab.penalties.min_new_tokens import BatchedMinNewTokensPenalizer
from penaltylab.penalties.sparse import SparsePenalties, SparseWhen

if TYPE_CHECKING:
    from penaltylab.penalties.orchestrator import BatchedPenalizerOrchestrator
    from penaltylab.penalties.penalizer import BatchedPenalizer

NEUTRAL = {"additive": 0.0, "scaling": 1.0}


class History:
    """Counted tokens (batch, length) int64, and of the same shape their `effects`: what is added, and what scales.

    A request has a column a step; where it joined later, columns without effect stand before its first. An id that
    comes again takes what is added to its newest column. Every change makes new tensors, so that a launch shares them.
    While `sparse_when` says that the dense passes are cheaper there are no tokens; later they are found again in the
    penalizers' state.
    """

    def __init__(self, orchestrator: BatchedPenalizerOrchestrator, sparse_when: SparseWhen) -> None:
        self.sparse_when = sparse_when
        self.steps = 0
        self.joined = dict.fromkeys(orchestrator.reqs(), 0)
        self.length = 0
        self.stop_ids = orchestrator.stop_ids()
        self.tokens: torch.Tensor | None = self.stop_ids[:, :0] if self._is_cheaper() else None
        self.effects = {name: self.stop_ids[:, :0].to(torch.float32) for name in _in_use(orchestrator)}

    def append(self, orchestrator: BatchedPenalizerOrchestrator, output_ids: torch.Tensor) -> None:
        """One more token a request, `output_ids` (batch,), which the penalizers of `orchestrator` have counted."""
        self.steps += 1
        self.length += 1
        if not self._is_cheaper():
            self.tokens = None
        elif self.tokens is None:
            self._find(orchestrator)
        else:
            ids = output_ids.unsqueeze(1)
            again = self.tokens == ids
            self.tokens = torch.cat([self.tokens, ids], dim=1)
            new, older = effects(orchestrator, ids), self.effects
            kept = {name: torch.where(again, 0.0 if name == "additive" else new[name], older[name]) for name in new}
            self.effects = {name: torch.cat([kept[name], new[name]], dim=1) for name in new}

    def penalties(self, orchestrator: BatchedPenalizerOrchestrator) -> SparsePenalties | None:
        """What a launch applies, which later changes do not reach; None where the dense passes are cheaper."""
        if self.tokens is None:
            return None
        minimum = orchestrator.penalizers[BatchedMinNewTokensPenalizer]
        stop_penalties = None
        if minimum.is_prepared:
            stop_penalties = torch.zeros(self.stop_ids.shape, device=self.stop_ids.device)
            minimum.apply(stop_penalties, self.stop_ids)
        additive, scaling = map(self.effects.get, NEUTRAL)
        return SparsePenalties(self.tokens, additive, scaling, self.stop_ids, stop_penalties)

    def filter(self, orchestrator: BatchedPenalizerOrchestrator, keep_indices: torch.Tensor) -> None:
        """Keep the rows `keep_indices`, whose requests are all that is left, and the columns that they need."""
        self.joined = {req: self.joined[req] for req in orchestrator.reqs()}
        unused = self.length - (self.steps - min(self.joined.values()))
        self.length -= unused
        self.stop_ids = self.stop_ids[keep_indices]
        if self.tokens is not None:
            self.tokens = self.tokens[keep_indices, unused:]
            self.effects = {name: self.effects[name][keep_indices, unused:] for name in _in_use(orchestrator)}

    def merge(self, orchestrator: BatchedPenalizerOrchestrator, theirs: History) -> None:
        """Append the rows of `theirs`; the penalizers of `orchestrator` are merged already."""
        both, names = (self, theirs), _in_use(orchestrator)
        length, most = (max(sizes) for sizes in zip(*((of.length, of.stop_ids.shape[1]) for of in both), strict=True))
        if self.tokens is None or theirs.tokens is None:
            self.tokens = None
        else:
            columns = [of._columns(length, names) for of in both]
            self.tokens, *merged = (torch.cat(parts) for parts in zip(*columns, strict=True))
            self.effects = dict(zip(names, merged, strict=True))
        self.joined |= {req: self.steps - theirs.steps + step for req, step in theirs.joined.items()}
        self.stop_ids = torch.cat([_widen(of.stop_ids, most) for of in both])
        self.length = length

    def _is_cheaper(self) -> bool:
        rows, stops = self.stop_ids.shape
        return self.sparse_when.at_least_rows <= rows and self.length + stops <= self.sparse_when.at_most

    def _columns(self, length: int, names: list[str]) -> list[torch.Tensor]:
        """Tokens and effects, `length` columns wide: the first comes again before them, with nothing added."""
        assert self.tokens is not None
        rows, more = len(self.tokens), length - self.length
        first = self.tokens[:, :1] if self.length else self.tokens.new_zeros((rows, 1))
        columns = [torch.cat([first.expand(-1, more), self.tokens], dim=1)]
        for name in names:
            neutral = torch.full((rows, 1), NEUTRAL[name], device=self.tokens.device)
            effect = self.effects.get(name, neutral.expand(-1, self.length))
            first = effect[:, :1] if self.length and name == "scaling" else neutral
            columns.append(torch.cat([first.expand(-1, more), effect], dim=1))
        return columns

    def _find(self, orchestrator: BatchedPenalizerOrchestrator) -> None:
        """The ids that the penalizers' state holds, which are at most as many as the tokens counted."""
        found = effects(orchestrator, None)
        touched = orchestrator.full(0.0)
        for name, effect in found.items():
            touched += effect != NEUTRAL[name]
        self.tokens = touched.topk(self.length).indices
        self.effects = {name: effect.gather(1, self.tokens) for name, effect in found.items()}


def _penalizers(orchestrator: BatchedPenalizerOrchestrator, name: str) -> list[BatchedPenalizer]:
    """Those with state that have the effect `name` on counted tokens; the minimum length concerns stop tokens alone."""
    return [
        penalizer
        for cls, penalizer in orchestrator.penalizers.items()
        if penalizer.is_prepared
        and penalizer.is_multiplicative == (name == "scaling")
        and cls is not BatchedMinNewTokensPenalizer
    ]


def _in_use(orchestrator: BatchedPenalizerOrchestrator) -> list[str]:
    return [name for name in NEUTRAL if _penalizers(orchestrator, name)]


def effects(orchestrator: BatchedPenalizerOrchestrator, ids: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """The effects in use on `ids` (batch, n), on all of the vocabulary for None."""
    found = {}
    for name in _in_use(orchestrator):
        neutral = NEUTRAL[name]
        effect = torch.full(ids.shape, neutral, device=ids.device) if ids is not None else orchestrator.full(neutral)
        for penalizer in _penalizers(orchestrator, name):
            penalizer.apply(effect, ids)
        found[name] = effect
    return found


def _widen(ids: torch.Tensor, width: int) -> torch.Tensor:
    """Fill each row up with its first id."""
    return ids if ids.shape[1] == width else torch.cat([ids, ids[:, :1].expand(-1, width - ids.shape[1])], dim=1)

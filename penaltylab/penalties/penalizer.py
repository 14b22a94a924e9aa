"""What all penalizers share: prepare on need, cumulate, apply, filter, merge, tear down."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, ClassVar

import torch

if TYPE_CHECKING:
    from penaltylab.engine.request import Req
    from penaltylab.penalties.orchestrator import BatchedPenalizerOrchestrator


def at(state: torch.Tensor, ids: torch.Tensor | None) -> torch.Tensor:
    """The columns `ids` (batch, n) of each row of `state` (batch, vocab); all of them for None."""
    return state if ids is None else state.gather(1, ids)


class BatchedPenalizer(abc.ABC):
    """One kind of penalty for a whole batch. Its state lives on the device, one row a request."""

    is_multiplicative: ClassVar[bool] = False
    state_names: ClassVar[tuple[str, ...]]

    def __init__(self, orchestrator: BatchedPenalizerOrchestrator) -> None:
        self.orchestrator = orchestrator
        self.is_prepared = False

    @staticmethod
    @abc.abstractmethod
    def wants(req: Req) -> bool:
        """Whether `req` has a value other than the neutral one."""

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Allocate the state for the batch's requests."""

    @abc.abstractmethod
    def _cumulate(self, output_ids: torch.Tensor) -> None:
        """Count one token, `output_ids` of shape (batch,), for each request."""

    @abc.abstractmethod
    def _apply(self, penalties: torch.Tensor, ids: torch.Tensor | None) -> None:
        """Add to (additive) or multiply into (multiplicative) `penalties`, in place."""

    def is_required(self) -> bool:
        """Whether any request of the batch wants this penalty."""
        return any(self.wants(req) for req in self.orchestrator.reqs())

    def prepare(self) -> None:
        """Allocate the state unless that has been done."""
        if not self.is_prepared:
            self._prepare()
            self.is_prepared = True

    def cumulate_output_tokens(self, output_ids: torch.Tensor) -> None:
        """Count `output_ids`, shape (batch,), int64, if prepared."""
        if self.is_prepared:
            self._cumulate(output_ids)

    def apply(self, penalties: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Accumulate this penalty into `penalties`, shape (batch, vocab), or that of `ids` (batch, n), if prepared."""
        if self.is_prepared:
            self._apply(penalties, ids)

    def filter(self, keep_indices: torch.Tensor) -> None:
        """Keep the rows `keep_indices`, in new tensors: a launch that still runs may read the old ones."""
        if self.is_prepared:
            for name in self.state_names:
                setattr(self, name, getattr(self, name)[keep_indices])

    def merge(self, theirs: BatchedPenalizer) -> None:
        """Append the rows of `theirs`; whichever side has no state yet prepares it first."""
        if self.is_prepared or theirs.is_prepared:
            self.prepare()
            theirs.prepare()
            for name in self.state_names:
                setattr(self, name, torch.cat([getattr(self, name), getattr(theirs, name)]))

    def teardown(self) -> None:
        """Drop the state."""
        for name in self.state_names:
            self.__dict__.pop(name, None)
        self.is_prepared = False

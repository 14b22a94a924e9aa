"""All penalties of a batch, kept in step with the requests that join and leave it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from penaltylab.devices import is_pin_memory_available
from penaltylab.penalties.frequency import BatchedFrequencyPenalizer
from penaltylab.penalties.history import History
from penaltylab.penalties.min_new_tokens import BatchedMinNewTokensPenalizer, padded_stop_ids
from penaltylab.penalties.penalizer import BatchedPenalizer
from penaltylab.penalties.presence import BatchedPresencePenalizer
from penaltylab.penalties.repetition import BatchedRepetitionPenalizer, apply_scaling_penalties
from penaltylab.penalties.sparse import ALWAYS, SparsePenalties, sparse_when

if TYPE_CHECKING:
    from penaltylab.engine.batch import ScheduleBatch
    from penaltylab.engine.request import Req

# A fixed order. sglang holds a set of classes, whose order, and with it repetition before or after frequency, varies by
# process.
PENALIZERS: tuple[type[BatchedPenalizer], ...] = (
    BatchedFrequencyPenalizer,
    BatchedPresencePenalizer,
    BatchedMinNewTokensPenalizer,
    BatchedRepetitionPenalizer,
)


class BatchedPenalizerOrchestrator:
    """The penalizers of `batch`. `is_required` says whether any request has a penalty at all.

    An `idle` one has no penalizers: under exact accounting the penalties are kept by slot, not by batch.
    """

    def __init__(
        self,
        vocab_size: int,
        batch: ScheduleBatch,
        min_tokens_mask: str = "where",
        apply: str = "dense",
        prepare_h2d: str = "pinned_async",
        idle: bool = False,
    ) -> None:
        self.vocab_size = vocab_size
        self.batch = batch
        self.device = batch.device
        self.min_tokens_mask = min_tokens_mask
        self.prepare_h2d = prepare_h2d
        self.penalizers: dict[type[BatchedPenalizer], BatchedPenalizer] = {
            cls: cls(self) for cls in (() if idle else PENALIZERS)
        }
        self.is_required = False
        for penalizer in self.penalizers.values():
            if penalizer.is_required():
                penalizer.prepare()
                self.is_required = True
        self.apply_mode = apply
        self.history = self._history() if apply != "dense" and self.is_required else None

    def reqs(self) -> list[Req]:
        """The requests of the batch, in the order of the rows."""
        return self.batch.reqs

    def cumulate_output_tokens(self, output_ids: torch.Tensor) -> None:
        """Count one output token a request: `output_ids`, shape (batch,), int64, on the device."""
        for penalizer in self.penalizers.values():
            penalizer.cumulate_output_tokens(output_ids)
        if self.history is not None:
            self.history.append(self, output_ids)

    def accumulate_additive_penalties(self, penalties: torch.Tensor) -> None:
        """Add all additive penalties to `penalties`, shape (batch, vocab), in place."""
        for penalizer in self.penalizers.values():
            if not penalizer.is_multiplicative:
                penalizer.apply(penalties)

    def accumulate_scaling_penalties(self) -> torch.Tensor | None:
        """The multiplicative penalty, (batch, vocab), as a new tensor; None where no request has one."""
        for penalizer in self.penalizers.values():
            if type(penalizer) is BatchedRepetitionPenalizer and penalizer.is_prepared:
                return penalizer.cumulated_repetition_penalties.clone()
        return None

    def apply(self, logits: torch.Tensor, repeat: int = 1) -> None:
        """Penalise `logits`, shape (batch * repeat, vocab), in place: the additive sum first, then the scaling."""
        additive = self.full(0.0)
        self.accumulate_additive_penalties(additive)
        logits.add_(additive.repeat_interleave(repeat, dim=0))
        scaling = self.accumulate_scaling_penalties()
        if scaling is not None:
            apply_scaling_penalties(logits, scaling.repeat_interleave(repeat, dim=0))

    def filter(self, keep_indices: torch.Tensor) -> None:
        """Keep the rows `keep_indices`; the batch's `reqs` are those kept already.

        What nobody wants any more is released.
        """
        if not self.is_required:
            return
        if len(keep_indices) == 0:
            self.release()
            return
        self.is_required = False
        for penalizer in self.penalizers.values():
            if penalizer.is_required():
                penalizer.filter(keep_indices)
                self.is_required = True
            else:
                penalizer.teardown()
        if self.history is not None:
            self.history.filter(self, keep_indices)

    def merge(self, theirs: BatchedPenalizerOrchestrator) -> None:
        """Append the rows of `theirs`.

        Call it before either batch's `reqs` change: an unprepared side prepares from them.
        """
        if not self.is_required and not theirs.is_required:
            return
        self.is_required = True
        for cls, penalizer in theirs.penalizers.items():
            self.penalizers[cls].merge(penalizer)
        if self.apply_mode != "dense":
            self.history = self.history or self._history()
            self.history.merge(self, theirs.history or theirs._history())

    def release(self) -> None:
        """Drop all state."""
        for penalizer in self.penalizers.values():
            penalizer.teardown()
        self.history = None
        self.is_required = False

    def sparse_penalties(self) -> SparsePenalties | None:
        """This launch's penalties at the ids where they can apply; None where all of the vocabulary is cheaper."""
        return None if self.history is None else self.history.penalties(self)

    def _history(self) -> History:
        auto = self.apply_mode == "auto"
        return History(self, sparse_when(self.vocab_size, self.device.type) if auto else ALWAYS)

    def full(self, value: float) -> torch.Tensor:
        """A new (batch, vocab) float32 tensor of `value`."""
        return torch.full((len(self.reqs()), self.vocab_size), value, dtype=torch.float32, device=self.device)

    def column(self, of: Callable[[Req], float], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """One value a request as a (batch, 1) tensor on the device."""
        return self.to_device([of(req) for req in self.reqs()], dtype).unsqueeze_(1)

    def stop_ids(self) -> torch.Tensor:
        """Each request's stop tokens (batch, n), int64, on the device; shorter rows repeat their first."""
        return self.to_device(padded_stop_ids(self.reqs()), torch.int64)

    def to_device(self, values: list[Any], dtype: torch.dtype) -> torch.Tensor:
        """A host list as a tensor on the device; `blocking` is how sglang's penalizers prepared up to 0.5.20."""
        if self.prepare_h2d == "blocking":
            return torch.tensor(values, dtype=dtype, device=self.device)
        pinned = torch.tensor(values, dtype=dtype, pin_memory=is_pin_memory_available(self.device))
        return pinned.to(self.device, non_blocking=True)

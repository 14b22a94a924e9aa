"""Penalties where they can differ from neutral: at the ids of the history and the stop tokens, and nowhere else.

Results are bit-equal to the dense passes, and no (batch, vocab) tensor is made.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from functools import cache

import torch

from penaltylab.resources import data_path


@dataclass(frozen=True)
class SparsePenalties:
    """One launch's penalties of `ids` (batch, n) and of the stop tokens `stop_ids` (batch, m).

    An id may stand in a row more than once: of its places one has all of `additive`, the others 0; `scaling` is the
    same at all of them.
    """

    ids: torch.Tensor
    additive: torch.Tensor | None
    scaling: torch.Tensor | None
    stop_ids: torch.Tensor
    stop_penalties: torch.Tensor | None

    def apply(self, logits: torch.Tensor, repeat: int) -> None:
        """Penalise `logits` (batch * repeat, vocab) in place."""
        ids = expand(self.ids, repeat)
        if self.additive is not None:
            logits.scatter_add_(1, ids, expand(self.additive, repeat))
        if self.scaling is not None:
            values, scaling = logits.gather(1, ids), expand(self.scaling, repeat)
            logits.scatter_(1, ids, torch.where(values < 0, values * scaling, values / scaling))
        if self.stop_penalties is not None:
            stop_ids = expand(self.stop_ids, repeat)
            logits.scatter_(1, stop_ids, logits.gather(1, stop_ids) + expand(self.stop_penalties, repeat))


def expand(penalties: torch.Tensor, repeat: int) -> torch.Tensor:
    """Each row `repeat` times, for the verify positions of speculative decoding."""
    return penalties if repeat == 1 else penalties.repeat_interleave(repeat, dim=0)


@dataclass(frozen=True)
class SparseWhen:
    """The sparse apply is taken for batches of `at_least_rows` whose rows have `at_most` ids, stop tokens included."""

    at_least_rows: int
    at_most: int


ALWAYS = SparseWhen(0, sys.maxsize)


@cache
def sparse_when(vocab_size: int, device_type: str) -> SparseWhen:
    """Where the sparse apply is the cheaper one, from `data/apply.toml` by kind of device."""
    costs = tomllib.loads(data_path("apply.toml").read_text())["cpu" if device_type == "cpu" else "cuda"]
    return SparseWhen(-(-costs["least_columns"] // vocab_size), int(vocab_size // costs["columns_an_id"]))

"""A released sglang as something that our loop can run: its statements, its penalizers, and the settings it had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from penaltylab.devices import is_pin_memory_available
from penaltylab.engine.batch import ScheduleBatch
from penaltylab.engine.meter import section
from penaltylab.errors import InputError
from penaltylab.params import revisions
from penaltylab.upstream.isolated import IsolatedPackage
from penaltylab.upstream.statements import Statements, find_statements
from penaltylab.upstream.wheel import release_key, sources

PENALTYLIB = "sglang.srt.sampling.penaltylib"
# The order of ours. sglang passes a set, whose order, and with it that of the device's kernels, varies by process.
PENALIZERS = (
    "BatchedFrequencyPenalizer",
    "BatchedPresencePenalizer",
    "BatchedMinNewTokensPenalizer",
    "BatchedRepetitionPenalizer",
)
# All that penaltylib takes from the rest of sglang. Its one use of is_npu is to leave torch.compile out.
UTILS = {
    "get_compiler_backend": lambda: "eager",
    "is_npu": lambda: True,
    "is_pin_memory_available": is_pin_memory_available,
}


class _EagerTorch(ModuleType):
    """torch, but for `compile`, which compiles nothing: even disabled, torch's own imports its compiler for seconds."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def compile(**_: Any) -> Callable[[Any], Any]:
        """A decorator that leaves what it decorates as it is."""
        return lambda function: function


@dataclass(frozen=True)
class Upstream:
    """One release, unmodified: `penaltylib`, and by decode path the statements that count the last tokens."""

    version: str
    folder: Path
    penaltylib: ModuleType
    statements: dict[str, Statements]

    def make_orchestrator(self, vocab_size: int) -> Callable[[ScheduleBatch], Any]:
        """For `run`: makes the release's own orchestrator, with its four penalizers, for a batch."""
        penalizers = [getattr(self.penaltylib, name) for name in PENALIZERS]
        return lambda batch: self.penaltylib.BatchedPenalizerOrchestrator(vocab_size, batch, penalizers)

    def batch_class(self, path: str, overlap: bool = True) -> type[ScheduleBatch]:
        """For `run`: our ScheduleBatch, with the release's statements where it counts the last tokens."""
        statements = self.statements[path]
        version = self.version

        class UpstreamBatch(ScheduleBatch):
            enable_overlap = overlap

            @property
            def output_ids(self) -> torch.Tensor:
                raise InputError(f"sglang {version} needs overlap=true: else it counts a tensor that this loop has not")

            @section("cumulate_penalty_output_tokens")
            def cumulate_penalty_output_tokens(self) -> None:
                statements.run(self)

        return UpstreamBatch


def load(version: str) -> Upstream:
    """Fetch sglang `version` unless the cache has it, and take what is needed out of it.

    Raises InputError where the version does not exist, cannot be fetched, or has another shape than the known ones.
    """
    folder = sources(version)
    stubs = {"sglang.srt.utils": UTILS, "sglang.srt.utils.common": UTILS}
    package = IsolatedPackage("sglang", folder, stubs, {"torch": _EagerTorch("torch")})
    names = {"torch": torch, "is_pin_memory_available": is_pin_memory_available}
    try:
        penaltylib = package.load(PENALTYLIB)
        for name in (*PENALIZERS, "BatchedPenalizerOrchestrator"):
            getattr(penaltylib, name)
        statements = {path: find_statements(folder, path, names) for path in ("normal", "eagle")}
    except Exception as error:  # somebody else's code: whatever it raises, it is not what we know
        raise InputError(f"sglang {version}: another shape than known ones: {type(error).__name__}: {error}") from None
    return Upstream(version, folder, penaltylib, statements)


def revision_of(version: str) -> str:
    """The bundle of `data/revisions.toml` that describes sglang `version`: the newest that is not newer."""
    named = {release_key(name.removeprefix("sglang-")): name for name in revisions() if name.startswith("sglang-")}
    known = [key for key in named if key <= release_key(version)]
    if not known:
        raise InputError(f"sglang {version}: nothing is known of its settings; the oldest known is {named[min(named)]}")
    return named[max(known)]

"""A run in which it is written down what the penalizers are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from penaltylab.engine.batch import ScheduleBatch
from penaltylab.engine.request import Req
from penaltylab.engine.run import Decode, run, start
from penaltylab.params import Params
from penaltylab.penalties import BatchedPenalizerOrchestrator
from penaltylab.upstream import Upstream


@dataclass(frozen=True)
class Observed:
    """A run, and by request the tokens that were counted, in order; `launches` has those of each launch apart."""

    run: Decode
    launches: list[dict[int, list[int]]]

    def counted(self, rid: int) -> list[int]:
        """All tokens counted for request `rid`."""
        return [token for launch in self.launches for token in launch.get(rid, [])]

    def share_counted(self) -> float:
        """How many of the tokens that came before each request's last are counted, 0 to 1."""
        right = due = 0
        for rid, tokens in self.run.tokens.items():
            right += (Counter(self.counted(rid)) & Counter(tokens[:-1])).total()
            due += max(0, len(tokens) - 1)
        return right / due if due else float("nan")


@dataclass
class _Recorder:
    """Keeps the tensors; they are read after the run, so that it is not disturbed."""

    owners: dict[int, int] = field(default_factory=dict)
    seen: list[tuple[list[int] | dict[int, int], torch.Tensor, torch.Tensor, torch.Tensor | None]] = field(
        default_factory=list
    )

    def watch_orchestrator(self, orchestrator: Any) -> None:
        count = orchestrator.cumulate_output_tokens

        def cumulate_output_tokens(output_ids: torch.Tensor) -> None:
            rows = torch.arange(len(output_ids))
            self.seen.append(([req.rid for req in orchestrator.reqs()], rows, output_ids.unsqueeze(1), None))
            count(output_ids)

        orchestrator.cumulate_output_tokens = cumulate_output_tokens

    def watch_slots(self, penalties: Any) -> None:
        count = penalties.count

        def count_and_keep(slots: torch.Tensor, tokens: torch.Tensor, accept_lens: torch.Tensor | None = None) -> None:
            self.seen.append((self.owners.copy(), slots, tokens, accept_lens))
            count(slots, tokens, accept_lens)

        penalties.count = count_and_keep

    def launches(self) -> list[dict[int, list[int]]]:
        read = []
        for owners, rows, tokens, accept_lens in self.seen:
            lens = [tokens.shape[1]] * len(tokens) if accept_lens is None else accept_lens.tolist()
            counted = zip(rows.tolist(), tokens.tolist(), lens, strict=True)
            read.append({owners[row]: ids[:length] for row, ids, length in counted})
        return read


def observe(params: Params, requests: list[Req] | None = None, release: Upstream | None = None) -> Observed:
    """A run as `params` say, of the scenario's requests or of `requests`, with the penalties of `release` if given."""
    recorder = _Recorder()
    ours = _ours(params)
    make = release.make_orchestrator(params.vocab_size) if release else ours

    def make_and_watch(batch: ScheduleBatch) -> Any:
        orchestrator = make(batch)
        recorder.watch_orchestrator(orchestrator)
        slots = batch.context.slot_penalties
        if slots is not None and not recorder.owners:
            recorder.watch_slots(slots)
        recorder.owners |= {req.req_pool_idx: req.rid for req in batch.reqs}
        return orchestrator

    seams: dict[str, Any] = {"make_orchestrator": make_and_watch}
    if release:
        seams["batch_class"] = release.batch_class(params.path, params.overlap)
    result = run(params, start(params), requests, **seams)
    return Observed(result, recorder.launches())


def _ours(params: Params) -> Callable[[ScheduleBatch], Any]:
    exact = params.accounting == "exact"
    return lambda batch: BatchedPenalizerOrchestrator(
        params.vocab_size, batch, params.min_tokens_mask, params.apply, params.prepare_h2d, idle=exact
    )

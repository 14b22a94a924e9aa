"""What a step's penalties cost: upstream's dense (batch, vocab) passes beside ours, at the history's ids alone.

Ours is the automatic choice, which takes the dense passes where the history is long. Upstream's side is sglang's own
penalizers where the release is in the cache (`penaltylab upstream` puts it there), else our formulation of them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from penaltylab.bench.interleave import Body, cached_release, device_us, host_us, one_thread
from penaltylab.bench.traffic import traffic
from penaltylab.engine.batch import ScheduleBatch
from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.engine.sampling import SamplingBatchInfo
from penaltylab.penalties import BatchedPenalizerOrchestrator
from penaltylab.penalties.history import effects
from penaltylab.upstream import Upstream

BATCHES = (1, 8, 64, 256, 1024, 4096)
VOCABS = (32_000, 128_256, 151_936)
HISTORIES = (16, 512, 8_192)
KINDS: dict[str, dict[str, Any]] = {
    "additive": {"frequency_penalty": 0.5, "presence_penalty": 0.25},
    # A scale of nearly 1, so that logits which are penalised again and again stay finite.
    "repetition": {"repetition_penalty": 1 + 2**-20},
}
CPU_BYTES = 1 << 28  # a (batch, vocab) tensor of at most this size; larger cases are left to a GPU
CUDA_BYTES = 4 << 30


@dataclass(frozen=True)
class Case:
    """One point: penalties of `kind`, and `history` tokens counted for each request."""

    kind: str
    batch: int
    vocab: int
    history: int


@dataclass(eq=False)
class Owner:
    """As much of a batch as penalizers see; sglang's hold it weakly."""

    reqs: list[Req]
    device: torch.device


def every_case(limit: int) -> list[Case]:
    """All points whose (batch, vocab) tensor of float32 has at most `limit` bytes."""
    return [
        Case(kind, batch, vocab, history)
        for kind in KINDS
        for batch in BATCHES
        for vocab in VOCABS
        for history in HISTORIES
        if 4 * batch * vocab <= limit
    ]


def run(cases: Sequence[Case] | None = None, rounds: int = 15, at_least_us: float = 5_000) -> list[dict[str, Any]]:
    """A row a case, in us of device time on a GPU and of host time on `CPU tensors`; bit-equal results are asserted.

    `upstream_us` and `ours_us` are what a launch does with the state: materialise the penalties and apply them; the
    `_count_us` beside them what it takes to count a token; `step_ratio` is of both together. `_bytes` and `_peak` are
    what the launch's part moves and the most it allocates, from the shapes of its operators; `_operators` how many
    those are.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    limit = CUDA_BYTES if device.type == "cuda" else CPU_BYTES
    release = cached_release()
    with torch.inference_mode(), one_thread():
        return [
            _row(case, device, release, rounds, at_least_us) for case in (every_case(limit) if cases is None else cases)
        ]


def _row(case: Case, device: torch.device, release: Upstream | None, rounds: int, at_least_us: float) -> dict[str, Any]:
    torch.manual_seed(0)
    tokens = torch.randint(case.vocab, (case.batch, case.history), device=device)
    params = SamplingParams(max_new_tokens=1 << 30, **KINDS[case.kind])
    owner = Owner([Req(rid, [0], params, Tokenizer(0)) for rid in range(case.batch)], device)
    upstream, ours = _upstream(case, owner, tokens, release), _ours(case, owner, tokens)
    logits = torch.randn((case.batch, case.vocab), device=device)
    results = [logits.clone(), logits.clone()]
    launch = [traffic(_apply(info, result)) for info, result in zip((upstream, ours), results, strict=True)]
    if not torch.equal(*results):
        raise AssertionError(f"dense and sparse differ: {case}")
    count = [traffic(_count(info, tokens[:, -1])) for info in (upstream, ours)]
    bodies = {
        "upstream_us": _apply(upstream, logits),
        "ours_us": _apply(ours, logits),
        "upstream_count_us": _count(upstream, tokens[:, -1]),
        "ours_count_us": _count(ours, tokens[:, -1]),
    }
    on_gpu = device.type == "cuda"
    took = device_us(bodies, device) if on_gpu else host_us(bodies, rounds, at_least_us)
    return {
        "suite": "apply",
        "case": {
            "kind": case.kind,
            "batch": case.batch,
            "vocab": case.vocab,
            "history": case.history,
            "on": "GPU" if on_gpu else "CPU tensors",
        },
        **took,
        "ratio": took["upstream_us"] / took["ours_us"],
        "step_ratio": (took["upstream_us"] + took["upstream_count_us"]) / (took["ours_us"] + took["ours_count_us"]),
        "upstream_bytes": launch[0].moved,
        "ours_bytes": launch[1].moved,
        "upstream_peak": launch[0].peak,
        "ours_peak": launch[1].peak,
        "upstream_operators": launch[0].operators,
        "ours_operators": launch[1].operators,
        "upstream_count_bytes": count[0].moved,
        "ours_count_bytes": count[1].moved,
        "upstream_count_operators": count[0].operators,
        "ours_count_operators": count[1].operators,
        "chosen": "dense" if ours.penalizer_orchestrator.sparse_penalties() is None else "sparse",
        "against": f"sglang {release.version}" if release else "our dense passes",
    }


def _apply(info: SamplingBatchInfo, logits: torch.Tensor) -> Body:
    def body() -> None:
        info.copy_for_forward().apply_logits_bias(logits)

    return body


def _count(info: SamplingBatchInfo, output_ids: torch.Tensor) -> Body:
    """Counts a token, and has the history forget it, so that it keeps its length."""
    orchestrator = info.penalizer_orchestrator
    past = getattr(orchestrator, "history", None)
    before = vars(past).copy() if past is not None else {}

    def body() -> None:
        orchestrator.cumulate_output_tokens(output_ids)
        if past is not None:
            vars(past).update(before)

    return body


def _upstream(case: Case, owner: Owner, tokens: torch.Tensor, release: Upstream | None) -> SamplingBatchInfo:
    batch = cast(ScheduleBatch, owner)
    dense = release.make_orchestrator(case.vocab) if release else partial(BatchedPenalizerOrchestrator, case.vocab)
    return _info(case, tokens, dense(batch), "dense")


def _ours(case: Case, owner: Owner, tokens: torch.Tensor) -> SamplingBatchInfo:
    auto = BatchedPenalizerOrchestrator(case.vocab, cast(ScheduleBatch, owner), apply="auto")
    info = _info(case, tokens, auto, "auto")
    past = auto.history
    assert past is not None
    past.length = past.steps = case.history
    if past.tokens is not None and tokens.shape[1] < past.sparse_when.at_most:
        places = torch.arange(case.history, device=tokens.device).expand_as(tokens)
        # Of an id that stands in a row more than once, one place has what is added to it.
        kept = torch.zeros((case.batch, case.vocab), dtype=torch.int64, device=tokens.device)
        once = kept.scatter_(1, tokens, places).gather(1, tokens) == places
        past.tokens, past.effects = tokens, effects(auto, tokens)
        if "additive" in past.effects:
            past.effects["additive"].masked_fill_(~once, 0.0)
    else:
        past.tokens = None
    return info


def _info(case: Case, tokens: torch.Tensor, orchestrator: Any, apply: str) -> SamplingBatchInfo:
    """A batch's sampling state, with the history `tokens` written into the penalizers' dense state."""
    for penalizer in orchestrator.penalizers.values():
        for name in [name for name in vars(penalizer) if name.startswith("cumulated_")]:
            coefficients = getattr(penalizer, name.removeprefix("cumulated_"))
            getattr(penalizer, name).scatter_(1, tokens, coefficients.expand(-1, case.history))
    temperatures = torch.zeros((case.batch, 1), device=tokens.device)
    return SamplingBatchInfo(temperatures, True, case.vocab, orchestrator, apply=apply)


if __name__ == "__main__":
    print(*map(json.dumps, run()), sep="\n")

"""What applying the penalties costs: upstream's dense (batch, vocab) passes beside ours, at the history's ids alone."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import torch

from penaltylab.bench.interleave import device_us, host_us
from penaltylab.engine.batch import ScheduleBatch
from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.engine.sampling import SamplingBatchInfo
from penaltylab.penalties import BatchedPenalizerOrchestrator
from penaltylab.penalties.sparse import History

BATCHES = (1, 8, 64, 256, 1024, 4096)
VOCABS = (32_000, 128_256, 151_936)
HISTORIES = (16, 512, 8_192)
KINDS = ("additive", "repetition")
CPU_BYTES = 1 << 28  # a (batch, vocab) tensor of at most this size; larger cases are left to a GPU
CUDA_BYTES = 4 << 30


def run() -> list[dict[str, Any]]:
    """A row a case, in us of device time on a GPU and of host time on `CPU tensors`; bit-equal results are asserted.

    `upstream_bytes` and `ours_bytes` are what each formulation reads and writes, by the shapes of its operators.
    """
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    limit = CUDA_BYTES if cuda else CPU_BYTES
    cases = [(k, b, v, h) for k in KINDS for b in BATCHES for v in VOCABS for h in HISTORIES if 4 * b * v <= limit]
    with torch.inference_mode():
        return [_row(*case, device) for case in cases]


def _row(kind: str, batch: int, vocab: int, history: int, device: torch.device) -> dict[str, Any]:
    torch.manual_seed(0)
    dense, sparse = _infos(kind, batch, vocab, history, device)
    logits = torch.randn((batch, vocab), device=device)
    results = []
    for info in (dense, sparse):
        results.append(logits.clone())
        _step(info, results[-1])()
    if not torch.equal(*results):
        raise AssertionError(f"dense and sparse differ: {kind}, batch {batch}, vocab {vocab}, history {history}")
    bodies = {"upstream": _step(dense, logits), "ours": _step(sparse, logits)}
    took = device_us(bodies, device) if device.type == "cuda" else host_us(bodies, rounds=5, at_least_us=20_000)
    # Dense: zero, subtract twice, add to the logits, or clone and scale. Sparse: gathers of state, then of logits.
    dense_passes, sparse_passes = (10, 14) if kind == "additive" else (7, 11)
    return {
        "suite": "apply",
        "case": {
            "kind": kind,
            "batch": batch,
            "vocab": vocab,
            "history": history,
            "on": "GPU" if device.type == "cuda" else "CPU tensors",
        },
        "upstream_us": took["upstream"],
        "ours_us": took["ours"],
        "ratio": took["upstream"] / took["ours"],
        "upstream_bytes": dense_passes * 4 * batch * vocab,
        "ours_bytes": sparse_passes * 4 * batch * history,
    }


def _step(info: SamplingBatchInfo, logits: torch.Tensor) -> Callable[[], object]:
    def step() -> None:
        info.copy_for_forward().apply_logits_bias(logits)

    return step


def _infos(
    kind: str, batch: int, vocab: int, history: int, device: torch.device
) -> tuple[SamplingBatchInfo, SamplingBatchInfo]:
    """The same penalties over the same history, applied densely and sparsely."""
    # A scale of nearly 1, so that logits which are penalised again and again stay finite.
    some = (
        {"frequency_penalty": 0.5, "presence_penalty": 0.25}
        if kind == "additive"
        else {"repetition_penalty": 1 + 2**-20}
    )
    params = SamplingParams(max_new_tokens=1 << 30, **some)  # type: ignore[arg-type]
    owner = SimpleNamespace(reqs=[Req(i, [0], params, Tokenizer(0)) for i in range(batch)], device=device)
    orchestrator = BatchedPenalizerOrchestrator(vocab, cast(ScheduleBatch, owner), apply="sparse")
    tokens = torch.randint(vocab, (batch, history), device=device)
    for penalizer in orchestrator.penalizers.values():
        if penalizer.is_prepared:
            coefficients, state = (getattr(penalizer, name) for name in penalizer.state_names)
            state.scatter_(1, tokens, coefficients.expand(-1, history))
    past = orchestrator.history = History(orchestrator)
    past.tokens, past.seen = tokens, history
    orchestrator.accumulate_additive_penalties(past.additive)
    temperatures = torch.zeros((batch, 1), device=device)
    return (
        SamplingBatchInfo(temperatures, True, vocab, orchestrator, apply="dense"),
        SamplingBatchInfo(temperatures, True, vocab, orchestrator, apply="sparse"),
    )


if __name__ == "__main__":
    print(*map(json.dumps, run()), sep="\n")

"""What it costs the host to hand over the last tokens: upstream's list and tensor beside the ring's gather by slot.

Upstream's side is sglang's own statements where the release is in the cache, else our formulation of them.
"""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from penaltylab.bench.interleave import Body, cached_release, host_us, one_thread
from penaltylab.engine.batch import ScheduleBatch
from penaltylab.engine.h2d import PinnedRing, last_tokens, pinned_async
from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.upstream import Upstream

BATCHES = (1, 8, 64, 256, 1024, 4096)


def run(batches: Sequence[int] = BATCHES) -> list[dict[str, Any]]:
    """A row a batch size, in us of the host; on a GPU the copy is included, on `CPU tensors` there is none."""
    release = cached_release()
    with one_thread():
        return [_row(batch, release) for batch in batches]


def _row(size: int, release: Upstream | None) -> dict[str, Any]:
    cuda = torch.cuda.is_available()
    batch = _batch(size, torch.device("cuda" if cuda else "cpu"))
    values, indices = batch.req_to_token_pool.last_tokens, batch.req_pool_indices_cpu
    if cuda:
        ring = PinnedRing(batch.device, size)
        bodies: dict[str, Body] = {"upstream": lambda: pinned_async(batch), "ours": lambda: ring(batch)}
    else:
        out = np.empty(size, dtype=np.int64)
        bodies = {
            "upstream": lambda: torch.tensor(last_tokens(batch), dtype=torch.int64),
            "ours": lambda: values.take(indices, out=out, mode="clip"),
        }
    if release:
        bodies["upstream"] = lambda: release.statements["normal"].run(batch)
    took = host_us(bodies, rounds=25)
    return {
        "suite": "host",
        "case": {"batch": size, "on": "GPU" if cuda else "CPU tensors"},
        "upstream_us": took["upstream"],
        "ours_us": took["ours"],
        "ratio": took["upstream"] / took["ours"],
        "bytes": 8 * size,
        "against": f"sglang {release.version}" if release else "our list and tensor",
    }


def _batch(size: int, device: torch.device) -> ScheduleBatch:
    """As much of a batch as counting the last tokens needs; they are handed to penalizers that do nothing."""
    params, tokenizer = SamplingParams(max_new_tokens=99), Tokenizer(eos_token_id=0)
    reqs = [Req(rid, [1], params, tokenizer, output_ids=[rid, rid + 1]) for rid in range(size)]
    nothing = SimpleNamespace(cumulate_output_tokens=lambda output_ids: None)
    parts: dict[str, Any] = {
        "reqs": reqs,
        "device": device,
        "req_to_token_pool": SimpleNamespace(last_tokens=np.arange(1, size + 1)),
        "req_pool_indices_cpu": np.arange(size),
        "sampling_info": SimpleNamespace(penalizer_orchestrator=nothing),
    }
    return cast(ScheduleBatch, SimpleNamespace(**parts))


if __name__ == "__main__":
    print(*map(json.dumps, run()), sep="\n")

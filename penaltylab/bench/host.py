"""What it costs the host to hand over the last tokens: upstream's list and tensor beside the ring's gather by slot."""

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch

from penaltylab.bench.interleave import Body, host_us
from penaltylab.engine.batch import ScheduleBatch
from penaltylab.engine.h2d import PinnedRing, last_tokens, pinned_async
from penaltylab.engine.request import Req, SamplingParams, Tokenizer

BATCHES = (1, 8, 64, 256, 1024, 4096)


def run() -> list[dict[str, Any]]:
    """A row a batch size, in us of the host; on a GPU the copy is included, on `CPU tensors` there is none."""
    cuda = torch.cuda.is_available()
    return [_row(batch, cuda) for batch in BATCHES]


def _row(size: int, cuda: bool) -> dict[str, Any]:
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
    took = host_us(bodies)
    return {
        "suite": "host",
        "case": {"batch": size, "on": "GPU" if cuda else "CPU tensors"},
        "upstream_us": took["upstream"],
        "ours_us": took["ours"],
        "ratio": took["upstream"] / took["ours"],
        "bytes": 8 * size,
    }


def _batch(size: int, device: torch.device) -> ScheduleBatch:
    params, tokenizer = SamplingParams(max_new_tokens=99), Tokenizer(eos_token_id=0)
    reqs = [Req(rid, [1], params, tokenizer, output_ids=[rid, rid + 1]) for rid in range(size)]
    pool = SimpleNamespace(last_tokens=np.arange(1, size + 1))
    parts = {"reqs": reqs, "device": device, "req_to_token_pool": pool, "req_pool_indices_cpu": np.arange(size)}
    return cast(ScheduleBatch, SimpleNamespace(**parts))


if __name__ == "__main__":
    print(*map(json.dumps, run()), sep="\n")

"""On a real GPU: the same tokens, whatever the strategy, and a stall where the emulated device has one."""

import math

import pytest

from penaltylab.engine.run import decode
from penaltylab.engine.workload import make_requests
from penaltylab.params import Params
from tests.oracle import decode_exactly, decode_like_upstream

pytestmark = pytest.mark.gpu

SMALL = {"device": "cuda", "batch_size": 4, "vocab_size": 4096, "steps": 40, "forward_ms": 1.0}
SAFE_H2D = ("blocking", "pageable_async", "pinned_async", "pinned_blocking", "pinned_ring", "device_resident")


@pytest.mark.parametrize("h2d", SAFE_H2D)
@pytest.mark.parametrize("barrier", ["coarse", "read_done"])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_tokens_are_bit_equal_to_the_oracle(path, barrier, h2d):
    given = SMALL | {"path": path, "scenario": "churn", "barrier": barrier, "h2d": h2d}
    params = Params.of(**given)
    assert decode(**given).tokens == decode_like_upstream(params, make_requests(params))


@pytest.mark.parametrize("apply", ["dense", "sparse"])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_exact_accounting_is_exact(path, apply):
    given = SMALL | {"path": path, "scenario": "churn", "accounting": "exact", "apply": apply}
    params = Params.of(**given)
    result = decode(**given)
    for req in make_requests(params):
        assert result.tokens[req.rid] == decode_exactly(params, req, len(result.tokens[req.rid]))


@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_the_blocking_copy_stalls_behind_the_coarse_barrier_and_the_other_does_not(path):
    given = {"device": "cuda", "path": path, "forward_ms": 5.0, "steps": 40}
    blocking, free = (decode(**given, h2d=h2d).median("cumulate_us") for h2d in ("blocking", "pinned_async"))
    assert blocking > 2_000
    assert free < 1_000


def test_what_only_a_trace_can_tell_is_nan():
    result = decode(**SMALL)
    assert math.isnan(result.median("stall_us"))
    assert result.median("step_us") > 1_000
    assert 0 < result.fwd_occupancy <= 100

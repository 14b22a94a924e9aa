"""Which tokens count, against plain decoders: sglang's accounting with its faults, and the exact one."""

import pytest

from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.engine.run import decode
from penaltylab.engine.workload import make_requests
from penaltylab.params import Params
from tests.oracle import decode_exactly, decode_like_upstream

SMALL = {"device": "emu", "batch_size": 4, "vocab_size": 256, "steps": 40, "forward_ms": 0.2, "accept_rate": 0.8}
EVERY_H2D = (
    "blocking",
    "pageable_async",
    "pinned_async",
    "pinned_blocking",
    "pinned_ring",
    "device_resident",
    "pinned_reuse_unsafe",
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("scenario", ["steady", "churn"])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_upstream_accounting_is_what_sglang_computes(path, scenario, overlap, seed):
    given = SMALL | {"path": path, "scenario": scenario, "overlap": overlap, "seed": seed}
    params = Params.of(**given)
    assert decode(**given).tokens == decode_like_upstream(params, make_requests(params))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("scenario", ["steady", "churn"])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_exact_accounting_equals_each_request_decoded_alone(path, scenario, overlap, seed):
    given = SMALL | {"path": path, "scenario": scenario, "overlap": overlap, "seed": seed, "accounting": "exact"}
    params = Params.of(**given)
    result = decode(**given)
    for req in make_requests(params):
        tokens = result.tokens[req.rid]
        assert tokens == decode_exactly(params, req, len(tokens))
    assert max(map(len, result.tokens.values())) > 5


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_every_strategy_gives_the_same_tokens_with_requests_joining_and_leaving(path, overlap):
    runs = [decode(**SMALL, path=path, scenario="churn", overlap=overlap, h2d=h2d) for h2d in EVERY_H2D]
    assert all(run.tokens == runs[0].tokens for run in runs)
    assert {len(tokens) for tokens in runs[0].tokens.values()} > {1}


@pytest.mark.parametrize("accounting", ["upstream", "exact"])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_how_penalties_are_applied_does_not_change_the_tokens(path, accounting):
    given = SMALL | {"path": path, "scenario": "churn", "accounting": accounting}
    dense, sparse, auto = (decode(**given, apply=apply).tokens for apply in ("dense", "sparse", "auto"))
    assert dense == sparse == auto


@pytest.mark.parametrize("barrier", ["none", "read_done"])
@pytest.mark.parametrize("path", ["normal", "eagle"])
def test_the_barrier_does_not_change_which_tokens_count(path, barrier):
    given = SMALL | {"path": path, "scenario": "churn"}
    assert decode(**given, barrier=barrier).tokens == decode(**given).tokens


def test_without_overlap_the_normal_path_is_exact():
    given = SMALL | {"scenario": "churn"}
    assert decode(**given, overlap=False).tokens == decode(**given, accounting="exact").tokens


@pytest.mark.parametrize(("rate", "k"), [(0.0, 1), (0.5, 2), (0.9, 5), (1.0, 3)])
def test_greedy_speculation_with_exact_penalties_is_lossless(rate, k):
    normal = decode(**SMALL, accounting="exact").tokens
    eagle = decode(**(SMALL | {"accept_rate": rate, "draft_tokens": k}), path="eagle", accounting="exact").tokens
    for rid, tokens in normal.items():
        common = min(len(tokens), len(eagle[rid]))
        assert eagle[rid][:common] == tokens[:common]
        assert common > 30


def test_accept_lengths_add_up_to_the_tokens_of_the_rounds():
    result = decode(**SMALL, path="eagle")
    assert result.accept_lens.shape == (40, 4)
    assert result.accept_lens.sum(0).tolist() == [len(result.tokens[rid]) - 1 for rid in range(4)]


def test_tokens_end_at_the_finish_and_a_request_that_never_ran_has_none():
    def request(rid: int, arrival: int) -> Req:
        return Req(rid, [rid], SamplingParams(max_new_tokens=5), Tokenizer(eos_token_id=255), arrival)

    tokens = decode(
        [request(0, 0), request(1, 2), request(2, 10**6)], **(SMALL | {"batch_size": 1, "steps": 9, "warmup": 1})
    ).tokens
    assert [len(tokens[rid]) for rid in range(3)] == [5, 5, 0]

"""Property: over random mixes of requests, arrivals, acceptance and penalties, exact accounting equals the oracle."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.engine.run import run, start
from penaltylab.params import Params
from tests.oracle import decode_exactly, decode_like_upstream

VOCAB = 128


def _requests(random: Random, n: int) -> list[Req]:
    def request(rid: int) -> Req:
        params = SamplingParams(
            max_new_tokens=random.randint(1, 20),
            min_new_tokens=random.choice([0, 0, 3, 9]),
            frequency_penalty=random.choice([0.0, 0.25, 1.5]),
            presence_penalty=random.choice([0.0, 0.5]),
            repetition_penalty=random.choice([1.0, 2.0, 0.5]),
            stop_token_ids=frozenset(random.sample(range(VOCAB), random.randint(0, 12))),
        )
        prompt = [random.randrange(VOCAB) for _ in range(random.randint(1, 4))]
        return Req(rid, prompt, params, Tokenizer(eos_token_id=random.randrange(VOCAB)), random.randint(0, 15))

    return sorted((request(rid) for rid in range(n)), key=lambda req: req.arrival)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 9),
    path=st.sampled_from(["normal", "eagle"]),
    overlap=st.booleans(),
    barrier=st.sampled_from(["coarse", "read_done"]),
    apply=st.sampled_from(["dense", "sparse", "auto"]),
    accounting=st.sampled_from(["exact", "upstream"]),
    accept_rate=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    draft_tokens=st.integers(1, 5),
)
def test_tokens_equal_the_oracles_and_nothing_races(seed, n, accounting, **given_params):
    params = Params.of(
        device="emu",
        vocab_size=VOCAB,
        batch_size=3,
        steps=60,
        forward_ms=0.1,
        seed=seed % 1000,
        accounting=accounting,
        **given_params,
    )
    result = run(params, start(params), _requests(Random(seed), n))
    reqs = _requests(Random(seed), n)
    if accounting == "upstream":
        assert result.tokens == decode_like_upstream(params, reqs)
    else:
        for req in reqs:
            tokens = result.tokens[req.rid]
            assert tokens == decode_exactly(params, req, len(tokens))
    assert result.hazards == []

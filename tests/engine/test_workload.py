"""Workloads: requests drawn from a scenario and a seed."""

import pytest

from penaltylab.engine.run import decode
from penaltylab.engine.workload import make_requests
from penaltylab.params import Params, scenarios


def test_steady_requests_all_arrive_first_and_never_end():
    reqs = make_requests(Params.of(batch_size=3))
    assert [req.arrival for req in reqs] == [0, 0, 0]
    assert all(req.sampling_params.max_new_tokens > 10**6 for req in reqs)


def test_churn_has_requests_that_arrive_late_with_and_without_penalties():
    reqs = make_requests(Params.of(scenario="churn", batch_size=4))
    assert [req.arrival for req in reqs] == sorted(req.arrival for req in reqs)
    assert reqs[-1].arrival > 0
    assert {req.sampling_params.frequency_penalty for req in reqs} == {0.5, 0.0, 0.25}


def test_a_seed_gives_the_same_requests_again():
    def prompts(seed: int) -> list[list[int]]:
        return [req.origin_input_ids for req in make_requests(Params.of(scenario="churn", seed=seed))]

    assert prompts(1) == prompts(1) != prompts(2)


@pytest.mark.parametrize("scenario", scenarios())
def test_every_scenario_that_ships_runs_without_a_hazard(scenario: str) -> None:
    run = decode(device="emu", scenario=scenario, steps=12, warmup=4, vocab_size=256)
    assert len(run.step_us) == 12
    assert run.hazards == []
    assert all(run.tokens[rid] for rid in list(run.tokens)[: run.params.batch_size])

"""The four penalizers under their orchestrator, on small exact cases."""

from types import SimpleNamespace

import pytest
import torch

from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.penalties import BatchedPenalizerOrchestrator

VOCAB = 6
EOS = 5


def batch(*params: dict) -> SimpleNamespace:
    reqs = [
        Req(rid, [0], SamplingParams(max_new_tokens=9, **each), Tokenizer(eos_token_id=EOS))
        for rid, each in enumerate(params)
    ]
    return SimpleNamespace(reqs=reqs, device=torch.device("cpu"))


def orchestrator(owner: SimpleNamespace, mask: str = "where") -> BatchedPenalizerOrchestrator:
    return BatchedPenalizerOrchestrator(VOCAB, owner, mask)


def penalised(of: BatchedPenalizerOrchestrator, logits: list[float], repeat: int = 1) -> list[list[float]]:
    rows = torch.tensor([logits] * (len(of.reqs()) * repeat))
    of.apply(rows, repeat)
    return rows.tolist()


def cumulate(of: BatchedPenalizerOrchestrator, *steps: list[int]) -> None:
    for tokens in steps:
        of.cumulate_output_tokens(torch.tensor(tokens))


def test_frequency_counts_every_time():
    one = orchestrator(owner := batch({"frequency_penalty": 0.5}))
    cumulate(one, [1], [1], [2])
    assert penalised(one, [4.0] * VOCAB) == [[4.0, 3.0, 3.5, 4.0, 4.0, 4.0]]
    assert owner.reqs


def test_presence_counts_once():
    one = orchestrator(owner := batch({"presence_penalty": 0.25}))
    cumulate(one, [1], [1], [2])
    assert penalised(one, [4.0] * VOCAB) == [[4.0, 3.75, 3.75, 4.0, 4.0, 4.0]]
    assert owner.reqs


def test_repetition_divides_positive_and_multiplies_negative_logits():
    one = orchestrator(owner := batch({"repetition_penalty": 2.0}))
    cumulate(one, [0], [1])
    assert penalised(one, [4.0, -4.0, 4.0, -4.0, 0.0, 0.0]) == [[2.0, -8.0, 4.0, -4.0, 0.0, 0.0]]
    assert owner.reqs


@pytest.mark.parametrize("mask", ["where", "boolean_index"])
def test_min_new_tokens_forbids_the_stop_tokens_for_so_many_calls(mask):
    owner = batch({"min_new_tokens": 2, "stop_token_ids": frozenset({3})}, {"min_new_tokens": 1})
    both = orchestrator(owner, mask)
    no = float("-inf")
    assert penalised(both, [1.0] * VOCAB) == [[1, 1, 1, no, 1, no], [1, 1, 1, 1, 1, no]]
    cumulate(both, [0, 0])
    assert penalised(both, [1.0] * VOCAB) == [[1, 1, 1, no, 1, no], [1, 1, 1, 1, 1, 1]]
    cumulate(both, [0, 0])
    assert penalised(both, [1.0] * VOCAB) == [[1] * VOCAB] * 2


def test_additive_penalties_are_summed_before_scaling():
    one = orchestrator(owner := batch({"frequency_penalty": 0.5, "presence_penalty": 0.5, "repetition_penalty": 2.0}))
    cumulate(one, [1])
    assert penalised(one, [4.0] * VOCAB)[0][1] == (4.0 - 0.5 - 0.5) / 2
    assert owner.reqs


def test_repeat_gives_all_verify_positions_one_state():
    both = orchestrator(owner := batch({"frequency_penalty": 1.0}, {"frequency_penalty": 2.0}))
    cumulate(both, [0, 1])
    rows = penalised(both, [4.0] * VOCAB, repeat=3)
    assert [row[:2] for row in rows] == [[3.0, 4.0]] * 3 + [[4.0, 2.0]] * 3
    assert owner.reqs


def test_nothing_is_required_when_all_values_are_neutral():
    owner = batch({}, {})
    assert not orchestrator(owner).is_required


def test_filter_keeps_rows_and_drops_what_nobody_wants_any_more():
    owner = batch({"frequency_penalty": 1.0}, {"presence_penalty": 1.0}, {"frequency_penalty": 2.0})
    of = orchestrator(owner)
    cumulate(of, [0, 1, 2])
    owner.reqs = [owner.reqs[0], owner.reqs[2]]
    of.filter(torch.tensor([0, 2]))
    assert [p.is_prepared for p in of.penalizers.values()] == [True, False, False, False]
    assert penalised(of, [4.0] * VOCAB) == [[3, 4, 4, 4, 4, 4], [4, 4, 2, 4, 4, 4]]
    owner.reqs = []
    of.filter(torch.tensor([], dtype=torch.int64))
    assert not of.is_required


def test_merge_prepares_whichever_side_has_no_state():
    mine, theirs = batch({"frequency_penalty": 1.0}), batch({"repetition_penalty": 2.0})
    left, right = orchestrator(mine), orchestrator(theirs)
    cumulate(left, [0])
    left.merge(right)
    mine.reqs = mine.reqs + theirs.reqs
    cumulate(left, [0, 1])
    assert penalised(left, [4.0] * VOCAB) == [[2, 4, 4, 4, 4, 4], [4, 2, 4, 4, 4, 4]]


def test_changes_leave_the_tensors_that_a_running_launch_reads():
    owner = batch({"frequency_penalty": 1.0}, {"frequency_penalty": 1.0})
    of = orchestrator(owner)
    cumulate(of, [0, 1])
    state = next(iter(of.penalizers.values())).cumulated_frequency_penalties
    before = state.clone()
    owner.reqs = owner.reqs[:1]
    of.filter(torch.tensor([0]))
    assert torch.equal(state, before)

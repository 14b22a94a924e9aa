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


@pytest.mark.parametrize(
    ("params", "required"),
    [
        ({}, False),
        ({"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0}, False),
        ({"frequency_penalty": -0.5}, True),
        ({"presence_penalty": 0.5}, True),
        ({"repetition_penalty": 0.5}, True),
        ({"min_new_tokens": 1}, True),
    ],
)
def test_it_is_required_when_any_request_has_a_value_that_is_not_neutral(params, required):
    owner = batch({}, params)
    of = orchestrator(owner)
    assert of.is_required is required
    assert sum(penalizer.is_prepared for penalizer in of.penalizers.values()) == required


def test_a_request_without_a_penalty_in_a_batch_with_one_is_left_as_it_is():
    both = orchestrator(owner := batch({"frequency_penalty": 1.0, "repetition_penalty": 2.0, "min_new_tokens": 9}, {}))
    cumulate(both, [1, 1])
    assert penalised(both, [4.0] * VOCAB)[1] == [4.0] * VOCAB
    assert owner.reqs


def test_the_minimum_is_reached_with_that_token_exactly_and_keeps_the_penalizer_required():
    one = orchestrator(owner := batch({"min_new_tokens": 3}))
    allowed = []
    for _ in range(5):
        allowed.append(penalised(one, [1.0] * VOCAB)[0][EOS] == 1.0)
        cumulate(one, [0])
    assert allowed == [False, False, False, True, True]
    assert one.is_required
    assert owner.reqs


def test_stop_tokens_are_the_request_s_the_tokenizer_s_and_the_end_token():
    params = SamplingParams(9, min_new_tokens=1, stop_token_ids=frozenset({0, 3}))
    reqs = [
        Req(0, [0], params, Tokenizer(EOS, additional_stop_token_ids=frozenset({1}))),
        Req(1, [0], SamplingParams(9, min_new_tokens=1), Tokenizer(EOS)),
    ]
    owner = SimpleNamespace(reqs=reqs, device=torch.device("cpu"))
    rows = penalised(orchestrator(owner), [1.0] * VOCAB)
    assert [[i for i, value in enumerate(row) if value == float("-inf")] for row in rows] == [[0, 1, 3, EOS], [EOS]]


def test_only_generated_tokens_count_not_the_prompt():
    one = orchestrator(owner := batch({"repetition_penalty": 2.0, "frequency_penalty": 1.0}))
    assert owner.reqs[0].origin_input_ids == [0]
    assert penalised(one, [4.0] * VOCAB) == [[4.0] * VOCAB]


def test_frequency_doubles_with_the_second_time_and_presence_does_not():
    both = orchestrator(owner := batch({"frequency_penalty": 0.5}, {"presence_penalty": 0.5}))
    cumulate(both, [1, 1])
    assert [row[1] for row in penalised(both, [4.0] * VOCAB)] == [3.5, 3.5]
    cumulate(both, [1, 1])
    assert [row[1] for row in penalised(both, [4.0] * VOCAB)] == [3.0, 3.5]
    assert owner.reqs


def test_release_drops_all_state():
    of = orchestrator(owner := batch({"frequency_penalty": 1.0, "min_new_tokens": 2, "repetition_penalty": 2.0}))
    cumulate(of, [1])
    of.release()
    assert not of.is_required
    assert not any(penalizer.is_prepared for penalizer in of.penalizers.values())
    assert not any(isinstance(value, torch.Tensor) for p in of.penalizers.values() for value in vars(p).values())
    assert owner.reqs


def test_filter_keeps_rows_and_drops_what_nobody_wants_any_more():
    owner = batch({"frequency_penalty": 1.0}, {"presence_penalty": 1.0}, {"frequency_penalty": 2.0})
    of = orchestrator(owner)
    cumulate(of, [0, 1, 2])
    owner.reqs = [owner.reqs[0], owner.reqs[2]]
    of.filter(torch.tensor([0, 2]))
    assert [p.is_prepared for p in of.penalizers.values()] == [True, False, False, False]
    assert penalised(of, [4.0] * VOCAB) == [[3, 4, 4, 4, 4, 4], [4, 4, 2, 4, 4, 4]]


def test_filter_to_empty_releases():
    of = orchestrator(owner := batch({"frequency_penalty": 1.0}))
    owner.reqs = []
    of.filter(torch.tensor([], dtype=torch.int64))
    assert not of.is_required
    assert not any(penalizer.is_prepared for penalizer in of.penalizers.values())


def test_filter_leaves_nothing_required_when_those_that_wanted_something_have_left():
    of = orchestrator(owner := batch({"frequency_penalty": 1.0}, {}))
    owner.reqs = owner.reqs[1:]
    of.filter(torch.tensor([1]))
    assert not of.is_required


def test_merge_prepares_whichever_side_has_no_state():
    mine, theirs = batch({"frequency_penalty": 1.0}), batch({"repetition_penalty": 2.0})
    left, right = orchestrator(mine), orchestrator(theirs)
    cumulate(left, [0])
    left.merge(right)
    mine.reqs = mine.reqs + theirs.reqs
    cumulate(left, [0, 1])
    assert penalised(left, [4.0] * VOCAB) == [[2, 4, 4, 4, 4, 4], [4, 2, 4, 4, 4, 4]]


def test_merge_of_two_batches_without_penalties_prepares_nothing():
    mine, theirs = batch({}), batch({})
    left, right = orchestrator(mine), orchestrator(theirs)
    left.merge(right)
    assert not left.is_required
    assert not any(penalizer.is_prepared for penalizer in left.penalizers.values())


def test_changes_leave_the_tensors_that_a_running_launch_reads():
    owner = batch({"frequency_penalty": 1.0}, {"frequency_penalty": 1.0})
    of = orchestrator(owner)
    cumulate(of, [0, 1])
    state = next(iter(of.penalizers.values())).cumulated_frequency_penalties
    before = state.clone()
    owner.reqs = owner.reqs[:1]
    of.filter(torch.tensor([0]))
    assert torch.equal(state, before)

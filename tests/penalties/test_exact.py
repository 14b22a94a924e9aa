"""Exact accounting by slot, on small exact cases."""

import torch

from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.penalties.exact import SlotPenalties

CPU = torch.device("cpu")
VOCAB = 6


def start(*params: dict, vocab: int = VOCAB, apply: str = "sparse") -> tuple[SlotPenalties, torch.Tensor]:
    reqs = [Req(i, [0], SamplingParams(99, **each), Tokenizer(eos_token_id=vocab - 1)) for i, each in enumerate(params)]
    penalties = SlotPenalties(4, vocab, longest=32, device=CPU, apply=apply)
    slots = torch.arange(len(reqs)) + 1
    penalties.reset(slots, penalties.settings(reqs))
    return penalties, slots


def test_tokens_are_counted_once_and_rejected_drafts_not():
    penalties, slots = start({"frequency_penalty": 0.5})
    penalties.count(slots, torch.tensor([[1, 2, 2, 3]]), torch.tensor([3]))
    logits = torch.full((1, 1, VOCAB), 4.0)
    penalties.penalise(logits, slots, seen=4)
    assert logits.tolist() == [[[4.0, 3.5, 3.0, 4.0, 4.0, 4.0]]]


def test_a_verify_position_sees_the_drafts_before_it():
    penalties, slots = start({"frequency_penalty": 1.0, "presence_penalty": 0.5})
    penalties.count(slots, torch.tensor([[1]]))
    logits = torch.full((1, 3, VOCAB), 4.0)
    penalties.penalise(logits, slots, seen=1, drafts=torch.tensor([[1, 2]]))
    assert logits[0, :, :3].tolist() == [[4.0, 2.5, 4.0], [4.0, 1.5, 4.0], [4.0, 1.5, 2.5]]


def test_min_new_tokens_counts_tokens_not_rounds():
    penalties, slots = start({"min_new_tokens": 3})
    penalties.count(slots, torch.tensor([[1, 2, 3]]), torch.tensor([2]))
    logits = torch.zeros((1, 2, VOCAB))
    penalties.penalise(logits, slots, seen=3, drafts=torch.tensor([[1]]))
    assert logits[0, :, VOCAB - 1].tolist() == [float("-inf"), 0.0]


def test_touching_only_the_history_equals_touching_the_whole_vocabulary():
    penalties, slots = start(
        {"frequency_penalty": 0.3, "repetition_penalty": 1.3},
        {"presence_penalty": 0.7, "min_new_tokens": 50},
        {},
        vocab=97,
    )
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(97, (3, 20), generator=generator)
    penalties.count(slots, tokens)
    drafts = torch.randint(97, (3, 4), generator=generator)
    sparse = torch.randn((3, 5, 97), generator=generator)
    dense = sparse.clone()
    penalties.penalise(sparse, slots, seen=20, drafts=drafts)
    penalties.apply = "dense"
    penalties.penalise(dense, slots, seen=20, drafts=drafts)
    assert torch.equal(sparse, dense)
    assert torch.equal(sparse[2], dense[2])


def test_a_new_request_in_a_slot_starts_from_nothing():
    penalties, slots = start({"frequency_penalty": 1.0})
    penalties.count(slots, torch.tensor([[1]]))
    again = Req(9, [0], SamplingParams(99, frequency_penalty=2.0), Tokenizer(eos_token_id=5))
    penalties.reset(slots, penalties.settings([again]))
    penalties.count(slots, torch.tensor([[2]]))
    logits = torch.zeros((1, 1, VOCAB))
    penalties.penalise(logits, slots, seen=1)
    assert logits.tolist() == [[[0, 0, -2.0, 0, 0, 0]]]


def test_stop_ids_of_different_number_share_the_slots():
    few, slots = start({"min_new_tokens": 1}, {"min_new_tokens": 1, "stop_token_ids": frozenset({0, 2})})
    logits = torch.zeros((2, 1, VOCAB))
    few.penalise(logits, slots, seen=0)
    forbidden = [[i for i, value in enumerate(row[0]) if value == float("-inf")] for row in logits.tolist()]
    assert forbidden == [[5], [0, 2, 5]]

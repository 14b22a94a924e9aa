"""Touching only the ids of the history is bit-equal to the dense passes, whatever joins, leaves and is counted."""

from random import Random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.engine.sampling import SamplingBatchInfo
from penaltylab.penalties import BatchedPenalizerOrchestrator
from penaltylab.penalties.sparse import SparseWhen, sparse_when

VOCAB = 128
APPLIES = ("dense", "sparse", "auto")


class Batch:
    """Requests with an orchestrator of each way to apply, kept in step."""

    def __init__(self, random: Random, size: int) -> None:
        self.owner = SimpleNamespace(reqs=[_request(random) for _ in range(size)], device=torch.device("cpu"))
        self.ways = {apply: BatchedPenalizerOrchestrator(VOCAB, self.owner, apply=apply) for apply in APPLIES}

    def cumulate(self, random: Random) -> None:
        tokens = torch.tensor([random.randrange(VOCAB) for _ in self.owner.reqs])
        for of in self.ways.values():
            of.cumulate_output_tokens(tokens)

    def filter(self, random: Random) -> None:
        keep = sorted(random.sample(range(len(self.owner.reqs)), random.randint(1, len(self.owner.reqs))))
        self.owner.reqs = [self.owner.reqs[i] for i in keep]
        for of in self.ways.values():
            of.filter(torch.tensor(keep))

    def merge(self, other: "Batch") -> None:
        for apply, mine in self.ways.items():
            mine.merge(other.ways[apply])
        self.owner.reqs = self.owner.reqs + other.owner.reqs

    def logits(self, repeat: int) -> list[torch.Tensor]:
        """Random logits, penalised by each."""
        size = len(self.owner.reqs)
        results = []
        for apply, of in self.ways.items():
            info = SamplingBatchInfo(torch.zeros(size, 1), True, VOCAB, of, apply=apply)
            generator = torch.Generator().manual_seed(7)
            results.append(torch.randn((size * repeat, VOCAB), generator=generator))
            info.copy_for_forward().apply_logits_bias(results[-1], repeat)
        return results


def _request(random: Random) -> Req:
    params = SamplingParams(
        max_new_tokens=99,
        min_new_tokens=random.choice([0, 0, 2, 5]),
        frequency_penalty=random.choice([0.0, 0.1, 0.7]),
        presence_penalty=random.choice([0.0, 0.3]),
        repetition_penalty=random.choice([1.0, 1.1, 0.8]),
        stop_token_ids=frozenset(random.sample(range(VOCAB), random.randint(0, 3))),
    )
    return Req(0, [0], params, Tokenizer(eos_token_id=VOCAB - 1))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(["cumulate", "cumulate", "filter", "merge"]), max_size=40))
def test_every_way_equals_dense_to_the_bit(seed, steps):
    random = Random(seed)
    batch = Batch(random, 3)
    for step in steps:
        if step == "merge":
            other = Batch(random, random.randint(1, 2))
            for _ in range(random.randint(0, 2)):
                other.cumulate(random)
            batch.merge(other)
        else:
            getattr(batch, step)(random)
        for repeat in (1, 3):
            dense, *others = batch.logits(repeat)
            assert all(torch.equal(dense, other) for other in others)


def test_a_snapshot_is_not_reached_by_later_tokens():
    batch = Batch(Random(1), 4)
    for _ in range(3):
        batch.cumulate(Random(2))
    info = SamplingBatchInfo(torch.zeros(4, 1), True, VOCAB, batch.ways["sparse"], apply="sparse").copy_for_forward()
    before, after = torch.zeros(4, VOCAB), torch.zeros(4, VOCAB)
    info.apply_logits_bias(before)
    batch.cumulate(Random(3))
    info.apply_logits_bias(after)
    assert torch.equal(before, after)


FEW = SparseWhen(at_least_rows=1, at_most=9)


def joining(monkeypatch: pytest.MonkeyPatch, when: SparseWhen, *counted: int) -> BatchedPenalizerOrchestrator:
    """A batch that chooses by `when`, in which so many tokens are counted after each request joins."""
    monkeypatch.setattr("penaltylab.penalties.orchestrator.sparse_when", lambda *_: when)
    params = SamplingParams(999, frequency_penalty=0.1, presence_penalty=0.3, repetition_penalty=1.1, min_new_tokens=9)
    batches = [
        SimpleNamespace(reqs=[Req(rid, [0], params, Tokenizer(0))], device=torch.device("cpu"))
        for rid in range(len(counted))
    ]
    of, *others = (BatchedPenalizerOrchestrator(VOCAB, batch, apply="auto") for batch in batches)
    for index, number in enumerate(counted):
        if index:
            of.merge(others[index - 1])
            batches[0].reqs = batches[0].reqs + batches[index].reqs
        for step in range(number):
            of.cumulate_output_tokens(torch.tensor([(7 * step + row) % 5 for row in range(index + 1)]))
    return of


def assert_sparse_equals_dense(of: BatchedPenalizerOrchestrator) -> None:
    found = of.sparse_penalties()
    assert found is not None
    sparse = torch.randn((len(of.reqs()), VOCAB), generator=torch.Generator().manual_seed(0))
    dense = sparse.clone()
    found.apply(sparse, repeat=1)
    of.apply(dense)
    assert torch.equal(sparse, dense)


def test_auto_takes_the_dense_passes_once_the_history_is_long(monkeypatch):
    short, long = (joining(monkeypatch, FEW, seen) for seen in (8, 9))  # one stop token beside them
    assert_sparse_equals_dense(short)
    assert long.sparse_penalties() is None


def test_auto_is_sparse_again_when_the_longest_request_has_left(monkeypatch):
    of = joining(monkeypatch, FEW, 6, 2, 1)
    assert of.sparse_penalties() is None
    of.batch.reqs = of.batch.reqs[1:2]
    of.filter(torch.tensor([1]))
    for token in (3, 0, 3):
        of.cumulate_output_tokens(torch.tensor([token]))
        assert_sparse_equals_dense(of)


def test_auto_takes_the_dense_passes_for_few_rows_and_not_when_others_have_joined(monkeypatch):
    alone, two = (joining(monkeypatch, SparseWhen(2, VOCAB), *counted) for counted in [(3,), (3, 2)])
    assert alone.sparse_penalties() is None
    assert_sparse_equals_dense(two)


def test_where_sparse_is_cheaper_is_known_by_kind_of_device_and_vocabulary():
    small, large = sparse_when(1_000, "cpu"), sparse_when(100_000, "cpu")
    assert small.at_least_rows > large.at_least_rows >= 1
    assert small.at_most < large.at_most < 100_000
    assert sparse_when(1_000, "cuda") == sparse_when(1_000, "emu") != small

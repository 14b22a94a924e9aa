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
from penaltylab.penalties.sparse import SPARSE_COST

VOCAB = 40


class Batch:
    """Requests with one orchestrator that applies densely and one that applies sparsely, kept in step."""

    def __init__(self, random: Random, size: int) -> None:
        self.owner = SimpleNamespace(reqs=[_request(random) for _ in range(size)], device=torch.device("cpu"))
        self.dense, self.sparse = (
            BatchedPenalizerOrchestrator(VOCAB, self.owner, apply=apply) for apply in ("dense", "sparse")
        )

    def both(self) -> tuple[BatchedPenalizerOrchestrator, BatchedPenalizerOrchestrator]:
        return self.dense, self.sparse

    def cumulate(self, random: Random) -> None:
        tokens = torch.tensor([random.randrange(VOCAB) for _ in self.owner.reqs])
        for of in self.both():
            of.cumulate_output_tokens(tokens)

    def filter(self, random: Random) -> None:
        keep = sorted(random.sample(range(len(self.owner.reqs)), random.randint(1, len(self.owner.reqs))))
        self.owner.reqs = [self.owner.reqs[i] for i in keep]
        for of in self.both():
            of.filter(torch.tensor(keep))

    def merge(self, other: "Batch") -> None:
        for mine, theirs in zip(self.both(), other.both(), strict=True):
            mine.merge(theirs)
        self.owner.reqs = self.owner.reqs + other.owner.reqs

    def logits(self, repeat: int) -> list[torch.Tensor]:
        """Random logits, penalised by each."""
        size = len(self.owner.reqs)
        results = []
        for of, apply in zip(self.both(), ("dense", "sparse"), strict=True):
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
def test_sparse_equals_dense_to_the_bit(seed, steps):
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
            dense, sparse = batch.logits(repeat)
            assert torch.equal(dense, sparse)


def test_a_snapshot_is_not_reached_by_later_tokens():
    batch = Batch(Random(1), 4)
    for _ in range(3):
        batch.cumulate(Random(2))
    info = SamplingBatchInfo(torch.zeros(4, 1), True, VOCAB, batch.sparse, apply="sparse").copy_for_forward()
    before, after = torch.zeros(4, VOCAB), torch.zeros(4, VOCAB)
    info.apply_logits_bias(before)
    batch.cumulate(Random(3))
    info.apply_logits_bias(after)
    assert torch.equal(before, after)


@pytest.mark.parametrize(("seen", "sparse"), [(VOCAB // SPARSE_COST - 1, True), (VOCAB // SPARSE_COST, False)])
def test_auto_takes_the_dense_passes_once_the_history_is_long(seen, sparse):
    owner = SimpleNamespace(
        reqs=[Req(0, [0], SamplingParams(9, frequency_penalty=1.0), Tokenizer(0))], device=torch.device("cpu")
    )
    auto = BatchedPenalizerOrchestrator(VOCAB, owner, apply="auto")
    for token in range(seen):
        auto.cumulate_output_tokens(torch.tensor([token]))
    assert (auto.sparse_penalties() is not None) is sparse

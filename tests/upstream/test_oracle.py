"""The oracle: sglang's own penaltylib, beside ours, through the same random lives of a batch, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penaltylab import devices
from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.params import revisions
from penaltylab.penalties import BatchedPenalizerOrchestrator
from penaltylab.upstream import Upstream
from penaltylab.upstream.release import revision_of

pytestmark = [pytest.mark.network, pytest.mark.slow]
VOCAB = 24
OPERATIONS = ("prepare", "cumulate", "cumulate", "cumulate", "apply", "filter", "release")


class Batch:
    """As much of a batch as the penalizers see."""

    def __init__(self, reqs: list[Req], device: torch.device) -> None:
        self.reqs = reqs
        self.device = device


@dataclass
class Side:
    """One implementation's running batch."""

    make: Callable[[Batch], Any]
    batch: Batch | None = None
    orchestrator: Any = None

    def prepare(self, reqs: list[Req], device: torch.device) -> None:
        """A prefill's batch, merged into the running one: the penalizers first, from the requests as they were."""
        batch = Batch(reqs, device)
        orchestrator = self.make(batch)
        if self.batch is None:
            self.batch, self.orchestrator = batch, orchestrator
        else:
            self.orchestrator.merge(orchestrator)
            self.batch.reqs = self.batch.reqs + reqs

    def filter(self, keep: list[int]) -> None:
        """The requests first, then the penalizers; a batch of none is gone."""
        assert self.batch is not None
        self.batch.reqs = [self.batch.reqs[index] for index in keep]
        self.orchestrator.filter(torch.tensor(keep, dtype=torch.int64).to(self.batch.device))
        if not keep:
            self.batch = None

    def release(self) -> None:
        self.orchestrator.release()
        self.batch = None


def random_req(random: Random) -> Req:
    """Values that are not dyadic, so that equal bits mean equal operations."""
    params = SamplingParams(
        max_new_tokens=99,
        min_new_tokens=random.choice([0, 0, 1, 3]),
        frequency_penalty=random.choice([0.0, 0.0, 0.1, -0.3]),
        presence_penalty=random.choice([0.0, 0.0, 0.7, -1.1]),
        repetition_penalty=random.choice([1.0, 1.0, 1.3, 0.9]),
        stop_token_ids=frozenset(random.sample(range(VOCAB), random.choice([0, 2]))),
    )
    return Req(random.randrange(1000), [1], params, Tokenizer(VOCAB - 1, frozenset(random.sample(range(VOCAB), 1))))


def same_bits(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    ours, theirs = ours.cpu(), theirs.cpu()
    return (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype) and bool(
        torch.equal(ours.contiguous().view(torch.int32), theirs.contiguous().view(torch.int32))
    )


def assert_same_state(ours: Side, theirs: Side) -> None:
    assert ours.orchestrator.is_required == theirs.orchestrator.is_required
    by_name = {type(p).__name__: p for p in theirs.orchestrator.penalizers.values()}
    for mine in ours.orchestrator.penalizers.values():
        his = by_name.get(type(mine).__name__)  # a released orchestrator of sglang's has none
        assert mine.is_prepared == (his is not None and his.is_prepared())
        if mine.is_prepared:
            for name in mine.state_names:
                assert same_bits(getattr(mine, name), getattr(his, name)), name


def assert_same_logits(ours: Side, theirs: Side, random: Random) -> None:
    """In both ways that a launch applies penalties: materialised beforehand, and at once for all verify positions.

    sglang's third way, `apply` without `repeat`, is left out: it applies its penalizers one after the other in the
    order of a set, so that repetition comes before or after frequency as the process happens to have it.
    """
    assert ours.batch is not None
    batch, repeat = len(ours.batch.reqs), random.choice([1, 2, 4])
    logits = torch.tensor([[random.gauss(0, 4) for _ in range(VOCAB)] for _ in range(batch * repeat)])
    results, additives, scalings = [], [], []
    for side in (ours, theirs):
        additives.append(torch.zeros((batch, VOCAB), device=ours.batch.device))
        side.orchestrator.accumulate_additive_penalties(additives[-1])
        scalings.append(side.orchestrator.accumulate_scaling_penalties())
        results.append(logits.to(ours.batch.device, copy=True))
        side.orchestrator.apply(results[-1], repeat=repeat)
    assert same_bits(*additives)
    assert scalings == [None, None] or same_bits(*scalings)
    assert same_bits(*results)


def live(release: Upstream, device: torch.device, life: list[tuple[str, int]]) -> None:
    """Carry out the operations `life`, each with the seed of its own random choices, on both sides."""
    mask = revisions()[revision_of(release.version)]["normal"]["min_tokens_mask"]
    ours = Side(lambda batch: BatchedPenalizerOrchestrator(VOCAB, batch, mask))  # type: ignore[arg-type]
    theirs = Side(release.make_orchestrator(VOCAB))  # type: ignore[arg-type]
    for operation, seed in life:
        random = Random(seed)
        if operation == "prepare":
            reqs = [random_req(random) for _ in range(random.randint(1, 3))]
            for side in (ours, theirs):
                side.prepare(list(reqs), device)
        if ours.batch is None:
            continue
        size = len(ours.batch.reqs)
        if operation == "cumulate":
            tokens = torch.tensor([random.randrange(VOCAB) for _ in range(size)]).to(device)
            for side in (ours, theirs):
                side.orchestrator.cumulate_output_tokens(tokens)
        elif operation == "apply":
            assert_same_logits(ours, theirs, random)
        elif operation == "filter":
            keep = sorted(random.sample(range(size), random.randint(0, size)))
            for side in (ours, theirs):
                side.filter(keep)
        elif operation == "release":
            for side in (ours, theirs):
                side.release()
        assert_same_state(ours, theirs)


LIVES = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 2**32)), min_size=1, max_size=40)


@pytest.mark.parametrize("version", ["0.5.13", "0.5.14"])
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(life=LIVES)
def test_state_and_logits_are_those_of_sglang(
    released: Callable[[str], Upstream], version: str, life: list[tuple[str, int]]
) -> None:
    live(released(version), torch.device("cpu"), [("prepare", 0), *life])


@pytest.mark.parametrize("version", ["0.5.13", "0.5.14"])
def test_state_and_logits_are_those_of_sglang_on_the_emulated_device(
    released: Callable[[str], Upstream], version: str
) -> None:
    random = Random(0)
    life = [(random.choice(OPERATIONS[:-1]), random.randrange(2**32)) for _ in range(200)]
    live(released(version), devices.resolve("emu"), [("prepare", 0), *life])

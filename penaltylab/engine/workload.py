"""The requests of a run, drawn from a scenario file and a seed."""

from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from penaltylab.engine.request import Req, SamplingParams, Tokenizer
from penaltylab.errors import InputError
from penaltylab.params import Params, read_scenario

Span = tuple[int, int]
Turns = tuple[float, ...]
UNBOUNDED = 2**31


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[group]]` of a scenario.

    `per_slot` requests for each slot of the batch; spans are inclusive, lists taken in turn.
    """

    per_slot: int = 1
    first_arrival: int = 0
    arrival_every: int = 0
    prompt_len: Span = (8, 8)
    max_new_tokens: Span = (UNBOUNDED, UNBOUNDED)
    min_new_tokens: Span = (0, 0)
    frequency_penalty: Turns = (0.0,)
    presence_penalty: Turns = (0.0,)
    repetition_penalty: Turns = (1.0,)
    eos_every: int = 0  # one token id in so many ends a request; 0: none does


def make_requests(params: Params) -> list[Req]:
    """The requests of `params.scenario`, ordered by arrival. The first batch_size of a group arrive together."""
    random = Random(params.seed)
    reqs: list[Req] = []
    for table in read_scenario(params.scenario).get("group", []):
        group = _group(params.scenario, table)
        for index in range(group.per_slot * params.batch_size):
            late = max(0, index - params.batch_size + 1)
            reqs.append(
                _request(len(reqs), group, index, group.first_arrival + late * group.arrival_every, params, random)
            )
    return sorted(reqs, key=lambda req: req.arrival)


def _group(scenario: str, table: dict[str, Any]) -> Group:
    try:
        return msgspec.convert(table, Group)
    except msgspec.ValidationError as error:
        raise InputError(f"data/scenarios/{scenario}.toml: {error}") from None


def _request(rid: int, group: Group, index: int, arrival: int, params: Params, random: Random) -> Req:
    def turn(values: Turns) -> float:
        return values[index % len(values)]

    vocab = params.vocab_size
    stop_ids = frozenset(range(group.eos_every - 1, vocab, group.eos_every)) if group.eos_every else frozenset()
    sampling_params = SamplingParams(
        max_new_tokens=random.randint(*group.max_new_tokens),
        min_new_tokens=random.randint(*group.min_new_tokens),
        frequency_penalty=turn(group.frequency_penalty),
        presence_penalty=turn(group.presence_penalty),
        repetition_penalty=turn(group.repetition_penalty),
        temperature=params.temperature,
        stop_token_ids=stop_ids,
        ignore_eos=not stop_ids,
    )
    prompt = [random.randrange(vocab) for _ in range(random.randint(*group.prompt_len))]
    return Req(rid, prompt, sampling_params, Tokenizer(eos_token_id=vocab - 1), arrival)

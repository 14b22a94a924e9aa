"""Plain, slow, obviously right decoders: Python dictionaries, one request at a time, no tensors of state."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch

from penaltylab.engine.models import ForwardBatch, MarkovDraft, MarkovModel
from penaltylab.engine.noise import request_key
from penaltylab.engine.request import Req
from penaltylab.params import Params


@dataclass
class Penalties:
    """What has been counted for one request, and what that does to a row of logits."""

    req: Req
    counts: Counter[int] = field(default_factory=Counter)
    calls: int = 0

    def count(self, token: int) -> None:
        self.counts[token] += 1
        self.calls += 1

    def apply(self, row: np.ndarray) -> np.ndarray:
        params, row = self.req.sampling_params, row.copy()
        for token, times in self.counts.items():
            row[token] -= params.frequency_penalty * times + params.presence_penalty
        if self.calls < params.min_new_tokens:
            row[sorted(self.req.stop_ids())] = -np.inf
        for token in self.counts:
            scale = params.repetition_penalty
            row[token] = row[token] * scale if row[token] < 0 else row[token] / scale
        return row


class Oracle:
    """The target and draft models on the CPU, asked for one row at a time."""

    def __init__(self, params: Params) -> None:
        self.params = params
        self.model = MarkovModel(params.vocab_size, params.seed, torch.device("cpu"))
        self.draft = MarkovDraft(self.model, params.accept_rate)

    def token(self, after: int, penalties: Penalties) -> int:
        return int(penalties.apply(self.model.after(torch.tensor(after)).double().numpy()).argmax())

    def proposals(self, after: int, req: Req, position: int) -> list[int]:
        key = torch.tensor([request_key(self.params.seed, req.rid)])
        last = ForwardBatch(torch.tensor([[after]]), torch.tensor([[position - 1]]), torch.tensor([0]), key, 0)
        return self.draft.propose(last, self.params.draft_tokens)[0].tolist()


def decode_exactly(params: Params, req: Req, at_most: int) -> list[int]:
    """The tokens of `req` decoded alone, each counted once before the next is chosen."""
    oracle, penalties = Oracle(params), Penalties(req)
    tokens: list[int] = []
    last = req.origin_input_ids[-1]
    while len(tokens) < at_most:
        last = oracle.token(last, penalties)
        tokens.append(last)
        penalties.count(last)
        if req.is_stop(last) or len(tokens) == req.sampling_params.max_new_tokens:
            break
    return tokens


@dataclass
class Running:
    """A request in the model of upstream's loop: what the device has generated, the host knows, and is counted."""

    req: Req
    penalties: Penalties
    generated: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    finished: bool = False

    def learn(self, tokens: list[int]) -> None:
        for token in tokens:
            if self.finished:
                return
            self.known.append(token)
            stop = self.req.is_stop(token)
            self.finished = stop or len(self.known) == self.req.sampling_params.max_new_tokens


def decode_like_upstream(params: Params, reqs: list[Req]) -> dict[int, list[int]]:
    """What sglang's loop generates: it counts what the host knows at each launch, its last token and no other."""
    oracle = Oracle(params)
    waiting = sorted(reqs, key=lambda req: req.arrival)
    everyone: dict[int, Running] = {}
    running: list[Running] = []
    fresh: list[Running] = []
    results: list[list[tuple[Running, list[int]]]] = []
    occupied = launches = steps = 0
    while steps < params.steps:
        running, fresh = running + fresh, []
        due = bool(waiting) and waiting[0].arrival <= launches and occupied < params.batch_size
        if not due:
            occupied -= sum(one.finished for one in running)
            running = [one for one in running if not one.finished]
            if not running and not waiting:
                break
        if due or not running:
            now = max(launches, waiting[0].arrival)
            while waiting and waiting[0].arrival <= now and occupied < params.batch_size:
                req = waiting.pop(0)
                occupied += 1
                fresh.append(Running(req, Penalties(req)))
                everyone[req.rid] = fresh[-1]
            results.append([(one, _extend(oracle, one)) for one in fresh])
        else:
            for one in running:
                one.penalties.count((one.known or one.req.origin_input_ids)[-1])
            results.append([(one, _launch(oracle, params, one)) for one in running])
            steps += 1
        launches += 1
        if len(results) > int(params.overlap):
            _process(results.pop(0))
    for result in results:
        _process(result)
    return {rid: one.known for rid, one in everyone.items()} | {req.rid: [] for req in waiting}


def _process(result: list[tuple[Running, list[int]]]) -> None:
    for one, tokens in result:
        one.learn(tokens)


def _extend(oracle: Oracle, one: Running) -> list[int]:
    one.generated.append(oracle.token(one.req.origin_input_ids[-1], one.penalties))
    return one.generated[-1:]


def _launch(oracle: Oracle, params: Params, one: Running) -> list[int]:
    last = one.generated[-1]
    if params.path == "normal":
        one.generated.append(oracle.token(last, one.penalties))
        return one.generated[-1:]
    position = len(one.req.origin_input_ids) + len(one.generated)
    accepted: list[int] = []
    for draft in [*oracle.proposals(last, one.req, position), None]:
        accepted.append(oracle.token(last, one.penalties))
        last = accepted[-1]
        if last != draft:
            break
    one.generated += accepted
    return accepted

"""A decoder that is slow, and right at a glance: one request at a time, each token counted in a dictionary."""

from collections import Counter

import numpy as np
import torch

from penaltylab.engine.models import MarkovModel
from penaltylab.engine.request import Req
from penaltylab.errors import InputError
from penaltylab.params import Params


class PlainDecoder:
    """Greedy decoding of the Markov model of `params` on the host. Raises InputError for another model."""

    def __init__(self, params: Params) -> None:
        if params.model != "markov" or params.temperature:
            raise InputError(f"model={params.model!r}, temperature={params.temperature:g}: only greedy markov is plain")
        self.model = MarkovModel(params.vocab_size, params.seed, torch.device("cpu"))

    def decode(self, req: Req, at_most: int) -> list[int]:
        """The first `at_most` tokens of `req`, as far as it does not end before."""
        tokens: list[int] = []
        while len(tokens) < min(at_most, req.sampling_params.max_new_tokens):
            last = tokens[-1] if tokens else req.origin_input_ids[-1]
            tokens.append(int(self.penalised(last, req, tokens).argmax()))
            if req.is_stop(tokens[-1]):
                break
        return tokens

    def penalised(self, last: int, req: Req, counted: list[int]) -> np.ndarray:
        """Logits (vocab,), float64, after `last`, with the penalties of `req` for the tokens `counted`."""
        params = req.sampling_params
        logits = self.model.after(torch.tensor(last)).double().numpy()
        counts = Counter(counted)
        for token, times in counts.items():
            logits[token] -= params.frequency_penalty * times + params.presence_penalty
        if len(counted) < params.min_new_tokens:
            logits[list(req.stop_ids())] = -np.inf
        for token in counts:
            scale = params.repetition_penalty
            logits[token] *= scale if logits[token] < 0 else 1 / scale
        return logits

    def logprob(self, token: int, last: int, req: Req, counted: list[int]) -> float:
        """The log probability of `token` after `last`, penalised for the tokens `counted`."""
        logits = self.penalised(last, req, counted)
        highest = logits.max()
        return float(logits[token] - highest - np.log(np.exp(logits - highest).sum()))

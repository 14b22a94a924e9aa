"""Req: finishes are decided token by token, a stop token before the length."""

from penaltylab.engine.request import Req, SamplingParams, Tokenizer


def request(max_new_tokens: int = 3, stop: frozenset[int] = frozenset()) -> Req:
    return Req(0, [1, 2], SamplingParams(max_new_tokens, stop_token_ids=stop), Tokenizer(eos_token_id=9))


def test_tokens_after_the_length_are_dropped():
    req = request()
    req.append([4, 5, 6, 7])
    assert (req.output_ids, req.finished_reason) == ([4, 5, 6], "length")


def test_a_stop_token_is_kept_and_ends_the_request():
    req = request(stop=frozenset({5}))
    req.append([4, 5, 6])
    assert (req.output_ids, req.finished_reason) == ([4, 5], "stop")


def test_a_stop_token_at_the_length_is_a_stop():
    req = request(max_new_tokens=2)
    req.append([4, 9])
    assert req.finished_reason == "stop"


def test_nothing_is_added_to_a_finished_request():
    req = request(max_new_tokens=1)
    req.append([4])
    req.append([5])
    assert req.output_ids == [4]

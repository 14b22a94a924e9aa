"""Noise: uniform, and a function of key, position and purpose alone."""

import torch

from penaltylab.engine.noise import request_key, uniform


def test_a_request_draws_the_same_numbers_in_any_batch():
    keys = torch.tensor([request_key(0, rid) for rid in range(4)])
    positions = torch.tensor([7, 8, 9, 10])
    together = uniform(keys, positions)
    alone = [uniform(keys[i : i + 1], positions[i : i + 1]).item() for i in range(4)]
    assert together.tolist() == alone


def test_numbers_are_uniform_and_uncorrelated_along_positions_and_keys():
    noise = uniform(torch.arange(1, 201).unsqueeze(1) * 7919, torch.arange(500).unsqueeze(0))
    assert noise.min() >= 0
    assert noise.max() < 1
    histogram = torch.histc(noise, bins=20, min=0, max=1) / noise.numel()
    assert (histogram - 0.05).abs().max() < 0.003
    for a, b in ((noise[:, 1:], noise[:, :-1]), (noise[1:], noise[:-1])):
        assert abs(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]) < 0.015


def test_purposes_draw_different_numbers():
    key, position = torch.tensor([5]), torch.tensor([3])
    assert uniform(key, position, 1) != uniform(key, position, 2)

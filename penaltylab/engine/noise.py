"""Random numbers that depend on what they are for, and on nothing else.

Keyed by seed, request and position: a request draws the same numbers whatever batch it is in, whenever it is launched.
"""

import torch

# Odd 64-bit multipliers with well-spread bits; int64 arithmetic wraps alike on every device.
_KEY, _POSITION, _MIX = -7046029254386353131, -4417276706812531889, -7723592293110705685


def request_key(seed: int, rid: int) -> int:
    """The key of request `rid`: a non-negative 31-bit number."""
    return (seed * 1_000_003 + rid * 7_919 + 1) & 0x7FFF_FFFF


def uniform(keys: torch.Tensor, positions: torch.Tensor, salt: int = 0) -> torch.Tensor:
    """Uniform float64 in [0, 1) for each pair of int64 `keys` and `positions`, broadcast together.

    `salt`, a small number, tells purposes apart.
    """
    bits = keys * _KEY + positions * _POSITION + (salt << 40)
    for shift in (29, 32):
        bits = (bits ^ ((bits >> shift) & ((1 << (64 - shift)) - 1))) * _MIX
    return ((bits >> 11) & ((1 << 53) - 1)).to(torch.float64) / (1 << 53)

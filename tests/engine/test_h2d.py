"""The ring of pinned buffers: right when it wraps, when the batch grows, and when a copy is still in flight."""

import numpy as np
import pytest
import torch

from penaltylab import devices
from penaltylab.engine.h2d import PinnedRing


@pytest.fixture
def emu() -> torch.device:
    device = devices.resolve("emu")
    devices.configure(device, "h100", "modelled")
    return device


VALUES = np.arange(100, 200)


def test_it_gathers_by_slot(emu):
    assert PinnedRing(emu, capacity=8).gather(VALUES, np.array([5, 0, 7])).tolist() == [105, 100, 107]


def test_a_buffer_in_flight_is_waited_for_when_the_ring_wraps(emu):
    ring = PinnedRing(emu, capacity=2, depth=2)
    devices.busy(emu, 3.0)
    copies = [ring.gather(VALUES, np.array([n, n + 1])) for n in range(2)]
    assert devices.blocked_us(emu) == 0
    copies += [ring.gather(VALUES, np.array([n, n + 1])) for n in range(2, 6)]
    assert devices.blocked_us(emu) > 2_000
    assert [copy.tolist() for copy in copies] == [[100 + n, 101 + n] for n in range(6)]
    assert devices.hazards(emu) == []


def test_a_growing_batch_gets_wider_buffers_while_copies_are_in_flight(emu):
    ring = PinnedRing(emu, capacity=1)
    devices.busy(emu, 3.0)
    copies = [ring.gather(VALUES, np.arange(n)) for n in range(1, 9)]
    assert [copy.tolist() for copy in copies] == [list(range(100, 100 + n)) for n in range(1, 9)]
    assert devices.hazards(emu) == []

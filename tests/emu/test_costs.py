"""Durations of kernels on a machine with 1e6 bytes a us, 1e6 operations a us (16-bit: 1e7) and a floor of 2 us."""

import itertools
import types
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from penaltylab import emu

Logged = Callable[[Callable[[], object]], emu.Log]


def duration(log: emu.Log) -> float:
    (op,) = log.device_ops
    return op.dur_us


def test_a_small_kernel_takes_the_floor(logged: Logged) -> None:
    x = torch.zeros(4, device="emu")
    assert duration(logged(lambda: x + x)) == 2


def test_an_elementwise_kernel_takes_its_bytes(logged: Logged) -> None:
    x = torch.zeros(1_000_000, device="emu")
    assert duration(logged(lambda: x + x)) == 4 + 4 + 4
    assert duration(logged(x.zero_)) == 4
    assert duration(logged(lambda: x[::2] * 2)) == 2 + 2


@pytest.mark.parametrize(
    ("compute", "operations"),
    [
        (lambda x: x @ x, 2 * 300**3),
        (lambda x: x[None] @ x[None], 2 * 300**3),
        (lambda x: F.linear(x, x, x[0]), 2 * 300**3),
        (lambda x: F.conv1d(x[None, :, :], x[:, :, None]), 2 * 300**3),
        (lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), 4 * 300**3),
    ],
)
def test_a_product_takes_its_operations(
    logged: Logged, compute: Callable[[torch.Tensor], object], operations: int
) -> None:
    x = torch.zeros(300, 300, device="emu")
    assert logged(lambda: compute(x)).device_ops[-1].dur_us == pytest.approx(operations / 1e6)


def test_sixteen_bits_have_their_own_peak(logged: Logged) -> None:
    x = torch.zeros(300, 300, dtype=torch.bfloat16, device="emu")
    assert duration(logged(lambda: x @ x)) == pytest.approx(2 * 300**3 / 1e7)


def test_a_gather_moves_what_it_gathers_and_not_the_table(logged: Logged) -> None:
    table, index = torch.zeros(1_000_000, 4, device="emu"), torch.zeros(100, dtype=torch.int64, device="emu")
    for gather in (lambda: table[index], lambda: table.index_select(0, index), lambda: F.embedding(index, table)):
        assert duration(logged(gather)) == 2
    assert duration(logged(lambda: table.index_add_(0, index, torch.empty(100, 4, device="emu")))) == 2


def test_an_empty_result_launches_nothing(logged: Logged) -> None:
    x = torch.zeros(0, device="emu")
    log = logged(lambda: x + x)
    assert (log.calls, log.device_ops) == ([], [])


def test_a_launch_costs_the_host_its_dispatch_and_its_call(module: types.ModuleType, logged: Logged) -> None:
    x = torch.zeros(4, device="emu")
    module.synchronize()
    start = emu.now_us()
    log = logged(lambda: x + x)
    (call,) = log.calls
    assert (call.name, call.start_us, call.dur_us) == ("cudaLaunchKernel", start + 5, 5)
    assert log.device_ops[0].start_us == call.start_us + 6
    assert log.device_ops[0].name == "at::native::add.Tensor"
    assert log.device_ops[0].correlation == call.correlation


def test_slices_of_one_stream_never_overlap(module: types.ModuleType, logged: Logged) -> None:
    x = torch.zeros(300, 300, device="emu")

    def body() -> None:
        for _ in range(5):
            y = x @ x
            y[y > 0].sum().item()
            torch.tensor([1], device="emu")

    log = logged(body)
    ops = sorted(log.device_ops, key=lambda op: op.start_us)
    assert all(a.start_us + a.dur_us <= b.start_us for a, b in itertools.pairwise(ops))
    calls = log.calls
    assert all(a.start_us + a.dur_us <= b.start_us + 1e-9 for a, b in itertools.pairwise(calls))

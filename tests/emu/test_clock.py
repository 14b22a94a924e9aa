import time
import types

import pytest
import torch

from penaltylab import emu
from penaltylab.errors import InputError


def test_modelled_time_counts_calls_only(module: types.ModuleType) -> None:
    x = torch.zeros(4, device="emu")
    before = emu.now_us()
    time.sleep(0.002)
    x + x
    assert emu.now_us() - before == 10  # dispatch 5, launch 5


def test_measured_time_counts_what_runs_outside_the_emulator(module: types.ModuleType) -> None:
    emu.configure("h100", "measured")
    before = emu.now_us()
    time.sleep(0.002)
    assert 2_000 <= emu.now_us() - before < 200_000


def test_measured_time_jumps_where_the_host_blocks(module: types.ModuleType) -> None:
    emu.configure("h100", "measured")
    start = time.perf_counter()
    emu.busy(60_000)
    module.synchronize()
    assert emu.now_us() > 60e6 > emu.blocked_us() * 0.999
    assert time.perf_counter() - start < 30


def test_a_view_and_an_allocation_cost_the_host_and_not_the_device(module: types.ModuleType) -> None:
    x = torch.empty(4, device="emu")
    assert emu.now_us() == 2
    x.view(2, 2)
    assert emu.now_us() == 3
    assert module.current_stream().query()


def test_configure_starts_afresh(module: types.ModuleType) -> None:
    emu.busy(1)
    module.synchronize()
    assert emu.now_us() > 0
    assert emu.syncs()
    emu.configure("h100")
    assert (emu.now_us(), emu.blocked_us(), emu.syncs(), emu.hazards()) == (0, 0, [], [])
    assert emu.machine().name == "h100"


def test_modelled_runs_are_identical(module: types.ModuleType) -> None:
    def once() -> tuple[list[emu.RuntimeCall], list[emu.DeviceOp]]:
        emu.configure("h100")
        emu.start_log()
        side = module.Stream()
        with module.stream(side):
            y = torch.arange(100, device="emu").float() @ torch.ones(100, device="emu")
        torch.tensor([1, 2], device="emu")
        y.item()
        log = emu.stop_log()
        return log.calls, log.device_ops

    assert once() == once()


def test_host_time_is_checked(module: types.ModuleType) -> None:
    with pytest.raises(InputError, match="host_time 'real': not one of modelled, measured"):
        emu.configure("h100", "real")


def test_breaks_pair_real_with_virtual_time_in_order(module: types.ModuleType) -> None:
    emu.start_log()
    x = torch.ones(1, device="emu")
    x.item()
    log = emu.stop_log()
    assert log.breaks == sorted(log.breaks)
    assert sorted(at for _, at in log.breaks) == [at for _, at in log.breaks]
    assert log.breaks[-1][1] == emu.now_us()

import copy
import pickle
import types
from collections.abc import Callable

import pytest
import torch

from penaltylab import emu

FACTORIES: dict[str, Callable[[], torch.Tensor]] = {
    "tensor": lambda: torch.tensor([1, 2], pin_memory=True),
    "empty": lambda: torch.empty(2, pin_memory=True),
    "zeros": lambda: torch.zeros(2, pin_memory=True),
    "full": lambda: torch.full((2,), 3, pin_memory=True),
    "arange": lambda: torch.arange(2, pin_memory=True),
    "rand": lambda: torch.rand(2, pin_memory=True),
    "randint": lambda: torch.randint(0, 9, (2,), pin_memory=True),
    "empty_strided": lambda: torch.empty_strided((2, 2), (1, 2), pin_memory=True),
    "empty_like": lambda: torch.empty_like(torch.ones(2), pin_memory=True),
    "ones_like": lambda: torch.ones_like(torch.ones(2), pin_memory=True),
    "new_empty": lambda: torch.ones(2).new_empty(3, pin_memory=True),
    "new_zeros": lambda: torch.ones(2).new_zeros(3, pin_memory=True),
    "new_full": lambda: torch.ones(2).new_full((3,), 1.0, pin_memory=True),
    "new_tensor": lambda: torch.ones(2).new_tensor([1.0], pin_memory=True),
    "pin_memory": lambda: torch.ones(2).pin_memory(),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_every_factory_pins(module: types.ModuleType, name: str) -> None:
    host = FACTORIES[name]()
    assert host.is_pinned()
    assert host[:1].is_pinned()
    assert host.device.type == "cpu"
    assert emu.pinned_stats().misses == 1


def test_other_tensors_are_pageable(module: types.ModuleType) -> None:
    host = torch.ones(2)
    assert not host.is_pinned()
    assert not torch.zeros(2, pin_memory=False).is_pinned()
    pinned = host.pin_memory()
    assert pinned.pin_memory() is pinned
    assert not pinned.clone().is_pinned()
    assert not copy.deepcopy(pinned).is_pinned()
    assert not pickle.loads(pickle.dumps(pinned)).is_pinned()


def test_a_pinned_leaf_keeps_requires_grad(module: types.ModuleType) -> None:
    assert torch.tensor([1.0], pin_memory=True, requires_grad=True).requires_grad
    assert torch.tensor([1.0], pin_memory=True, requires_grad=True, device="emu").is_leaf


def test_device_tensors_cannot_be_pinned(module: types.ModuleType) -> None:
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.empty(2, device="emu", pin_memory=True)
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.empty(2, device="emu").pin_memory()
    assert not torch.empty(2, device="emu").is_pinned()


def test_a_freed_block_serves_the_next_of_its_size_class(module: types.ModuleType) -> None:
    first = torch.empty(100, dtype=torch.uint8, pin_memory=True)
    assert emu.now_us() == 100
    del first
    second = torch.empty(65, dtype=torch.uint8, pin_memory=True)  # 65 and 100 both round up to 128
    assert emu.now_us() == 100
    torch.empty(64, dtype=torch.uint8, pin_memory=True)
    assert emu.now_us() == 200
    assert emu.pinned_stats() == emu.PinnedStats(hits=1, misses=2, allocated_bytes=128 + 64)
    del second


def test_a_block_under_a_copy_is_free_when_the_event_of_its_free_has_passed(module: types.ModuleType) -> None:
    emu.start_log()
    emu.busy(1)
    torch.empty(8, dtype=torch.uint8, pin_memory=True).to("emu", non_blocking=True)
    torch.empty(8, dtype=torch.uint8, pin_memory=True)  # the copy has not run: another block
    assert emu.pinned_stats().misses == 2
    names = [call.name for call in emu.stop_log().calls]
    assert names == [
        "cudaLaunchKernel",
        "cudaHostAlloc",
        "cudaMemcpyAsync",
        "cudaEventRecord",
        "cudaEventQuery",
        "cudaHostAlloc",
    ]
    module.synchronize()
    kept = [torch.empty(8, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    assert emu.pinned_stats() == emu.PinnedStats(hits=2, misses=2, allocated_bytes=16)
    assert len(kept) == 2


def test_a_block_outlives_a_reset_of_its_pool(module: types.ModuleType) -> None:
    old = torch.empty(8, pin_memory=True)
    emu.configure("h100")
    del old
    torch.empty(8, pin_memory=True)
    assert emu.pinned_stats().misses == 1

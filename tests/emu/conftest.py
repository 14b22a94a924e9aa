"""A fresh emulated device for each test, on a machine whose numbers are easy to add."""

import types
from collections.abc import Callable

import msgspec
import pytest
import torch

from penaltylab import emu

ROUND = {
    "dispatch_us": 5.0,
    "view_us": 1.0,
    "alloc_us": 2.0,
    "launch_us": 5.0,
    "memcpy_call_us": 4.0,
    "sync_idle_us": 1.0,
    "sync_return_us": 8.0,
    "event_record_us": 2.0,
    "event_wait_us": 1.0,
    "event_query_us": 1.0,
    "host_alloc_us": 100.0,
    "host_copy_bytes_per_us": 1000.0,
    "launch_to_start_us": 6.0,
    "kernel_gap_us": 1.0,
    "kernel_min_us": 2.0,
    "copy_min_us": 1.0,
    "h2d_bytes_per_us": 1000.0,
    "h2d_pageable_bytes_per_us": 500.0,
    "d2h_bytes_per_us": 1000.0,
    "d2h_pageable_bytes_per_us": 500.0,
    "memory_bytes_per_us": 1e6,
    "flops_per_us": 1e6,
    "flops_half_per_us": 1e7,
    "pageable_async_max_bytes": 8000,
}


@pytest.fixture
def round_machine() -> emu.Machine:
    return msgspec.structs.replace(emu.load_machine("h100"), name="round", **ROUND)


@pytest.fixture
def module(round_machine: emu.Machine) -> types.ModuleType:
    """`torch.emu`, its clock at 0."""
    emu.register()
    emu.configure(round_machine)
    return torch.get_device_module("emu")


@pytest.fixture
def logged(module: types.ModuleType) -> Callable[[Callable[[], object]], emu.Log]:
    """Runs a body and returns what it did to the device."""

    def run(body: Callable[[], object]) -> emu.Log:
        emu.start_log()
        body()
        return emu.stop_log()

    return run

"""Exact cases of who waits for what. A forward of 1 ms is running on the stream, or on none, when the copy is made."""

import types

import pytest
import torch

from penaltylab import emu

FORWARD_END = 5 + 6 + 1000


@pytest.fixture
def busy(module: types.ModuleType) -> types.ModuleType:
    torch.empty(0, pin_memory=True)
    emu.configure(emu.machine())
    emu.busy(1, "forward")
    return module


def last_sync() -> emu.Sync:
    return emu.syncs()[-1]


def test_torch_tensor_on_the_device_waits_for_the_current_stream(busy: types.ModuleType) -> None:
    emu.start_log()
    ids = torch.tensor([1, 2, 3], dtype=torch.int64, device="emu")
    log = emu.stop_log()
    copy_end = FORWARD_END + 1 + 1 + 24 / 500
    assert emu.now_us() == pytest.approx(copy_end + 8)
    memcpy, synchronize = log.calls
    assert (memcpy.name, synchronize.name) == ("cudaMemcpyAsync", "cudaStreamSynchronize")
    assert (pytest.approx(memcpy.dur_us), memcpy.blocked_us) == (4, 0)
    assert synchronize.start_us == memcpy.start_us + 4
    assert synchronize.blocked_us == pytest.approx(emu.blocked_us())
    assert memcpy.correlation == log.device_ops[0].correlation
    assert memcpy.site.startswith("test_transfers.py(")
    assert memcpy.site.endswith(": test_torch_tensor_on_the_device_waits_for_the_current_stream")
    assert log.device_ops[0].name == "Memcpy HtoD (Pageable -> Device)"
    assert (log.device_ops[0].kind, log.device_ops[0].bytes, log.device_ops[0].stream) == ("gpu_memcpy", 24, 7)
    assert (last_sync().kind, last_sync().waited_on) == ("copy-h2d", ["forward"])
    assert ids.tolist() == [1, 2, 3]


def test_on_an_idle_stream_it_waits_for_the_copy_alone(module: types.ModuleType) -> None:
    torch.tensor([1, 2, 3], device="emu")
    assert emu.now_us() == pytest.approx(2 + 24 / 1000 + 6 + 1 + 24 / 500 + 8)
    assert last_sync().waited_on == []


def test_work_on_other_streams_is_not_waited_for(busy: types.ModuleType) -> None:
    with busy.Stream():
        torch.tensor([1, 2, 3], device="emu")
    assert emu.now_us() < 100


def test_pinned_and_non_blocking_returns_at_once(busy: types.ModuleType) -> None:
    emu.start_log()
    host = torch.tensor([1, 2, 3], dtype=torch.int64, pin_memory=True)
    before = emu.now_us()
    ids = host.to("emu", non_blocking=True)
    assert emu.now_us() == before + 2 + 4
    assert emu.blocked_us() == 0
    assert emu.syncs() == []
    (copy,) = emu.stop_log().device_ops
    assert copy.name == "Memcpy HtoD (Pinned -> Device)"
    assert (copy.start_us, copy.dur_us) == (pytest.approx(FORWARD_END + 1), 1 + 24 / 1000)
    assert ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize("how", ["tensor", "to", "copy_"])
def test_pinned_but_blocking_waits_as_pageable_does(busy: types.ModuleType, how: str) -> None:
    if how == "tensor":
        torch.tensor([1, 2, 3], pin_memory=True, device="emu")
    elif how == "to":
        torch.tensor([1, 2, 3], pin_memory=True).to("emu")
    else:
        torch.empty(3, dtype=torch.int64, device="emu").copy_(torch.tensor([1, 2, 3], pin_memory=True))
    assert emu.now_us() == pytest.approx(FORWARD_END + 1 + 1 + 24 / 1000 + 8)
    assert last_sync().kind == "copy-h2d"


def test_pageable_and_non_blocking_returns_at_once_while_it_can_be_staged(busy: types.ModuleType) -> None:
    before = emu.now_us()
    torch.zeros(1000, dtype=torch.int64).to("emu", non_blocking=True)
    assert emu.now_us() == before + 2 + 8000 / 1000 + 4
    assert emu.syncs() == []


def test_pageable_and_larger_waits_until_all_but_the_last_chunk_has_gone(busy: types.ModuleType) -> None:
    torch.zeros(2000, dtype=torch.int64).to("emu", non_blocking=True)
    duration = 1 + 16_000 / 500
    assert emu.now_us() == pytest.approx(FORWARD_END + 1 + duration * (1 - 8000 / 16_000))
    assert (last_sync().kind, last_sync().waited_on) == ("pageable-h2d", ["forward"])


def test_a_strided_view_of_pinned_memory_waits(busy: types.ModuleType) -> None:
    emu.start_log()
    torch.zeros(4, 4, pin_memory=True)[:, :2].to("emu", non_blocking=True)
    log = emu.stop_log()
    assert emu.now_us() > FORWARD_END
    assert last_sync().kind == "pageable-h2d"
    assert log.device_ops[0].name == "Memcpy HtoD (Pageable -> Device)"
    row = torch.zeros(4, 4, pin_memory=True)[1]
    blocked = emu.blocked_us()
    row.to("emu", non_blocking=True)
    assert emu.blocked_us() == blocked


def test_a_transposed_pinned_tensor_is_dense_and_does_not_wait(busy: types.ModuleType) -> None:
    torch.zeros(4, 3, pin_memory=True).t().to("emu", non_blocking=True)
    assert emu.syncs() == []


def test_to_host_blocking_waits_inside_the_memcpy_when_pageable(busy: types.ModuleType) -> None:
    x = torch.zeros(2, dtype=torch.int64, device="emu")
    emu.start_log()
    x.cpu()
    log = emu.stop_log()
    memcpy, synchronize = log.calls
    assert memcpy.blocked_us == pytest.approx(emu.blocked_us())
    assert (synchronize.blocked_us, synchronize.dur_us) == (0, 1)
    assert log.device_ops[0].name == "Memcpy DtoH (Device -> Pageable)"
    assert last_sync().kind == "copy-d2h"


def test_to_host_non_blocking_is_pinned_and_does_not_wait(busy: types.ModuleType) -> None:
    x = torch.zeros(2, dtype=torch.int64, device="emu")
    emu.start_log()
    host = x.to("cpu", non_blocking=True)
    assert host.is_pinned()
    target = torch.empty(2, dtype=torch.int64, pin_memory=True)
    target.copy_(x, non_blocking=True)
    assert {op.name for op in emu.stop_log().device_ops} == {"Memcpy DtoH (Device -> Pinned)"}
    assert emu.syncs() == []


def test_to_pageable_host_memory_waits_even_if_non_blocking(busy: types.ModuleType) -> None:
    x = torch.zeros(2, dtype=torch.int64, device="emu")
    torch.empty(2, dtype=torch.int64).copy_(x, non_blocking=True)
    assert emu.now_us() > FORWARD_END
    assert last_sync().kind == "copy-d2h"


def test_to_a_strided_pinned_target_waits(busy: types.ModuleType) -> None:
    x = torch.zeros(4, 2, dtype=torch.int64, device="emu")
    torch.empty(4, 4, dtype=torch.int64, pin_memory=True)[:, :2].copy_(x, non_blocking=True)
    assert last_sync().kind == "copy-d2h"


def test_a_dtype_changes_on_the_device_if_non_blocking_else_on_the_host(module: types.ModuleType) -> None:
    host = torch.zeros(100, dtype=torch.int64, pin_memory=True)
    target = torch.empty(100, dtype=torch.int32, device="emu")
    emu.start_log()
    target.copy_(host, non_blocking=True)
    copy, kernel = emu.stop_log().device_ops
    assert (copy.name, copy.bytes, kernel.kind) == ("Memcpy HtoD (Pinned -> Device)", 800, "kernel")
    emu.start_log()
    target.copy_(host)
    (copy,) = emu.stop_log().device_ops
    assert (copy.name, copy.bytes) == ("Memcpy HtoD (Pageable -> Device)", 400)


def test_copies_of_one_direction_share_an_engine_and_those_of_two_do_not(module: types.ModuleType) -> None:
    large = torch.zeros(100_000, dtype=torch.uint8, pin_memory=True)
    on_device = torch.zeros(100_000, dtype=torch.uint8, device="emu")
    module.synchronize()
    emu.start_log()
    for _ in range(2):
        with module.Stream():
            large.to("emu", non_blocking=True)
    with module.Stream():
        on_device.to("cpu", non_blocking=True)
    first, second, back = emu.stop_log().device_ops
    assert second.start_us == first.start_us + first.dur_us
    assert back.start_us < second.start_us + second.dur_us


def test_a_copy_that_waits_for_its_stream_leaves_the_engine_to_others(busy: types.ModuleType) -> None:
    host = torch.zeros(8, pin_memory=True)
    emu.start_log()
    host.to("emu", non_blocking=True)
    with busy.Stream():
        host.to("emu", non_blocking=True)
    held, free = emu.stop_log().device_ops
    assert held.start_us > FORWARD_END > free.start_us + free.dur_us


def test_a_copy_within_the_device_is_a_memcpy_if_dense_and_a_kernel_if_not(module: types.ModuleType) -> None:
    source, target = torch.zeros(4, 4, device="emu"), torch.ones(4, 4, device="emu")
    emu.start_log()
    target.copy_(source)
    target.copy_(source.t())
    memcpy, kernel = emu.stop_log().device_ops
    assert (memcpy.kind, memcpy.name, kernel.kind) == ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", "kernel")


def test_a_copy_of_nothing_makes_no_call(module: types.ModuleType) -> None:
    emu.start_log()
    torch.zeros(0).to("emu")
    assert emu.stop_log().calls == []


def test_values_survive_every_route(module: types.ModuleType) -> None:
    for host in (
        torch.arange(12.0).view(3, 4),
        torch.arange(12.0).view(3, 4).t(),
        torch.arange(24.0).view(3, 8)[:, ::2],
    ):
        for source in (host, host.pin_memory(), host.to(torch.bfloat16), host.to(torch.complex64).conj()):
            for non_blocking in (False, True):
                back = source.to("emu", non_blocking=non_blocking).to("cpu", non_blocking=non_blocking)
                assert torch.equal(back, source)
                assert back.stride() == source.to("cpu", copy=True).stride()
    expanded = torch.ones(3, 1).expand(3, 4).to("emu")
    assert torch.equal(expanded.cpu(), torch.ones(3, 4))

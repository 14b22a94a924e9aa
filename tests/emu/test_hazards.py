import types
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from penaltylab import emu


def kinds() -> list[str]:
    return [hazard.kind for hazard in emu.hazards()]


def line_of(site: str) -> str:
    """The function in `file.py(12): function`."""
    return site.partition(": ")[2]


@dataclass
class TwoStreams:
    """A buffer, and two functions that use it on two streams."""

    module: types.ModuleType

    def __post_init__(self) -> None:
        self.x = torch.zeros(8, device="emu")
        self.side = self.module.Stream()
        self.side.wait_stream(self.module.current_stream())

    def write_here(self) -> None:
        self.x.add_(1)

    def read_here(self) -> None:
        self.x + 1

    def write_there(self) -> None:
        with self.module.stream(self.side):
            self.x.add_(1)

    def read_there(self) -> None:
        with self.module.stream(self.side):
            self.x + 1


@pytest.fixture
def two(module: types.ModuleType) -> TwoStreams:
    return TwoStreams(module)


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("write_here", "read_there", "read-after-write"),
        ("read_there", "write_here", "write-after-read"),
        ("write_there", "write_here", "write-after-write"),
    ],
)
def test_two_accesses_that_nothing_orders_are_a_hazard(two: TwoStreams, first: str, second: str, kind: str) -> None:
    getattr(two, first)()
    getattr(two, second)()
    (hazard,) = emu.hazards()
    assert hazard.kind == kind
    assert (line_of(hazard.first_site), line_of(hazard.second_site)) == (first, second)
    assert (hazard.bytes, len(hazard.streams)) == (32, 2)
    assert hazard.first_site in hazard.message
    assert hazard.second_site in hazard.message


def test_reads_do_not_race_with_reads(two: TwoStreams) -> None:
    two.read_here()
    two.read_there()
    assert emu.hazards() == []


def test_each_missing_edge_is_reported_each_time(two: TwoStreams) -> None:
    for _ in range(3):
        two.read_there()
        two.write_here()
        two.side.wait_stream(two.module.current_stream())
    assert kinds() == ["write-after-read"] * 3


ORDERINGS: dict[str, Callable[[TwoStreams], object]] = {
    "wait_stream": lambda two: two.module.current_stream().wait_stream(two.side),
    "event": lambda two: two.module.current_stream().wait_event(two.side.record_event()),
    "stream synchronize": lambda two: two.side.synchronize(),
    "event synchronize": lambda two: two.side.record_event().synchronize(),
    "device synchronize": lambda two: two.module.synchronize(),
}


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_every_ordering_removes_it(two: TwoStreams, ordering: str) -> None:
    two.read_there()
    ORDERINGS[ordering](two)
    two.write_here()
    assert emu.hazards() == []


def test_a_query_that_says_done_orders_and_one_that_says_not_does_not(two: TwoStreams) -> None:
    with two.side:
        emu.busy(1)
    two.read_there()
    assert not two.side.query()
    two.write_here()
    assert kinds() == ["write-after-read"]
    two.module.synchronize()
    two.read_there()
    while not two.side.query():
        pass
    two.write_here()
    assert kinds() == ["write-after-read"]


def test_order_is_transitive_through_a_third_stream(two: TwoStreams) -> None:
    third = two.module.Stream()
    two.read_there()
    third.wait_stream(two.side)
    two.module.current_stream().wait_stream(third)
    two.write_here()
    assert emu.hazards() == []


def test_an_event_recorded_too_early_orders_nothing(two: TwoStreams) -> None:
    event = two.side.record_event()
    two.read_there()
    two.module.current_stream().wait_event(event)
    two.write_here()
    assert kinds() == ["write-after-read"]


def test_an_overlap_in_time_is_no_hazard_and_no_overlap_is_no_excuse(two: TwoStreams) -> None:
    two.read_there()
    for _ in range(100):
        torch.zeros(4, device="emu")  # long after the read is done, and still nothing says so
    two.write_here()
    assert kinds() == ["write-after-read"]


def test_disjoint_slices_of_one_buffer_do_not_race(two: TwoStreams) -> None:
    grid = torch.zeros(4, 4, device="emu")
    two.side.wait_stream(two.module.current_stream())
    grid[:2].add_(1)
    with two.side:
        grid[2:].add_(1)
        grid[:2, :0].add_(1)
    assert emu.hazards() == []
    with two.side:
        grid[1:3].add_(1)
    assert kinds() == ["write-after-write"]


def test_interleaved_columns_do_not_race_and_crossing_ones_do(two: TwoStreams) -> None:
    grid = torch.zeros(4, 4, device="emu")
    two.side.wait_stream(two.module.current_stream())
    grid[:, :2].add_(1)
    with two.side:
        grid[:, 2:].add_(1)
    assert emu.hazards() == []
    with two.side:
        grid[0].add_(1)
    assert kinds() == ["write-after-write"]


def test_a_view_is_its_base(two: TwoStreams) -> None:
    view = two.x.view(2, 4).t()[1]
    two.side.wait_stream(two.module.current_stream())
    view.mul_(2)
    two.read_there()
    assert kinds() == ["read-after-write"]


def test_memory_that_is_freed_takes_its_accesses_with_it(two: TwoStreams) -> None:
    for _ in range(50):
        with two.side:
            torch.zeros(1000, device="emu")
        torch.zeros(1000, device="emu")
    assert emu.hazards() == []


def test_an_allocation_alone_is_no_write(two: TwoStreams) -> None:
    empty = torch.empty(8, device="emu")
    with two.side:
        empty.fill_(1)
    assert emu.hazards() == []


def test_indices_and_out_arguments_are_accesses_too(two: TwoStreams) -> None:
    index = torch.arange(2, device="emu")
    out = torch.empty(8, device="emu")
    two.side.wait_stream(two.module.current_stream())
    with two.side:
        two.x.index_select(0, index)
        torch.add(two.x, 1, out=out)
    index.zero_()
    out.zero_()
    assert kinds() == ["write-after-read", "write-after-write"]


# Host memory under copies in flight


def enqueue(host: torch.Tensor) -> torch.Tensor:
    return host.to("emu", non_blocking=True)


def test_a_write_to_pinned_memory_under_a_copy_says_what_the_device_would_have_read(module: types.ModuleType) -> None:
    host = torch.tensor([1, 2, 3], pin_memory=True)
    ids = enqueue(host)
    host[1] = 9
    (hazard,) = emu.hazards()
    assert hazard.kind == "host-write"
    assert line_of(hazard.first_site) == "enqueue"
    assert line_of(hazard.second_site).startswith("test_a_write_to_pinned_memory")
    assert "the device would have read [1, 9, 3], not [1, 2, 3]" in hazard.message
    assert ids.tolist() == [1, 2, 3]


WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "copy_": lambda host: host.copy_(torch.tensor([7, 8, 9])),
    "fill_": lambda host: host.fill_(5),
    "add_": lambda host: host.add_(1),
    "iadd": lambda host: host.__iadd__(1),
    "slice": lambda host: host[1:].zero_(),
    "same values": lambda host: host.copy_(torch.tensor([1, 2, 3])),
    "inference": lambda host: torch.inference_mode()(host.zero_)(),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_by_torch_is_caught_once_at_its_line(module: types.ModuleType, write: str) -> None:
    host = torch.tensor([1, 2, 3], pin_memory=True)
    enqueue(host)
    WRITES[write](host)
    module.current_stream().query()
    module.synchronize()
    (hazard,) = emu.hazards()
    assert line_of(hazard.second_site) in ("<lambda>", "test_every_write_by_torch_is_caught_once_at_its_line")


def test_a_write_by_numpy_is_found_at_the_next_call(module: types.ModuleType) -> None:
    host = torch.tensor([1, 2, 3], pin_memory=True)
    enqueue(host)
    np.take(np.array([4, 5, 6]), [0, 1, 2], out=host.numpy())
    torch.zeros(1, device="emu")
    (hazard,) = emu.hazards()
    assert hazard.second_site.startswith("between test_hazards.py(")
    assert hazard.second_site.endswith("test_a_write_by_numpy_is_found_at_the_next_call")
    assert "the device would have read [4, 5, 6], not [1, 2, 3]" in hazard.message


@pytest.mark.parametrize("wait", ["stream", "event", "device"])
def test_after_a_wait_the_buffer_is_free(module: types.ModuleType, wait: str) -> None:
    host = torch.tensor([1, 2, 3], pin_memory=True)
    enqueue(host)
    event = module.current_stream().record_event()
    {"stream": module.current_stream().synchronize, "event": event.synchronize, "device": module.synchronize}[wait]()
    host.fill_(5)
    host.numpy()[0] = 6
    module.synchronize()
    assert emu.hazards() == []


def test_a_buffer_that_is_copied_again_and_again_is_watched_once(module: types.ModuleType) -> None:
    host = torch.tensor([1, 2, 3], pin_memory=True)
    for _ in range(10):
        enqueue(host)
    assert len(emu.runtime().device.host_writes.pending) == 1
    host.fill_(5)
    assert kinds() == ["host-write"]


def test_pageable_memory_is_staged_and_may_be_overwritten(module: types.ModuleType) -> None:
    host = torch.tensor([1, 2, 3])
    ids = enqueue(host)
    host.fill_(5)
    assert ids.tolist() == [1, 2, 3]
    assert emu.hazards() == []


def test_other_parts_of_the_pinned_buffer_may_be_written(module: types.ModuleType) -> None:
    ring = torch.zeros(4, 3, pin_memory=True)
    enqueue(ring[0])
    ring[1] = 5
    ring[1:].numpy()[:] = 3
    module.synchronize()
    assert emu.hazards() == []


def test_a_temporary_dies_with_its_copy_in_flight_and_nobody_minds(module: types.ModuleType) -> None:
    for step in range(5):
        enqueue(torch.tensor([step], pin_memory=True))
        torch.tensor([step], pin_memory=True).fill_(9)
    assert emu.hazards() == []


def test_reading_what_a_copy_has_not_brought_yet(module: types.ModuleType) -> None:
    emu.busy(1)
    host = torch.zeros(3, device="emu").to("cpu", non_blocking=True)
    host.tolist()
    (hazard,) = emu.hazards()
    assert hazard.kind == "read-after-write"
    assert "would have got what was there before" in hazard.message
    module.synchronize()
    host.tolist()
    assert len(emu.hazards()) == 1


def test_two_streams_that_share_a_pinned_buffer(module: types.ModuleType) -> None:
    host, x = torch.zeros(3, pin_memory=True), torch.ones(3, device="emu")
    side = module.Stream()
    side.wait_stream(module.current_stream())
    with side:
        host.copy_(x, non_blocking=True)
    enqueue(host)
    assert kinds() == ["read-after-write"]


# An event that is recorded again before it is waited for


def record(event: torch.Event, stream: torch.Stream) -> None:
    event.record(stream)


def record_again(event: torch.Event, stream: torch.Stream) -> None:
    event.record(stream)


def test_an_event_recorded_again_elsewhere_before_its_wait_explains_the_race(two: TwoStreams) -> None:
    event, third = two.module.Event(), two.module.Stream()
    two.read_there()
    record(event, two.side)
    record_again(event, third)
    two.module.current_stream().wait_event(event)
    two.write_here()
    race, cause = emu.hazards()
    assert (race.kind, line_of(race.first_site), line_of(race.second_site)) == (
        "write-after-read",
        "read_there",
        "write_here",
    )
    assert (cause.kind, line_of(cause.first_site), line_of(cause.second_site)) == (
        "event-recorded-again",
        "record",
        "record_again",
    )


@pytest.mark.parametrize("wait", ["synchronize", "query"])
def test_so_it_does_where_the_host_waits(module: types.ModuleType, wait: str) -> None:
    event, other, host = module.Event(), module.Stream(), torch.tensor([1, 2, 3], pin_memory=True)
    enqueue(host)
    record(event, module.current_stream())
    record_again(event, other)
    getattr(event, wait)()
    host.fill_(5)
    assert kinds() == ["host-write", "event-recorded-again"]
    assert line_of(emu.hazards()[1].first_site) == "record"


def test_recorded_again_later_on_its_own_stream_it_covers_the_first_point(two: TwoStreams) -> None:
    event = two.module.Event()
    two.read_there()
    record(event, two.side)
    record_again(event, two.side)
    two.module.current_stream().wait_event(event)
    two.write_here()
    assert emu.hazards() == []


def test_recorded_again_on_a_stream_that_has_waited_it_covers_the_first_point(two: TwoStreams) -> None:
    event, third = two.module.Event(), two.module.Stream()
    two.read_there()
    record(event, two.side)
    third.wait_event(event)
    record_again(event, third)
    two.module.current_stream().wait_event(event)
    two.write_here()
    assert emu.hazards() == []


def test_recorded_again_when_nobody_needs_the_first_point_is_no_hazard(two: TwoStreams) -> None:
    event, third = two.module.Event(), two.module.Stream()
    for stream in (two.side, third, two.side, third):
        record_again(event, stream)
        two.module.current_stream().wait_event(event)
    two.write_here()
    assert emu.hazards() == []


def test_a_race_that_the_first_record_would_not_have_ordered_is_not_blamed_on_it(two: TwoStreams) -> None:
    event, third = two.module.Event(), two.module.Stream()
    record(event, two.side)
    two.read_there()
    record_again(event, third)
    two.module.current_stream().wait_event(event)
    two.write_here()
    assert kinds() == ["write-after-read"]

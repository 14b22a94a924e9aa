"""Device memory that is freed while another stream uses it. The line of the use and the line of the `del` are named."""

import types
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penaltylab import emu


class Lent:
    """A tensor of the default stream that a side stream uses."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self.side = module.Stream()
        self.x = torch.ones(8, device="emu")
        self.side.wait_stream(module.current_stream())

    def use(self) -> None:
        with self.side:
            emu.busy(1)
            self.result = self.x + 1

    def free(self) -> None:
        del self.x

    def allocate(self, size: int = 8) -> torch.Tensor:
        return torch.zeros(size, device="emu")


@pytest.fixture
def lent(module: types.ModuleType) -> Lent:
    return Lent(module)


def functions(hazard: emu.Hazard) -> tuple[str, str]:
    """Those of the two lines."""
    return hazard.first_site.partition(": ")[2], hazard.second_site.partition(": ")[2]


def test_memory_freed_in_use_may_be_given_out_again(lent: Lent) -> None:
    lent.use()
    lent.free()
    assert emu.hazards() == []
    lent.allocate()
    (hazard,) = emu.hazards()
    assert hazard.kind == "freed-in-use"
    assert functions(hazard) == ("use", "free")
    assert hazard.streams == (lent.side.stream_id, 7)
    assert hazard.bytes == 32
    for part in (hazard.first_site, hazard.second_site, "allocate", "record_stream"):
        assert part in hazard.message


def test_it_is_told_once(lent: Lent) -> None:
    lent.use()
    lent.free()
    kept = [lent.allocate() for _ in range(3)]
    assert len(emu.hazards()) == 1
    assert len(kept) == 3


ORDERINGS: dict[str, Callable[[Lent], object]] = {
    "record_stream": lambda lent: lent.x.record_stream(lent.side),
    "record_stream of a view": lambda lent: lent.x[2:4].record_stream(lent.side),
    "wait_stream": lambda lent: lent.module.current_stream().wait_stream(lent.side),
    "event": lambda lent: lent.module.current_stream().wait_event(lent.side.record_event()),
    "stream synchronize": lambda lent: lent.side.synchronize(),
    "device synchronize": lambda lent: lent.module.synchronize(),
}


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_what_orders_the_use_before_the_next_owner(lent: Lent, ordering: str) -> None:
    lent.use()
    ORDERINGS[ordering](lent)
    lent.free()
    lent.allocate()
    assert emu.hazards() == []


@pytest.mark.parametrize("ordering", [name for name in ORDERINGS if not name.startswith("record_stream")])
def test_waiting_after_the_free_and_before_the_next_owner_will_do(lent: Lent, ordering: str) -> None:
    lent.use()
    lent.free()
    ORDERINGS[ordering](lent)
    lent.allocate()
    assert emu.hazards() == []


def test_record_stream_of_another_stream_does_not_help(lent: Lent) -> None:
    lent.use()
    lent.x.record_stream(lent.module.Stream())
    lent.free()
    lent.allocate()
    assert [hazard.kind for hazard in emu.hazards()] == ["freed-in-use"]


def test_an_allocation_on_another_stream_is_given_other_memory(lent: Lent) -> None:
    lent.use()
    lent.free()
    with lent.side:
        lent.allocate()
    with lent.module.Stream():
        lent.allocate()
    assert emu.hazards() == []


def test_large_memory_is_of_another_pool_than_small(lent: Lent) -> None:
    lent.use()
    lent.free()
    lent.allocate(1 << 20)
    assert emu.hazards() == []
    lent.allocate(1 << 10)
    assert len(emu.hazards()) == 1


def test_an_empty_allocation_is_judged_when_it_is_written(lent: Lent) -> None:
    lent.use()
    lent.free()
    one, other = torch.empty(8, device="emu"), torch.empty(8, device="emu")
    assert emu.hazards() == []
    one.fill_(1)
    assert functions(emu.hazards()[0]) == ("use", "free")
    lent.module.current_stream().wait_stream(lent.side)
    other.fill_(1)
    assert len(emu.hazards()) == 1


def test_a_view_keeps_the_memory(lent: Lent) -> None:
    view = lent.x[1:]
    lent.use()
    lent.free()
    lent.allocate()
    assert emu.hazards() == []
    del view
    lent.allocate()
    assert functions(emu.hazards()[0])[0] == "use"


def test_a_result_of_the_side_stream_that_the_default_stream_reads(module: types.ModuleType) -> None:
    side = module.Stream()

    def round_trip() -> None:
        with side:
            result = torch.ones(8, device="emu")
        module.current_stream().wait_stream(side)
        result + 1

    round_trip()
    with side:
        torch.ones(8, device="emu")
    assert [hazard.kind for hazard in emu.hazards()] == ["freed-in-use"]
    side.wait_stream(module.current_stream())
    round_trip()
    side.wait_stream(module.current_stream())
    with side:
        torch.ones(8, device="emu")
    assert len(emu.hazards()) == 1


def test_a_copy_to_the_host_that_outlives_its_source(module: types.ModuleType) -> None:
    copy_stream = module.Stream()
    tokens = torch.ones(8, device="emu")
    copy_stream.wait_stream(module.current_stream())
    with copy_stream:
        host = tokens.to("cpu", non_blocking=True)
    del tokens
    torch.ones(8, device="emu")
    (hazard,) = emu.hazards()
    assert hazard.kind == "freed-in-use"
    assert "Memcpy DtoH" in hazard.message
    assert host.tolist() == [1] * 8


def test_autograd_records_the_streams_of_gradients(module: types.ModuleType) -> None:
    side = module.Stream()
    weight = torch.ones(8, device="emu", requires_grad=True)
    side.wait_stream(module.current_stream())
    for _ in range(3):
        with side:
            hidden = weight * 2
        module.current_stream().wait_stream(side)
        hidden.record_stream(module.current_stream())
        (hidden * 3).sum().backward()
        del hidden
        side.wait_stream(module.current_stream())
    assert emu.hazards() == []
    assert weight.grad is not None
    assert weight.grad.tolist() == [18] * 8


def test_a_new_device_has_forgotten(lent: Lent, round_machine: emu.Machine) -> None:
    lent.use()
    emu.configure(round_machine)
    lent.free()
    lent.allocate()
    assert emu.hazards() == []


# Random programs of temporaries: made on one stream, used on another, protected in one of three ways, freed; memory is
# then allocated where it came from.

PROTECTIONS = ("temporary.record_stream({user})", "{owner}.wait_stream({user})", "{user}.synchronize()")
EPISODES = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(0, 2)), min_size=1, max_size=6)


def lines_of(episodes: list[tuple[int, int, int]], unprotected: int | None = None) -> Iterator[str]:
    for number, (own, further, protection) in enumerate(episodes):
        owner, user = f"streams[{own}]", f"streams[{(own + further) % 3}]"
        yield f"with {owner}: temporary = torch.ones(8, device='emu')"
        yield f"{user}.wait_stream({owner})"
        yield f"with {user}: temporary + 1"
        yield "pass" if number == unprotected else PROTECTIONS[protection].format(owner=owner, user=user)
        yield "del temporary"
        yield f"with {owner}: torch.ones(8, device='emu')"


def run(lines: Iterator[str]) -> list[emu.Hazard]:
    emu.register()
    emu.configure("h100")
    module = torch.get_device_module("emu")
    exec(
        compile("\n".join(lines), "program.py", "exec"),
        {"torch": torch, "streams": [module.Stream() for _ in range(3)]},
    )
    return emu.hazards()


@settings(max_examples=200, deadline=None)
@given(EPISODES, st.integers(0, 5))
def test_a_protected_temporary_is_safe_and_one_that_is_not_is_caught(
    episodes: list[tuple[int, int, int]], chosen: int
) -> None:
    assert run(lines_of(episodes)) == []
    unprotected = chosen % len(episodes)
    found = run(lines_of(episodes, unprotected))
    first = 6 * unprotected
    assert [(hazard.kind, hazard.first_site, hazard.second_site) for hazard in found] == [
        ("freed-in-use", f"program.py({first + 3}): <module>", f"program.py({first + 5}): <module>")
    ]

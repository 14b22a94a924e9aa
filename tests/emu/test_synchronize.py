import inspect
import re
import threading
import types
from collections.abc import Callable

import pytest
import torch

from penaltylab import emu
from penaltylab.emu.synchronize import EXPLICIT_KINDS, HIDDEN_KINDS
from penaltylab.errors import InputError

Body = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]

HIDDEN: dict[str, tuple[str, Body]] = {
    "item": ("item", lambda x, mask, index: x[0].item()),
    "bool": ("item", lambda x, mask, index: bool(x.sum() > 0)),
    "int index": ("item", lambda x, mask, index: x[index[0]]),
    "tolist": ("copy-d2h", lambda x, mask, index: x.tolist()),
    "cpu": ("copy-d2h", lambda x, mask, index: x.cpu()),
    "tensor": ("copy-h2d", lambda x, mask, index: torch.tensor([1, 2], device="emu")),
    "pinned, blocking": ("copy-h2d", lambda x, mask, index: torch.tensor([1, 2], pin_memory=True).to("emu")),
    "an element set to a number": ("copy-h2d", lambda x, mask, index: x.__setitem__(1, False)),
    "elements by index set to a number": ("copy-h2d", lambda x, mask, index: x.__setitem__(index, 0)),
    "boolean index": ("boolean-index", lambda x, mask, index: x[mask]),
    "boolean index set to a tensor": (
        "boolean-index",
        lambda x, mask, index: x.__setitem__(mask, torch.zeros(4, device="emu")),
    ),
    "index on the host": ("cpu-index", lambda x, mask, index: x[torch.tensor([0, 1])]),
    "nonzero": ("nonzero", lambda x, mask, index: x.nonzero()),
    "where of one argument": ("nonzero", lambda x, mask, index: torch.where(mask)),
    "masked_select": ("data-dependent-shape", lambda x, mask, index: x.masked_select(mask)),
    "unique": ("data-dependent-shape", lambda x, mask, index: x.unique()),
    "repeat_interleave": ("data-dependent-shape", lambda x, mask, index: index.repeat_interleave(index)),
    "bincount": ("data-dependent-shape", lambda x, mask, index: index.bincount()),
    "equal": ("checked-values", lambda x, mask, index: torch.equal(x, x)),
    "multinomial": ("checked-values", lambda x, mask, index: torch.multinomial(x, 1)),
    "histc": ("checked-values", lambda x, mask, index: x.histc(4)),
    "masked_fill with a device scalar": ("item", lambda x, mask, index: x.masked_fill_(mask, x.sum())),
    "a large pageable copy": (
        "pageable-h2d",
        lambda x, mask, index: torch.zeros(100_000).to("emu", non_blocking=True),
    ),
    "a strided pinned copy": (
        "pageable-h2d",
        lambda x, mask, index: torch.zeros(4, 4, pin_memory=True)[:, 0].to("emu", non_blocking=True),
    ),
}

FREE: dict[str, Body] = {
    "arithmetic": lambda x, mask, index: (x + 1).softmax(-1).argmax(),
    "a slice set to a number": lambda x, mask, index: x.__setitem__(slice(1), 0),
    "a mask set to a number": lambda x, mask, index: x.__setitem__(mask, 0),
    "an index set to a tensor": lambda x, mask, index: x.__setitem__(index, torch.zeros(2, device="emu")),
    "masked_fill": lambda x, mask, index: x.masked_fill(mask, 0),
    "where": lambda x, mask, index: torch.where(mask, x, 0),
    "repeat_interleave of known size": lambda x, mask, index: index.repeat_interleave(index, output_size=1),
    "factories": lambda x, mask, index: (torch.zeros(3, device="emu"), torch.full((2,), 3.0, device="emu")),
    "pinned, non-blocking": lambda x, mask, index: torch.zeros(3, pin_memory=True).to("emu", non_blocking=True),
    "to the host, non-blocking": lambda x, mask, index: x.to("cpu", non_blocking=True),
    "sort and topk": lambda x, mask, index: (x.sort(), x.topk(2), x.cumsum(0)),
    "multinomial with replacement": lambda x, mask, index: torch.multinomial(x, 2, replacement=True),
    "histc of a given range": lambda x, mask, index: x.histc(4, 0, 1),
    "a host scalar": lambda x, mask, index: x * torch.tensor(2.0),
}


@pytest.fixture
def operands(module: types.ModuleType) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x, mask = torch.ones(4, device="emu"), torch.ones(4, dtype=torch.bool, device="emu")
    index = torch.arange(2, device="emu")
    module.synchronize()
    return x, mask, index


@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_synchronization_is_named_at_its_line(
    operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor], name: str
) -> None:
    kind, body = HIDDEN[name]
    emu.busy(1, "forward")
    with emu.record_syncs() as seen:
        body(*operands)
    assert [sync.kind for sync in seen] == [kind]
    assert seen[0].site.startswith("test_synchronize.py(")
    assert seen[0].site.endswith(": <lambda>")
    assert seen[0].waited_on[0] == "forward"
    assert 800 < seen[0].blocked_us < 2000
    assert seen[0].hidden
    assert emu.blocked_us() >= seen[0].blocked_us


@pytest.mark.parametrize("name", HIDDEN)
def test_forbid_sync_raises_in_its_place(operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor], name: str) -> None:
    emu.busy(1, "forward")
    blocked = emu.blocked_us()
    with emu.forbid_sync(), pytest.raises(emu.HiddenSyncError) as raised:
        HIDDEN[name][1](*operands)
    assert raised.value.sync.kind == HIDDEN[name][0]
    for part in (HIDDEN[name][0], "<lambda>", "stream 7", "us (SIMULATED)", "waiting for forward"):
        assert part in str(raised.value)
    assert emu.blocked_us() == blocked


@pytest.mark.parametrize("name", FREE)
def test_nothing_else_synchronizes(operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor], name: str) -> None:
    with emu.forbid_sync():
        FREE[name](*operands)


def test_a_synchronization_that_the_program_asks_for_is_not_hidden(module: types.ModuleType) -> None:
    event = module.Event()
    event.record()
    with emu.forbid_sync() as seen:
        module.current_stream().synchronize()
        event.synchronize()
        module.synchronize()
    assert tuple(sync.kind for sync in seen) == EXPLICIT_KINDS
    assert not any(sync.hidden for sync in seen)


def test_kinds_can_be_allowed_and_guards_nest(module: types.ModuleType) -> None:
    x = torch.ones(1, device="emu")
    with emu.forbid_sync(allow={"item"}), emu.record_syncs() as outer:
        with emu.record_syncs() as inner:
            x.item()
        x.item()
        with pytest.raises(emu.HiddenSyncError):
            x.cpu()
        with emu.forbid_sync(), pytest.raises(emu.HiddenSyncError):
            x.item()
    x.cpu()
    assert (len(inner), len(outer)) == (1, 2)


def test_the_guard_goes_when_its_block_raises(module: types.ModuleType) -> None:
    with pytest.raises(ZeroDivisionError), emu.forbid_sync():
        raise ZeroDivisionError
    torch.ones(1, device="emu").item()


PLANTED = {
    "next_token = logits.argmax().item()": "item",
    "if (logits > 2).any(): pass": "item",
    "history = logits.tolist()": "copy-d2h",
    "logits[mask] = 0": None,  # ATen makes masked_fill_ of it
    "logits[mask] += 1": "boolean-index",
    "logits[mask] = logits[mask] * 2": "boolean-index",
    "finished[2] = False": "copy-h2d",
    "ids = torch.tensor([1, 2], device='emu')": "copy-h2d",
    "ids = torch.tensor([1, 2], pin_memory=True, device='emu')": "copy-h2d",
    "column = pinned[:, 0].to('emu', non_blocking=True)": "pageable-h2d",
    "row = pinned[0].to('emu', non_blocking=True)": None,
    "where = mask.nonzero()": "nonzero",
    "large = torch.zeros(100_000).to('emu', non_blocking=True)": "pageable-h2d",
    "small = torch.zeros(10).to('emu', non_blocking=True)": None,
    "one = torch.multinomial(logits.softmax(0), 1)": "checked-values",
    "kept = logits.masked_select(mask)": "data-dependent-shape",
    "print_me = str(logits)": "copy-d2h",
}
"""What public reports name as the cause of a stall, each a line of a program; None where there is none."""


def test_each_planted_synchronization_is_named_at_its_line(module: types.ModuleType) -> None:
    names = {
        "torch": torch,
        "logits": torch.ones(4, device="emu"),
        "mask": torch.ones(4, dtype=torch.bool, device="emu"),
        "finished": torch.ones(4, dtype=torch.bool, device="emu"),
        "pinned": torch.zeros(4, 4, pin_memory=True),
    }
    with emu.record_syncs() as seen:
        exec(compile("\n".join(PLANTED), "program.py", "exec"), names)
    planted = {f"program.py({number}): <module>": kind for number, kind in enumerate(PLANTED.values(), 1) if kind}
    found = {site: {sync.kind for sync in seen if sync.site == site} for site in dict.fromkeys(s.site for s in seen)}
    assert found.keys() == planted.keys()
    assert {site: planted[site] in found[site] for site in planted} == dict.fromkeys(planted, True)


def sample(x: torch.Tensor) -> float:
    return x.item()


SAMPLE_LINE = inspect.getsourcelines(sample)[1] + 1


def step(x: torch.Tensor) -> float:
    return sample(x) + 1


STEP_LINE = inspect.getsourcelines(step)[1] + 1


@pytest.mark.parametrize(
    "allow",
    [
        {"item"},
        "item",
        [f"test_synchronize.py:{SAMPLE_LINE}"],
        f"test_synchronize.py({SAMPLE_LINE})",
        {f"test_synchronize.py({SAMPLE_LINE}): sample"},
        {f"emu/test_synchronize.py:{SAMPLE_LINE}"},
        {f"{__file__}:{SAMPLE_LINE}"},
        {"sample"},
        {"test_synchronize.py"},
        {"step"},
        {"copy-d2h", "other.py:1", "step"},
    ],
)
def test_its_kind_its_line_or_a_function_or_file_that_it_is_under_lets_it_pass(
    module: types.ModuleType, allow: str
) -> None:
    x = torch.ones(1, device="emu")
    with emu.forbid_sync(allow=allow) as seen:
        step(x)
    assert [sync.kind for sync in seen] == ["item"]


@pytest.mark.parametrize(
    "allow",
    [
        {"copy-d2h"},
        {f"test_synchronize.py:{SAMPLE_LINE + 1}"},
        {f"test_synchronize.py:{STEP_LINE}"},  # calls what does; a function or a file would cover that
        {f"synchronize.py:{SAMPLE_LINE}"},
        {"samp"},
        {"items"},
        {"other.py"},
    ],
)
def test_what_is_not_meant_does_not_pass(module: types.ModuleType, allow: set[str]) -> None:
    x = torch.ones(1, device="emu")
    with emu.forbid_sync(allow=allow), pytest.raises(emu.HiddenSyncError):
        step(x)


def test_an_entry_that_can_mean_nothing_is_refused(module: types.ModuleType) -> None:
    with pytest.raises(
        InputError, match=r"allow='copy-h2h': neither a line .* the kinds are boolean-index, .*copy-h2d"
    ):
        emu.forbid_sync(allow={"copy-h2h"})


def test_the_message_is_one_line_and_the_line_of_the_program(module: types.ModuleType) -> None:
    stream = module.Stream()
    stream.name = "forward stream"
    with stream:
        emu.busy(1, "forward")
        x = torch.ones(1, device="emu")
        with emu.forbid_sync(), pytest.raises(emu.HiddenSyncError) as raised:
            sample(x)
    first, second = str(raised.value).splitlines()
    assert re.fullmatch(
        r"hidden host synchronization: item \(aten::_local_scalar_dense\) at test_synchronize\.py\(\d+\): sample on "
        r"stream \d+ forward stream: blocks the host for 10\d\d\.\d us \(SIMULATED\), waiting for forward, "
        r"at::native::fill_\.Scalar",
        first,
    )
    assert second == "    return x.item()"


def in_a_thread(body: Callable[[], object]) -> list[BaseException]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            body()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised


def test_a_guard_holds_in_every_thread(module: types.ModuleType) -> None:
    with emu.forbid_sync(allow="copy-d2h"), emu.record_syncs() as seen:
        (item,) = in_a_thread(lambda: torch.ones(1, device="emu").item())
        (copy,) = in_a_thread(lambda: torch.tensor([1], pin_memory=True, device="emu"))
        assert in_a_thread(lambda: torch.tensor([1], pin_memory=True).to("emu", non_blocking=True)) == []
        assert in_a_thread(lambda: torch.ones(1, device="emu").cpu()) == []
    assert isinstance(item, emu.HiddenSyncError)
    assert isinstance(copy, emu.HiddenSyncError)
    assert (item.sync.kind, copy.sync.kind) == ("item", "copy-h2d")
    assert [sync.kind for sync in seen] == ["copy-d2h"]
    assert in_a_thread(lambda: torch.ones(1, device="emu").item()) == []


def test_guards_of_two_threads_come_and_go_in_any_order(module: types.ModuleType) -> None:
    first, second = emu.forbid_sync(), emu.forbid_sync(allow={"item"})
    first.__enter__()
    in_a_thread(second.__enter__)
    first.__exit__(None, None, None)
    x = torch.ones(1, device="emu")
    x.item()
    with pytest.raises(emu.HiddenSyncError):
        x.cpu()
    in_a_thread(lambda: second.__exit__(None, None, None))
    x.cpu()


def test_forbid_sync_decorates_a_function(module: types.ModuleType) -> None:
    with pytest.raises(emu.HiddenSyncError):
        emu.forbid_sync()(step)(torch.ones(1, device="emu"))


def test_what_was_waited_on_reaches_through_events(module: types.ModuleType) -> None:
    side, unrelated = module.Stream(), module.Stream()
    with side:
        emu.busy(1, "forward")
    with unrelated:
        emu.busy(5, "unrelated")
    module.current_stream().wait_stream(side)
    torch.tensor([1], device="emu")
    assert emu.syncs()[-1].waited_on == ["forward"]


def test_all_kinds_are_exercised(module: types.ModuleType) -> None:
    assert {kind for kind, _ in HIDDEN.values()} == set(HIDDEN_KINDS)

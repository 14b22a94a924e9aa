"""A pytest plugin: hidden host synchronizations and stream hazards fail a test, on a machine without a GPU.

- `@pytest.mark.no_host_sync`, or with `allow=` as of `penaltylab.emu.forbid_sync`: the test fails at the first hidden
  synchronization on device emu, also where the code under test swallows the error.
- `@pytest.mark.no_stream_hazard`: the test fails if the device caught a hazard.
- fixture `emu_device`: a fresh emulated device, as a `torch.device`.
- option `--emu-report`: a table at the end of the session, of which test waited where, and of hazards.

PyTorch is imported by the first test that uses one of them.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from penaltylab.errors import InputError

if TYPE_CHECKING:
    import torch

    from penaltylab.emu import Hazard, Sync
    from penaltylab.emu.device import Device

MARKERS = (
    "no_host_sync(allow=()): fails at the first hidden host synchronization on device emu; `allow` names kinds, lines "
    "(file.py:12), files or functions that may make one (penaltylab)",
    "no_stream_hazard: fails if device emu catches accesses to the same memory that nothing orders (penaltylab)",
)
_HAZARD_SHOWN = 3


class Line(NamedTuple):
    """A row of the report: a kind of synchronization or hazard, its lines, how often, how long the host stood still."""

    what: str
    where: str
    times: int
    blocked_us: float


_LINES = pytest.StashKey[list[Line]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--emu-report`."""
    group = parser.getgroup("penaltylab", "hidden synchronizations and stream hazards, on an emulated device")
    group.addoption(
        "--emu-report",
        action="store_true",
        help="at the end, a table of where each test synchronizes with device emu, and of its hazards",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; collect the report where it is asked for."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption("emu_report"):
        config.pluginmanager.register(_Report(), "penaltylab-emu-report")


@pytest.fixture
def emu_device() -> torch.device:
    """The emulated device: an H100's cost model, its clock at 0, no hazards. Skips where there cannot be one."""
    import torch

    device = _device()
    device.configure("h100", "modelled")
    return torch.device("emu", 0)


def _device() -> Device:
    """The emulated device, registered if need be."""
    from penaltylab.emu import runtime

    try:
        return runtime().device
    except InputError as error:
        pytest.skip(str(error))


def _registered() -> bool:
    module = sys.modules.get("penaltylab.emu.runtime")
    return module is not None and module.runtime.cache_info().currsize > 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Guard a marked test, and watch any test for the report."""
    no_sync, no_hazard = item.get_closest_marker("no_host_sync"), item.get_closest_marker("no_stream_hazard")
    reported = bool(item.config.getoption("emu_report"))
    if not (no_sync or no_hazard or reported):
        return (yield)
    if not (no_sync or no_hazard or _registered()):  # it may register the device itself
        result = yield
        if _registered():
            device = _device()
            item.stash[_LINES] = _lines(device.syncs.found, [], device.hazards.found)
        return result
    return (yield from _guarded(item, _device(), None if no_sync is None else _allow(no_sync), no_hazard is not None))


def _allow(marker: pytest.Mark) -> str | Collection[str]:
    if marker.args or marker.kwargs.keys() - {"allow"}:
        raise InputError(f"no_host_sync takes `allow=` alone, not {marker.args or sorted(marker.kwargs)}")
    allow: str | Collection[str] = marker.kwargs.get("allow", ())
    return allow


def _guarded(
    item: pytest.Item, device: Device, allow: str | Collection[str] | None, no_hazard: bool
) -> Generator[None, Any, Any]:
    from penaltylab.emu.synchronize import Guard, HiddenSyncError

    watching = Guard(None) if allow is None else Guard.forbidding(allow)
    earlier, count = device.hazards.found, len(device.hazards.found)
    with ExitStack() as stack:
        stack.enter_context(device.syncs.guard(watching))
        try:
            result = yield
        finally:
            now = device.hazards.found
            hazards = now[count:] if now is earlier else now
            item.stash[_LINES] = _lines(watching.seen, watching.refused, hazards)
    if watching.refused:
        pytest.fail(f"{HiddenSyncError(watching.refused[0])}\n(the error was caught before it reached the test)", False)
    if no_hazard and hazards:
        shown = [hazard.message for hazard in hazards[:_HAZARD_SHOWN]]
        more = len(hazards) - len(shown)
        pytest.fail("\n".join(["stream hazards:", *shown, *([f"and {more} more"] if more else [])]), pytrace=False)
    return result


def _lines(seen: list[Sync], refused: list[Sync], hazards: list[Hazard]) -> list[Line]:
    times: Counter[tuple[str, str]] = Counter()
    blocked: dict[tuple[str, str], float] = defaultdict(float)
    for syncs, note in ((seen, ""), (refused, " (refused)")):
        for sync in syncs:
            times[sync.kind + note, sync.site] += 1
            blocked[sync.kind + note, sync.site] += sync.blocked_us
    races = Counter((hazard.kind, f"{hazard.first_site} and {hazard.second_site}") for hazard in hazards)
    return [
        *(Line(*key, number, round(blocked[key], 1)) for key, number in times.items()),
        *(Line(f"HAZARD {kind}", where, number, 0.0) for (kind, where), number in races.items()),
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hand the lines of a test to whoever prints them, which may be another process (pytest-xdist)."""
    report = yield
    if report.when == "call" and (lines := item.stash.get(_LINES, None)):
        report.emu_lines = [list(line) for line in lines]  # type: ignore[attr-defined]
    return report


class _Report:
    """Collects the lines of all tests and prints them."""

    def __init__(self) -> None:
        self._tests: dict[str, list[Line]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a test's lines."""
        if lines := getattr(report, "emu_lines", None):
            self._tests[report.nodeid] = [Line(*line) for line in lines]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table."""
        write = terminalreporter.write_line
        terminalreporter.section("device emu: host synchronizations and hazards (SIMULATED)")
        if not self._tests:
            write("none: no test synchronized with the device, and no hazard was caught")
            return
        rows = [line for lines in self._tests.values() for line in lines]
        first, second = max(len(row.what) for row in rows), max(len(row.where) for row in rows)
        write(f"  {'kind':<{first}}  {'line':<{second}}  times  host blocked, us")
        for test, lines in self._tests.items():
            write(test)
            for what, where, times, blocked_us in lines:
                blocked = "" if what.startswith("HAZARD") else f"{blocked_us:>16.1f}"
                write(f"  {what:<{first}}  {where:<{second}}  {times:>5}  {blocked}".rstrip())

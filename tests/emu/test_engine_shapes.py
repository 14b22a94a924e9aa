"""Code in the shape of an inference engine: staging buffers, slices, side streams, tokens that stay on the device.

As it stands it neither synchronizes in secret nor races. Each fault planted in it is told, with the two functions.
"""

import types
from collections import deque
from dataclasses import dataclass, field

import pytest
import torch

from penaltylab import emu

BATCH, STEPS, VOCAB = 4, 6, 32


@dataclass
class Engine:
    """Decodes greedily, `ahead` steps ahead of the host. `fault` names what is left out or put in."""

    module: types.ModuleType
    fault: str = ""
    ahead: int = 1
    results: deque[tuple[torch.Tensor, torch.Event]] = field(default_factory=deque)
    tokens: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.schedule, self.forward, self.copy = (self.module.Stream() for _ in range(3))
        self.staging = torch.zeros(2, BATCH, dtype=torch.int64, pin_memory=True)
        self.staged = [self.module.Event(), self.module.Event()]
        self.positions = torch.zeros(2, BATCH, dtype=torch.int64, device="emu")
        self.future = torch.arange(BATCH, device="emu")
        self.table = ((torch.arange(VOCAB).view(-1, 1) * 7 + torch.arange(VOCAB) * 5) % 31).to("emu").float()
        self.module.synchronize()

    def stage(self, step: int) -> None:
        """The host fills a slot of the staging buffer, which goes to a slice on the device."""
        slot = 0 if self.fault == "one slot" else step % 2
        if self.fault not in ("one slot", "unguarded slot"):
            self.staged[slot].synchronize()
        self.staging[slot].fill_(step)
        self.positions[slot].copy_(self.staging[slot], non_blocking=self.fault != "blocking copy")
        self.staged[slot].record()

    def launch(self, step: int) -> None:
        """A forward: reads the slice and the last tokens, leaves the next ones on the device."""
        if self.fault != "forward does not wait":
            self.forward.wait_stream(self.schedule)
        with self.forward:
            emu.busy(1, "forward")
            logits = self.table[self.future] + self.positions[step % 2].unsqueeze(1)
            tokens = logits.argmax(-1)
            if self.fault == "item":
                tokens.max().item()
            self.future.copy_(tokens)
        if self.fault == "publish on the wrong stream":
            self.future.copy_(tokens)
        self.send_back(tokens)

    def send_back(self, tokens: torch.Tensor) -> None:
        """The result, to the host, on a stream of its own."""
        if self.fault != "copy does not wait":
            self.copy.wait_stream(self.forward)
        with self.copy:
            emu.busy(0.5, "another copy")
            host = tokens.to("cpu", non_blocking=True)
            done = self.copy.record_event()
        if self.fault != "no record_stream":
            tokens.record_stream(self.copy)
        self.results.append((host, done))

    def process(self) -> None:
        """The oldest result."""
        host, done = self.results.popleft()
        if self.fault != "read before done":
            done.synchronize()
        self.tokens.append(host.tolist())

    def run(self) -> list[list[int]]:
        with self.module.stream(self.schedule):
            for step in range(STEPS):
                if self.fault != "no barrier":
                    self.schedule.wait_stream(self.forward)
                self.stage(step)
                self.launch(step)
                if len(self.results) > self.ahead:
                    self.process()
            while self.results:
                self.process()
        return self.tokens


@pytest.mark.parametrize("ahead", [1, 3])
def test_as_it_stands_it_neither_waits_in_secret_nor_races(module: types.ModuleType, ahead: int) -> None:
    engine = Engine(module, ahead=ahead)
    with emu.forbid_sync() as seen:
        tokens = engine.run()
    assert {sync.kind for sync in seen} == {"event-synchronize"}
    assert emu.hazards() == []
    expected, table = torch.arange(BATCH), engine.table.cpu()
    for step in range(STEPS):
        expected = (table[expected] + step).argmax(-1)
        assert tokens[step] == expected.tolist()


RACES = {
    "one slot": ("host-write", "stage", "stage"),
    "unguarded slot": ("host-write", "stage", "stage"),
    "forward does not wait": ("read-after-write", "stage", "launch"),
    "publish on the wrong stream": ("write-after-write", "launch", "launch"),
    "copy does not wait": ("read-after-write", "launch", "send_back"),
    "no record_stream": ("freed-in-use", "send_back", "run"),
    "read before done": ("read-after-write", "send_back", "process"),
    "no barrier": ("write-after-read", "launch", "stage"),
}


@pytest.mark.parametrize("fault", RACES)
def test_a_race_is_told_with_both_lines(module: types.ModuleType, fault: str) -> None:
    engine = Engine(module, fault, ahead=3)
    engine.run()
    found = {(h.kind, h.first_site.split(": ")[1], h.second_site.split(": ")[1]) for h in emu.hazards()}
    assert RACES[fault] in found


@pytest.mark.parametrize("fault", ["unguarded slot", "no barrier"])
def test_two_slots_are_enough_for_two_launches_in_flight(module: types.ModuleType, fault: str) -> None:
    Engine(module, fault, ahead=1).run()  # the host has waited for the launch that used the slot before
    assert emu.hazards() == []


@pytest.mark.parametrize(
    ("fault", "kind", "function"), [("blocking copy", "copy-h2d", "stage"), ("item", "item", "launch")]
)
def test_a_hidden_synchronization_is_told_with_its_line(
    module: types.ModuleType, fault: str, kind: str, function: str
) -> None:
    engine = Engine(module, fault)
    with emu.forbid_sync(), pytest.raises(emu.HiddenSyncError) as raised:
        engine.run()
    assert raised.value.sync.kind == kind
    assert raised.value.sync.site.endswith(f": {function}")

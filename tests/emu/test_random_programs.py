"""Random programs on three streams and the host. Ordered correctly they have no hazard; with any one ordering edge
removed, the pair of lines that it ordered is named.

An operation adds up a part of one buffer and adds that to a part of another, or copies pinned memory to a part of one,
or is the host's write into that pinned memory. Where two share elements, and the edges so far do not order them, the
program gets one edge: an event waited for, a stream waited for, or an event that the host waits for.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penaltylab import emu

PARTS = ("[:]", "[:4]", "[4:]", "[2:6]", "[::2]", "[1::2]", "[3:3]")
DENSE_PARTS = PARTS[:4]
HOST = 9


class Part(NamedTuple):
    buffer: int
    slice: str

    @lru_cache  # noqa: B019
    def elements(self) -> set[tuple[int, int]]:
        return {(self.buffer, i) for i in eval(f"list(range(8)){self.slice}")}


class Operation(NamedTuple):
    """On `stream`, or the host where it is None. `edge` chooses how it is ordered after what it has to be."""

    stream: int | None
    source: Part | None
    target: Part | None
    edge: int

    def conflicts(self, other: "Operation") -> bool:
        mine, others = self.target, other.target
        writes = [(mine, other.source), (mine, others), (self.source, others)]
        return any(one and two and one.elements() & two.elements() for one, two in writes)

    def line(self) -> str:
        if self.stream is None:
            return f"host{self.target.slice}.fill_(1)"
        target = f"buffers[{self.target.buffer}]{self.target.slice}"
        if self.source.buffer == HOST:
            return f"with streams[{self.stream}]: {target}.copy_(host{self.source.slice}, non_blocking=True)"
        return f"with streams[{self.stream}]: {target}.add_(buffers[{self.source.buffer}]{self.source.slice}.sum())"


DEVICE_PARTS = st.builds(Part, st.integers(0, 2), st.sampled_from(PARTS))
HOST_PARTS = st.builds(Part, st.just(HOST), st.sampled_from(DENSE_PARTS))
KERNELS = st.builds(Operation, st.integers(0, 2), DEVICE_PARTS, DEVICE_PARTS, st.integers(0, 2))
WRITES = st.builds(Operation, st.none(), st.none(), HOST_PARTS, st.just(2))


@st.composite
def copies(draw: st.DrawFn) -> Operation:
    part = draw(st.sampled_from(DENSE_PARTS))
    target = Part(draw(st.integers(0, 2)), part)
    return Operation(draw(st.integers(0, 2)), Part(HOST, part), target, draw(st.integers(0, 2)))


PROGRAMS = st.lists(KERNELS | copies() | WRITES, min_size=2, max_size=12)


@dataclass
class Program:
    """Its lines, the line of each operation, and the edges: their line, and the two operations that each orders.

    `streams[s]` and `host` are what happened before the next operation there.
    """

    operations: list[Operation]
    lines: list[str] = field(default_factory=list)
    line_of: dict[int, int] = field(default_factory=dict)
    edges: list[tuple[int, int, int]] = field(default_factory=list)
    streams: list[set[int]] = field(default_factory=lambda: [set(), set(), set()])
    host: set[int] = field(default_factory=set)
    events: dict[int, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, operation in enumerate(self.operations):
            for earlier in reversed(range(number)):
                if operation.conflicts(self.operations[earlier]) and not self._ordered(earlier, operation):
                    self.edges.append((len(self.lines), earlier, number))
                    self.lines.append(self._edge(earlier, operation))
            self.lines.append(operation.line())
            self.line_of[number] = len(self.lines)
            if operation.stream is not None:
                mine = self.streams[operation.stream]
                mine |= self.host | {number}
                self.events[number] = set(mine)
                self.lines.append(f"events[{number}] = streams[{operation.stream}].record_event()")

    def _ordered(self, earlier: int, operation: Operation) -> bool:
        if self.operations[earlier].stream is None:
            return True  # the host wrote before it enqueued, or wrote again
        before = self.host if operation.stream is None else self.host | self.streams[operation.stream]
        return earlier in before

    def _edge(self, earlier: int, operation: Operation) -> str:
        other = self.operations[earlier].stream
        if operation.edge == 2 or operation.stream is None:
            self.host |= self.events[earlier]
            return f"events[{earlier}].synchronize()"
        mine = self.streams[operation.stream]
        if operation.edge == 1:
            mine |= self.streams[other]
            return f"streams[{operation.stream}].wait_stream(streams[{other}])"
        mine |= self.events[earlier]
        return f"streams[{operation.stream}].wait_event(events[{earlier}])"

    def site(self, number: int) -> str:
        return f"program.py({self.line_of[number]}): <module>"


def run(lines: list[str]) -> list[emu.Hazard]:
    emu.register()
    emu.configure("h100")
    module = torch.get_device_module("emu")
    names = {
        "buffers": [torch.zeros(8, device="emu") for _ in range(3)],
        "host": torch.zeros(8, pin_memory=True),
        "streams": [module.Stream() for _ in range(3)],
        "events": {},
    }
    module.synchronize()
    exec(compile("\n".join(lines), "program.py", "exec"), names)
    return emu.hazards()


@settings(max_examples=200, deadline=None)
@given(PROGRAMS)
def test_a_correctly_ordered_program_has_no_hazard(operations: list[Operation]) -> None:
    assert run(Program(operations).lines) == []


@settings(max_examples=200, deadline=None)
@given(PROGRAMS, st.integers(0, 100))
def test_with_an_edge_removed_the_two_lines_that_it_ordered_are_named(operations: list[Operation], chosen: int) -> None:
    program = Program(operations)
    assume(program.edges)
    line, first, second = program.edges[chosen % len(program.edges)]
    found = run([*program.lines[:line], "pass", *program.lines[line + 1 :]])
    assert (program.site(first), program.site(second)) in {(hazard.first_site, hazard.second_site) for hazard in found}

"""Stalls folded by place: what comes again at one line of a loop is one line of a report."""

import re
from collections import Counter
from dataclasses import dataclass
from statistics import median_low

from penaltylab.traces.stalls import Stall

_LONG_NAME = 24


@dataclass(frozen=True, slots=True)
class Group:
    """The stalls of one kind, place, call and stream. Times are in us; the stalls are in order of start."""

    kind: str
    where: str
    stream: int | str | None
    stalls: list[Stall]

    @property
    def total_us(self) -> float:
        return sum(stall.stall_us for stall in self.stalls)

    @property
    def median_us(self) -> float:
        return median_low(stall.stall_us for stall in self.stalls)

    @property
    def bubble_us(self) -> float:
        return sum(stall.bubble_us for stall in self.stalls)

    @property
    def advice(self) -> str:
        """The advice for the longest of the stalls."""
        return max(self.stalls, key=lambda stall: stall.stall_us).advice

    @property
    def memory(self) -> str:
        """Bytes and kind of memory of the copies, empty for a synchronization."""
        sizes = sorted({stall.bytes for stall in self.stalls if stall.bytes is not None})
        if not sizes:
            return ""
        size = human_bytes(sizes[0]) if len(sizes) == 1 else f"{human_bytes(sizes[0])} to {human_bytes(sizes[-1])}"
        kinds = sorted({stall.memory for stall in self.stalls})
        return f"{size} {'/'.join(kinds)}"

    @property
    def waited_on(self) -> str:
        """What most of the stalled time went into, one name."""
        weight: Counter[str] = Counter()
        for stall in self.stalls:
            if isinstance(stall.waited_on, str):
                weight[stall.waited_on] += max(1, int(stall.stall_us * 1000))
            for wait in stall.waited_on if isinstance(stall.waited_on, list) else []:
                weight[f"{short_name(wait.name)} (stream {wait.stream})"] += max(1, int(wait.us * 1000))
        return weight.most_common(1)[0][0] if weight else ""

    def per_step(self) -> list[float]:
        """The time stalled here in each step in which it was."""
        steps: Counter[int] = Counter()
        for stall in self.stalls:
            if stall.step is not None:
                steps[stall.step] += int(stall.stall_us * 1000)
        return [total / 1000 for total in steps.values()]


def fold(stalls: list[Stall]) -> list[Group]:
    """Group stalls by kind, place, call and stream; what took longest comes first."""
    groups: dict[tuple[str, str, int | str | None], list[Stall]] = {}
    for stall in stalls:
        groups.setdefault((stall.kind, stall.site or stall.call, stall.stream), []).append(stall)
    return sorted((Group(*key, found) for key, found in groups.items()), key=lambda group: -group.total_us)


def short_name(kernel: str) -> str:
    """A kernel's name without its return type, its template arguments and its signature."""
    name = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    return re.split(r"(?<=\w)[<(]", name, maxsplit=1)[0] if len(name) > _LONG_NAME else name


def human_bytes(size: int) -> str:
    """A number of bytes for a person: 60 B, 81.0 KiB, 36.8 MiB."""
    if size < 1 << 10:
        return f"{size} B"
    return f"{size / (1 << 10):.1f} KiB" if size < 1 << 20 else f"{size / (1 << 20):.1f} MiB"

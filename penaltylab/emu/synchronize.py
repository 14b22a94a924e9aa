"""Host synchronizations: a record of each, and the guards that forbid or collect them."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from penaltylab.emu.allowed import Allowed
from penaltylab.emu.sites import Site, format_site, place_of, stack_of

HIDDEN_KINDS = (
    "copy-h2d",
    "copy-d2h",
    "pageable-h2d",
    "item",
    "nonzero",
    "boolean-index",
    "cpu-index",
    "data-dependent-shape",
    "checked-values",
)
"""Kinds that no line of the program asks for: the copy that waits, the value or the shape that the host needs."""

EXPLICIT_KINDS = ("stream-synchronize", "event-synchronize", "device-synchronize")
"""Kinds that the program asks for by name."""


@dataclass(slots=True)
class Sync:
    """The host waits for a stream. `op` is what waited, `waited_on` the operations that were not done yet, in order."""

    kind: str
    op: str
    stream: int
    start_us: float
    blocked_us: float
    waited_on: list[str]
    raw_site: Site
    stream_name: str = ""

    @property
    def site(self) -> str:
        """The line, as `file.py(12): function`."""
        return format_site(self.raw_site)

    @property
    def source(self) -> str:
        """What the line says; empty where its file cannot be read."""
        place = place_of(self.raw_site)
        return place.text() if place is not None else ""

    @property
    def hidden(self) -> bool:
        """Whether no line of the program asks for it."""
        return self.kind not in EXPLICIT_KINDS

    def __str__(self) -> str:
        waited = f", waiting for {', '.join(self.waited_on)}" if self.waited_on else ""
        stream = f"stream {self.stream} {self.stream_name}".rstrip()
        return (
            f"{self.kind} ({self.op}) at {self.site} on {stream}: "
            f"blocks the host for {self.blocked_us:.1f} us (SIMULATED){waited}"
        )


class HiddenSyncError(RuntimeError):
    """Raised inside `forbid_sync` in place of a synchronization; `sync` tells what it would have been."""

    def __init__(self, sync: Sync) -> None:
        source = f"\n    {sync.source}" if sync.source else ""
        super().__init__(f"hidden host synchronization: {sync}{source}")
        self.sync = sync


@dataclass(eq=False)
class Guard:
    """What one `forbid_sync` or `record_syncs` block wants: synchronizations it has `seen` and those it `refused`."""

    allowed: Allowed | None
    seen: list[Sync] = field(default_factory=list)
    refused: list[Sync] = field(default_factory=list)

    @classmethod
    def forbidding(cls, allow: str | Collection[str] = ()) -> "Guard":
        """A guard that refuses hidden synchronizations but those that `allow` names.

        Raises:
            InputError: an entry of `allow` is no kind, line, file or function.
        """
        return cls(Allowed.of(allow, HIDDEN_KINDS))


@dataclass
class Syncs:
    """All synchronizations since the device was configured, and the guards in force, for every thread."""

    found: list[Sync] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)

    def add(self, sync: Sync) -> None:
        """`sync` is about to happen.

        Raises:
            HiddenSyncError: a guard forbids it.
        """
        for guard in self.guards:
            if guard.allowed and sync.hidden and not guard.allowed.passes(sync.kind, stack_of(sync.raw_site)):
                guard.refused.append(sync)
                raise HiddenSyncError(sync)
        for guard in self.guards:
            guard.seen.append(sync)
        self.found.append(sync)

    @contextmanager
    def guard(self, guard: Guard) -> Iterator[list[Sync]]:
        """Put `guard` in force; yields the list of synchronizations seen while it was."""
        self.guards = [*self.guards, guard]
        try:
            yield guard.seen
        finally:
            self.guards = [other for other in self.guards if other is not guard]

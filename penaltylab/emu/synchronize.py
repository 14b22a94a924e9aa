"""Host synchronizations: a record of each, and the guards that forbid or collect them."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from penaltylab.emu.sites import Site, format_site

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

    @property
    def site(self) -> str:
        """The line, as `file.py(12): function`."""
        return format_site(self.raw_site)

    @property
    def hidden(self) -> bool:
        """Whether no line of the program asks for it."""
        return self.kind not in EXPLICIT_KINDS

    def __str__(self) -> str:
        waited = f", waiting for {', '.join(self.waited_on)}" if self.waited_on else ""
        return (
            f"{self.kind} ({self.op}) at {self.site} on stream {self.stream}: "
            f"blocks the host for {self.blocked_us:.1f} us (SIMULATED){waited}"
        )


class HiddenSyncError(RuntimeError):
    """Raised inside `forbid_sync` in place of a synchronization; `sync` tells what it would have been."""

    def __init__(self, sync: Sync) -> None:
        super().__init__(f"hidden host synchronization: {sync}")
        self.sync = sync


@dataclass(eq=False)
class Guard:
    """What one `forbid_sync` or `record_syncs` block wants."""

    forbid: bool
    allow: Collection[str] = ()
    seen: list[Sync] = field(default_factory=list)


@dataclass
class Syncs:
    """All synchronizations since the device was configured, and the guards in force."""

    found: list[Sync] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)

    def add(self, sync: Sync) -> None:
        """`sync` is about to happen.

        Raises:
            HiddenSyncError: a guard forbids it.
        """
        for guard in self.guards:
            if guard.forbid and sync.hidden and sync.kind not in guard.allow:
                raise HiddenSyncError(sync)
        for guard in self.guards:
            guard.seen.append(sync)
        self.found.append(sync)

    @contextmanager
    def guard(self, forbid: bool, allow: Collection[str] = ()) -> Iterator[list[Sync]]:
        """Put a guard in force; yields the list of synchronizations seen while it was."""
        guard = Guard(forbid, allow)
        self.guards.append(guard)
        try:
            yield guard.seen
        finally:
            self.guards.remove(guard)

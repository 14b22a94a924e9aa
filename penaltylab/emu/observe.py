"""What a piece of code did on the emulated device, as tables."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penaltylab.emu.runtime import runtime
from penaltylab.emu.synchronize import Guard

if TYPE_CHECKING:
    from pandas import DataFrame

    from penaltylab.emu.hazards import Hazard
    from penaltylab.emu.synchronize import Sync


@dataclass
class Observed:
    """`result` is what the code returned; host synchronizations and hazards in the order in which they came."""

    result: Any = None
    syncs: "list[Sync]" = field(default_factory=list)
    hazards: "list[Hazard]" = field(default_factory=list)

    def sync_table(self) -> "DataFrame":
        """One row a line of the program: kind, what the line says, how often, for how long the host stood, for what."""
        from pandas import DataFrame

        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for sync in self.syncs:
            row = rows.setdefault(
                (sync.kind, sync.site),
                {
                    "kind": sync.kind,
                    "line": sync.site,
                    "source": sync.source,
                    "hidden": sync.hidden,
                    "times": 0,
                    "blocked us (SIMULATED)": 0.0,
                    "first waited on": ", ".join(sync.waited_on),
                },
            )
            row["times"] += 1
            row["blocked us (SIMULATED)"] += round(sync.blocked_us, 1)
        columns = ["kind", "line", "source", "hidden", "times", "blocked us (SIMULATED)", "first waited on"]
        return DataFrame(list(rows.values()), columns=columns)

    def hazard_table(self) -> "DataFrame":
        """One row a pair of lines: kind, both lines, how often."""
        from pandas import DataFrame

        rows: dict[tuple[str, str, str], int] = {}
        for hazard in self.hazards:
            key = hazard.kind, hazard.first_site, hazard.second_site
            rows[key] = rows.get(key, 0) + 1
        columns = ["kind", "first line", "second line", "times"]
        return DataFrame([(*key, times) for key, times in rows.items()], columns=columns)


def observe(body: Callable[[], Any], machine: str = "h100") -> Observed:
    """Run `body` on a fresh emulated device, its clock at 0.

    Raises:
        InputError: no such machine, or no emulated device can be here.
    """
    device = runtime().device
    device.configure(machine, "modelled")
    with device.syncs.guard(Guard(None)) as syncs:
        result = body()
    return Observed(result, syncs, list(device.hazards.found))

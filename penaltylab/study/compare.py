"""Two runs of the study side by side: what differs in their provenance, then the cells that both have.

Runs of one kind make ratios. A simulated and a measured run never do: they stand beside each other as prediction and
measurement. The two runs were not taken in pairs, so that a drift between them looks like a difference.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from penaltylab.study.measure import CONTROL
from penaltylab.study.records import Record, Row, read_record, read_rows
from penaltylab.study.stats import MIN_PAIRS, Comparison, compare_groups, compare_modelled
from penaltylab.study.summary import controls

PLACE = ("device", "machine", "host_time")
"""The parameters that say where and on which clock a run took place, not what it ran."""

Judgement = Literal["regression", "cannot tell", "fine"]


@dataclass(frozen=True)
class Entry:
    """A cell that both runs have: the medians of its step times in us, and what may be said of them."""

    name: str
    a_us: float
    b_us: float
    comparison: Comparison | None
    """None for a prediction beside a measurement."""

    def judge(self, fail_above: float) -> Judgement:
        """Whether B is slower by more than `fail_above` percent; its interval has to lie on one side of that."""
        limit = 1 + fail_above / 100
        found = self.comparison
        if found is None or math.isnan(found.ratio):
            return "cannot tell"
        if math.isnan(found.low):
            return "regression" if found.ratio > limit else "fine"
        if found.pairs < MIN_PAIRS or not found.low < found.high or found.low <= limit < found.high:
            return "cannot tell"
        return "regression" if found.low > limit else "fine"


@dataclass(frozen=True)
class Side:
    """One of the two runs."""

    folder: Path
    record: Record
    rows: list[Row]

    @property
    def clock(self) -> str:
        """Whose time its numbers are: rows of different clocks make no ratio."""
        kinds = sorted({_clock(row) for row in self.rows})
        return " and ".join(kinds) or "nothing measured"

    @property
    def doubts(self) -> list[str]:
        """The A/A controls of this run that found a difference."""
        return [
            f"the control of {control.name} in {self.folder.name} failed: {control.comparison.text()}"
            for control in controls(self.rows)
            if control.failed
        ]


@dataclass(frozen=True)
class Compared:
    """Both runs, what differs between them and the cells they share, those first that changed most."""

    a: Side
    b: Side
    differences: list[tuple[str, str, str]]
    entries: list[Entry]
    only_a: int
    only_b: int

    @property
    def doubts(self) -> list[str]:
        """What puts the comparison as a whole in doubt."""
        return self.a.doubts + self.b.doubts


def read_side(folder: Path) -> Side:
    """A run from its folder. Raises InputError where it is none, or is of another version."""
    rows = [row for row in read_rows(folder) if row.status == "ok" and row.step_us_median is not None]
    return Side(folder, read_record(folder), rows)


def compare_runs(a: Side, b: Side) -> Compared:
    """Compare B with A."""
    before, after = _groups(a.rows), _groups(b.rows)
    entries = [
        entry
        for key in before.keys() & after.keys()
        for entry in _entries(before[key], after[key], {_clock(row) for row in [*before[key], *after[key]]})
    ]
    entries.sort(key=lambda entry: (-_change(entry), entry.name))
    missing_b, missing_a = before.keys() - after.keys(), after.keys() - before.keys()
    return Compared(a, b, _differences(a.record, b.record), entries, len(missing_b), len(missing_a))


def _clock(row: Row) -> str:
    return f"{row.device}, {row.host_time} host time" if row.simulated else row.device


def _groups(rows: list[Row]) -> dict[bytes, list[Row]]:
    """The rows of each cell and arm, by what they ran."""
    found = defaultdict(list)
    for row in rows:
        if not row.arm.endswith(CONTROL):
            what = {name: value for name, value in row.params.items() if name not in PLACE}
            found[msgspec.json.encode([row.arm, what], order="sorted")].append(row)
    return dict(found)


def _entries(before: list[Row], after: list[Row], clocks: set[str]) -> list[Entry]:
    first = before[0]
    name = first.cell if first.arm == "run" else f"{first.cell}: {first.arm}"
    a, b = ([row.step_us_median or math.nan for row in rows] for rows in (before, after))
    kinds = {(row.simulated, row.host_time) for row in [*before, *after]}
    comparison: Comparison | None = None
    if len(kinds) == 1:
        modelled = kinds == {(True, "modelled")}
        comparison = compare_modelled(a[-1], b[-1]) if modelled else compare_groups(a, b)
    return [Entry(name, float(np.median(a)), float(np.median(b)), comparison)]


def _change(entry: Entry) -> float:
    ratio = entry.comparison.ratio if entry.comparison else entry.b_us / entry.a_us
    return abs(math.log(ratio)) if ratio > 0 else math.inf


def _differences(a: Record, b: Record) -> list[tuple[str, str, str]]:
    before, after = _flat(a), _flat(b)
    names = sorted(before.keys() | after.keys())
    return [
        (name, before.get(name, "-"), after.get(name, "-")) for name in names if before.get(name) != after.get(name)
    ]


def _flat(record: Record) -> dict[str, str]:
    """Provenance and settings as text by dotted name."""
    found: dict[str, str] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                add(f"{prefix}.{name}" if prefix else str(name), inner)
        elif isinstance(value, list):
            found[prefix] = "; ".join(map(str, value))
        elif value is not None:
            found[prefix] = str(value)

    add("", {name: value for name, value in record.provenance.items() if name != "torch"})
    add("torch", record.provenance.get("torch"))
    for name in ("code", "device", "driver"):
        values = {str(entry.get(name)) for entry in record.settings.values() if entry.get(name)}
        if values:
            found[name] = ", ".join(sorted(values))
    return found

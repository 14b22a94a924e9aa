"""Rows put together: the runs of one arm as one line, the A/A controls, what a sweep's cells are to its baseline."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penaltylab.study.measure import CONTROL
from penaltylab.study.records import Row
from penaltylab.study.stats import Comparison, compare_modelled, compare_pairs


@dataclass(frozen=True)
class Arm:
    """All runs of one arm of a cell."""

    cell: str
    name: str
    rows: list[Row]

    def median(self, read: Callable[[Row], float | None] | str) -> float:
        """The median over runs of a field of `Row`, or of what `read` reads; NaN where no run has it."""
        values = [getattr(row, read) if isinstance(read, str) else read(row) for row in self.rows]
        known = [value for value in values if value is not None and not math.isnan(value)]
        return float(np.median(known)) if known else math.nan

    def wait(self, kind: str) -> float:
        """The median host wait of a kind a step."""
        return self.median(lambda row: row.wait_us_median.get(kind))

    @property
    def waits(self) -> float:
        """The median of all host waits of a step together."""
        return self.median(lambda row: sum(row.wait_us_median.values()))

    @property
    def times(self) -> dict[int | None, float]:
        """Step times by round; the only one of a modelled run has no number."""
        return {row.pair: row.step_us_median or math.nan for row in self.rows}


@dataclass(frozen=True)
class Control:
    """An A/A control: the same runs again, in the same rounds."""

    name: str
    comparison: Comparison

    @property
    def failed(self) -> bool:
        """Whether it found a difference where there is none."""
        return self.comparison.verdict in {"faster", "slower"}


def arms(rows: Iterable[Row]) -> list[Arm]:
    """The arms that were run through the decode loop, controls apart, in the order of their first rows."""
    found: dict[tuple[str, str, str], Arm] = {}
    for row in rows:
        if row.step_us_median is not None and not row.arm.endswith(CONTROL):
            found.setdefault((row.cell, row.arm, row.params_hash), Arm(row.cell, row.arm, [])).rows.append(row)
    return list(found.values())


def controls(rows: Iterable[Row]) -> list[Control]:
    """The controls of all cells, each against the baseline of its own rounds."""
    again: dict[tuple[str, str, str], list[Row]] = {}
    first: dict[tuple[str, str, str], Arm] = {}
    listed = list(rows)
    for arm in arms(listed):
        first[arm.cell, arm.name, arm.rows[0].params_hash] = arm
    for row in listed:
        if row.arm.endswith(CONTROL):
            baseline = row.arm.removesuffix(CONTROL).removesuffix(": ") or "run"
            again.setdefault((row.cell, baseline, row.params_hash), []).append(row)
    return [
        Control(key[0] if key[1] == "run" else f"{key[0]}: {key[1]}", against(first[key], Arm(*key[:2], twice)))
        for key, twice in again.items()
        if key in first
    ]


def against(baseline: Arm, arm: Arm) -> Comparison:
    """`arm` against `baseline`, over the rounds that hold both; modelled runs as they are."""
    before, after = baseline.times, arm.times
    if None in before and None in after:
        return compare_modelled(before[None], after[None])
    both = sorted(pair for pair in before.keys() & after.keys() if pair is not None)
    return compare_pairs([before[pair] for pair in both], [after[pair] for pair in both])


def path_of(arm: Arm) -> str:
    """The decode path that an arm ran."""
    return str(arm.rows[0].params["path"])


def baselines(found: Iterable[Arm]) -> dict[str, Arm]:
    """The first arm of each decode path: steps of two paths bring different numbers of tokens and make no ratio."""
    first: dict[str, Arm] = {}
    for arm in found:
        first.setdefault(path_of(arm), arm)
    return first


def throttled(rows: Iterable[Row]) -> dict[str, Any]:
    """How many runs a GPU held its clock down in, of how many that could tell, and why."""
    telling = [row.gpu["throttled"] for row in rows if "throttled" in row.gpu]
    reasons = sorted({reason for found in telling for reason in found})
    return {"runs": sum(map(bool, telling)), "of": len(telling), "reasons": reasons}

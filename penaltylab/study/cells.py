"""A sweep without a notebook: each cell is a run of the engine with its own parameters, measured in a pool of workers.

A cell in modelled time is one run. Cells in measured time are run in rounds, each round all of them once in random
order with the first again as the control, so that any two make pairs.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Struct

from penaltylab.errors import InputError
from penaltylab.params import Params, revisions, scenarios
from penaltylab.study.measure import CONTROL, rounds
from penaltylab.study.sweep import QUICK, check_not_both

ARM = "run"
MANY = 10_000
OVERHEAD_S = {"normal": 0.003, "eagle": 0.006}
"""Real seconds a step takes to emulate, about; for the estimate before a sweep starts."""


@dataclass(frozen=True)
class SweepCell:
    """One point of a sweep."""

    name: str
    params: Params


class Task(Struct, kw_only=True):
    """One run of one cell: what a worker is told."""

    cell: str
    arm: str = ARM
    pair: int | None = None
    params: dict[str, Any]
    params_hash: str
    setting: str = ""
    trace: str = ""
    """The name of the trace to leave as well; empty for none."""

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Equal for tasks that would measure the same; with an equal setting their results are exchangeable."""
        return self.params_hash, self.arm, self.pair


def plan_cells(
    values: dict[str, str], sweeps: dict[str, str], *, quick: bool = False, yes: bool = False
) -> list[SweepCell]:
    """The product of `sweeps`, each NAME=V1,V2,...; `all` stands for every value of a name that has a fixed set.

    Raises InputError for a name or value that `Params` refuses, for values given twice or not at all, and for more than
    10,000 cells without `yes`.
    """
    check_not_both(values, sweeps)
    choices = {name: _choices(name, text) for name, text in sweeps.items()}
    count = math.prod(map(len, choices.values()))
    if count > MANY and not yes:
        raise InputError(f"the sweep has {count:,} cells: give --yes to run more than {MANY:,}")
    fixed: dict[str, Any] = (QUICK if quick else {}) | values
    cells: dict[str, SweepCell] = {}
    for combination in itertools.product(*choices.values()):
        params = Params.of(**fixed | dict(zip(choices, combination, strict=True)))
        name = ",".join(f"{name}={getattr(params, name)}" for name in choices)
        if name in cells:
            raise InputError(f"{name} would run twice: a sweep holds one value twice")
        cells[name] = SweepCell(name, params)
    return list(cells.values())


def tasks(cells: list[SweepCell], emulated: bool, pairs: int, setting: str = "", traces: bool = False) -> list[Task]:
    """What to run for `cells`, where `emulated` says what the device `auto` stands for. See the module."""
    modelled = [cell for cell in cells if is_modelled(cell.params, emulated)]
    measured = {cell.name: cell for cell in cells if not is_modelled(cell.params, emulated)}
    found = [_task(cell, ARM, None, setting, traces) for cell in modelled]
    baseline = next(iter(measured.values()), None)
    for pair, order in enumerate(rounds(list(measured), pairs) if measured else []):
        for name in order:
            if name == CONTROL and baseline:
                found.append(_task(baseline, CONTROL, pair, setting, False))
            else:
                found.append(_task(measured[name], ARM, pair, setting, traces and pair == 0))
    return found


def is_modelled(params: Params, emulated: bool) -> bool:
    """Whether a run of `params` is deterministic."""
    on_emu = params.device == "emu" or (params.device == "auto" and emulated)
    return on_emu and params.host_time == "modelled"


def estimate_s(planned: list[Task], workers: int) -> float:
    """About how long `planned` will take, in real seconds."""
    return sum(OVERHEAD_S[task.params["path"]] * task.params["steps"] for task in planned) / workers


def _task(cell: SweepCell, arm: str, pair: int | None, setting: str, trace: bool) -> Task:
    return Task(
        cell=cell.name,
        arm=arm,
        pair=pair,
        params=cell.params.asdict(),
        params_hash=cell.params.hash(),
        setting=setting,
        trace=f"{cell.params.hash()}.json.gz" if trace else "",
    )


def _choices(name: str, text: str) -> list[str]:
    if text == "all":
        return _all(name)
    choices = text.split(",")
    if not all(choices):
        raise InputError(f"--sweep {name}={text}: there is a value missing")
    return choices


def _all(name: str) -> list[str]:
    hint = get_type_hints(Params).get(name)
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if hint is bool:
        return ["true", "false"]
    if name in {"revision", "scenario"}:
        return list(revisions()) if name == "revision" else scenarios()
    raise InputError(f"--sweep {name}=all: {name} has no fixed set of values; list those you want")

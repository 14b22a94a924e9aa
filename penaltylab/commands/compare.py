"""`penaltylab compare`: two runs of the study side by side, and a gate for builds."""

import math
import sys
from pathlib import Path

import msgspec

from penaltylab.errors import InputError
from penaltylab.study.compare import Compared, Entry, Side, compare_runs, read_side
from penaltylab.study.pages import escaped, number

SHOWN = 100


def compare(run_a: str, run_b: str, format: str, fail_above: float | None) -> int:
    """Print what differs between two runs and how the cells that both have changed.

    Args:
        run_a: the folder of the run to compare with.
        run_b: the folder of the run to judge.
        format: `table`, `json` or `markdown`.
        fail_above: by how many percent a step may be slower.

    Returns:
        0, or 1 when a cell is slower by more than `fail_above` and its interval excludes that limit.

    Raises:
        InputError: a folder that is no run, no cell that both have, or a `fail_above` that cannot be decided.
    """
    if fail_above is not None and not 0 <= fail_above < math.inf:
        raise InputError(f"--fail-above {fail_above:g}: a number of percent, at least 0")
    found = compare_runs(read_side(Path(run_a)), read_side(Path(run_b)))
    if not found.entries:
        raise InputError(f"{run_a} and {run_b} have no cell in common; their cells differ in parameters or names")
    print(_json(found) if format == "json" else _text(found, format))
    if fail_above is None:
        return 0
    judged = {entry.name: entry.judge(fail_above) for entry in found.entries}
    slower = [name for name, judgement in judged.items() if judgement == "regression"]
    if slower and not found.doubts:
        print(f"slower by more than {fail_above:g} %: {', '.join(slower)}", file=sys.stderr)
        return 1
    open_ones = [name for name, judgement in judged.items() if judgement == "cannot tell"]
    if open_ones or found.doubts:
        why = "; ".join(found.doubts) or f"{len(open_ones)} of {len(judged)} cells: {_why(found, open_ones[0])}"
        raise InputError(f"cannot tell whether anything is slower by more than {fail_above:g} %: {why}")
    return 0


def _why(found: Compared, name: str) -> str:
    entry = next(entry for entry in found.entries if entry.name == name)
    if entry.comparison is None:
        return f"{name} is a prediction beside a measurement, which make no ratio"
    return f"{name}: {entry.comparison.text()}, {entry.comparison.reason}"


def _json(found: Compared) -> str:
    sides = {name: _side(side) for name, side in (("a", found.a), ("b", found.b))}
    cells = [
        {
            "cell": entry.name,
            "a_us": entry.a_us,
            "b_us": entry.b_us,
            "comparison": msgspec.to_builtins(entry.comparison) if entry.comparison else None,
        }
        for entry in found.entries
    ]
    differences = [{"name": name, "a": a, "b": b} for name, a, b in found.differences]
    return msgspec.json.format(
        msgspec.json.encode({**sides, "differences": differences, "doubts": found.doubts, "cells": cells})
    ).decode()


def _side(side: Side) -> dict[str, object]:
    return {"folder": str(side.folder), "clock": side.clock, "status": side.record.status, "runs": len(side.rows)}


def _text(found: Compared, format: str) -> str:
    markdown = format == "markdown"
    lines = [f"A: {_name(found.a)}", f"B: {_name(found.b)}", *(f"DOUBT: {doubt}" for doubt in found.doubts)]
    if markdown:
        lines = [f"- {escaped(line)}" for line in lines]
    lines += ["", *_table(["differs", "A", "B"], [list(row) for row in found.differences], markdown)]
    both = any(entry.comparison is None for entry in found.entries)
    titles = ["cell", "A, us a step", "B, us a step", "B against A" if not both else "prediction and measurement"]
    rows = [
        [entry.name, number(entry.a_us), number(entry.b_us), _said(entry, found)] for entry in found.entries[:SHOWN]
    ]
    lines += ["", *_table(titles, rows, markdown)]
    left = len(found.entries) - SHOWN
    lines += [f"and {left} more, which changed less"] if left > 0 else []
    lines += [f"Only in A: {found.only_a}; only in B: {found.only_b}."] if found.only_a or found.only_b else []
    return "\n".join(lines)


def _name(side: Side) -> str:
    return f"{side.folder} ({side.record.status}; {side.clock}; {len(side.rows)} runs)"


def _said(entry: Entry, found: Compared) -> str:
    if entry.comparison:
        return entry.comparison.text()
    return f"A {found.a.clock}, B {found.b.clock}: no ratio"


def _table(titles: list[str], rows: list[list[str]], markdown: bool) -> list[str]:
    if not rows:
        return [f"{titles[0]}: nothing"]
    if markdown:
        cells = [[escaped(cell) for cell in row] for row in [titles, ["---"] * len(titles), *rows]]
        return [f"| {' | '.join(row)} |" for row in cells]
    flat = [[" ".join(cell.split())[:96] for cell in row] for row in [titles, *rows]]
    widths = [max(len(row[column]) for row in flat) for column in range(len(titles))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in flat]

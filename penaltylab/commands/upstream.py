"""`penaltylab upstream`: what a step's copy costs in released sglang, and beside it in ours."""

import math
from typing import Any

import msgspec

from penaltylab.errors import InputError
from penaltylab.study.sweep import assignments
from penaltylab.upstream import Row, compare

TEXT_COLUMNS = 3  # the first ones; numbers follow, on the right of their columns


def upstream(versions: list[str], path: str | None, values: list[str], output: str = "table") -> int:
    """Run each of `versions` on `path` (default: both) and print the rows as `output`: table, json or markdown.

    `values` are NAME=VALUE texts, as of `run`. Returns 0; raises InputError.
    """
    given: dict[str, Any] = dict(assignments(values))
    if path is not None:
        if "path" in given:
            raise InputError("the path is given twice: by --path and by -p")
        given["path"] = path
    rows = compare(versions, **given)
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(rows)).decode())
    else:
        print("\n".join([*_notes(rows), "", *_table([_cells(row) for row in rows], output == "markdown")]))
    return 0


def _notes(rows: list[Row]) -> list[str]:
    emulated = "on an emulated device: no figure here is a GPU's"
    notes = [
        f"{rows[0].device}, {emulated if rows[0].simulated else 'profiler off'}.",
        "Medians over the decode steps after warm-up, in us of host time. copy: in the statements that count the last "
        "tokens; stalled: blocked in them; then the other waits.",
    ]
    if any(math.isnan(row.stall_us) for row in rows):
        notes.append("-: a real device does not tell; record a trace and `penaltylab inspect` it.")
    differ = [row for row in rows if row.arm == "ours" and not row.tokens_equal]
    return notes + [f"{row.version} {row.path}: sglang's code and ours generated different tokens" for row in differ]


def _cells(row: Row) -> dict[str, str]:
    times = {"step": row.step_us, "copy": row.cumulate_us, "stalled": row.stall_us}
    times |= {"lengths": row.wait_us["seq_lens"], "mask": row.wait_us["mask"], "result": row.wait_us["result"]}
    theirs = row.arm == "sglang"
    return {
        "sglang": row.version,
        "path": row.path,
        "code": row.code if theirs else f"ours as {row.revision}",
        **{name: "-" if math.isnan(us) else f"{us:.0f}" for name, us in times.items()},
        "hazards": str(row.hazards),
        "difference": "" if theirs else f"{row.difference_percent:+.1f} %",
    }


def _table(rows: list[dict[str, str]], markdown: bool) -> list[str]:
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if markdown:
        lines.insert(1, ["-" * w if i < TEXT_COLUMNS else "-" * (w - 1) + ":" for i, w in enumerate(widths)])
    padded = [
        [
            text.ljust(w) if i < TEXT_COLUMNS else text.rjust(w)
            for i, (text, w) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
    ]
    return [f"| {' | '.join(line)} |" if markdown else "  ".join(line) for line in padded]

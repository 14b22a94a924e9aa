"""`penaltylab inspect`: read traces, name every place where the host stood still, fail for what is forbidden."""

import json
import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

from penaltylab.errors import InputError
from penaltylab.traces.findings import Inspected, forbidden, inspect_trace, parse_kinds
from penaltylab.traces.render import code, markdown, plain, print_table
from penaltylab.traces.rows import duration

_WORTH_A_PROCESS = 8 << 20
_PIPED = 120


def inspect(traces: list[str], format: str, fail_on: str | None, min_us: float) -> int:
    """Inspect traces and print what was found.

    Args:
        traces: paths; several large ones are read in parallel processes.
        format: `table`, `json` or `markdown`.
        fail_on: kinds of stall, separated by commas, that must not occur.
        min_us: leave out stalls shorter than this, and do not fail for them.

    Returns:
        0, or 1 when a trace has a stall that `fail_on` forbids.

    Raises:
        InputError: a kind that does not exist, or a trace that cannot be read (the others are printed first).
    """
    kinds = parse_kinds(fail_on)
    if format not in ("table", "json", "markdown"):
        raise InputError(f"--format: {format!r} is none of table, json, markdown")
    if math.isnan(min_us) or min_us < 0:
        raise InputError(f"--min-us: {min_us} is not a length of time")
    results = _inspect_all(traces)
    good = [result for result in results if isinstance(result, Inspected)]
    _print(good, format, min_us)
    failed = [line for result in good for line in _forbidden(result, kinds, min_us)]
    if failed and format == "markdown":
        print("\n**Forbidden**\n")
    for line in failed:
        print(f"- {code(line)}" if format == "markdown" else line, file=sys.stderr if format == "json" else sys.stdout)
    if bad := [plain(result) for result in results if isinstance(result, str)]:
        raise InputError("; ".join(bad))
    return int(bool(failed))


def _forbidden(result: Inspected, kinds: tuple[str, ...], min_us: float) -> list[str]:
    return [
        f"forbidden: {stall.kind} of {duration(stall.stall_us)} at {stall.start_us:.3f} us, "
        + plain(f"{stall.site or stall.call} in {result.findings.trace}")
        for stall in forbidden(result.findings, kinds, min_us)
    ]


def _inspect_all(traces: list[str]) -> list[Inspected | str]:
    """Findings in the order of the traces; the reason where one could not be read."""
    large = sum(_size(trace) > _WORTH_A_PROCESS for trace in traces)
    workers = min(large, os.cpu_count() or 1)
    if workers < 2:
        return [_inspect_one(trace) for trace in traces]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_inspect_one, traces))


def _inspect_one(trace: str) -> Inspected | str:
    try:
        return inspect_trace(trace)
    except InputError as error:
        return str(error)


def _size(trace: str) -> int:
    try:
        return Path(trace).stat().st_size * (8 if trace.endswith((".gz", ".zip")) else 1)
    except OSError:
        return 0


def _print(results: list[Inspected], format: str, min_us: float) -> None:
    if format == "json":
        chosen = [
            msgspec.structs.replace(
                result.findings, stalls=[stall for stall in result.findings.stalls if stall.stall_us >= min_us]
            )
            for result in results
        ]
        # Escaped to ASCII: a terminal obeys control characters beyond it as well.
        print(json.dumps(msgspec.to_builtins(chosen), indent=1))
    elif format == "markdown":
        print("\n".join(markdown(result, min_us) for result in results), end="")
    else:
        from rich.console import Console

        console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _PIPED)
        for result in results:
            print_table(result, min_us, console)

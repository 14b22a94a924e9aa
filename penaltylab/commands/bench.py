"""`penaltylab bench`: run this package's own benchmarks, each a module of `penaltylab.bench`, and print the results."""

from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import msgspec

from penaltylab.errors import InputError

SUITES = ("emu", "host", "apply", "traces")


def bench(suite: str, out: str | None) -> int:
    """Run one suite, or all; print a table of each and write the results to the file `out`, a JSON object a line."""
    if suite != "all" and suite not in SUITES:
        raise InputError(f"no suite {suite!r}; there are {', '.join(SUITES)}, and all")
    file = _open(out) if out else None
    try:
        for name in SUITES if suite == "all" else [suite]:
            results: list[dict[str, Any]] = import_module(f"penaltylab.bench.{name}").run()
            print(f"{name}\n{_table(results)}\n")
            if file:
                file.writelines(msgspec.json.encode(result).decode() + "\n" for result in results)
    finally:
        if file:
            file.close()
    return 0


def _open(out: str) -> TextIO:
    try:
        return Path(out).open("w")
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror})") from None


def _table(results: list[dict[str, Any]]) -> str:
    """Columns as the results name them; a nested object is one cell, `name=value` for each of its entries."""
    columns = list(dict.fromkeys(name for result in results for name in result))
    rows = [columns, *([_cell(result.get(name)) for name in columns] for result in results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_cell(entry)}" for name, entry in value.items())
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)

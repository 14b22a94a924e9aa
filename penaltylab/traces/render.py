"""Findings for a person: a table for the terminal, Markdown for a pull request. Names from a file stay plain text."""

import re
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Final

from penaltylab.traces.findings import Findings, Inspected
from penaltylab.traces.fold import Group, fold, human_bytes
from penaltylab.traces.rows import duration

if TYPE_CHECKING:
    from rich.console import Console

MOST_GROUPS: Final = 20
_LONGEST_NAME = 60
_WORTH_SAYING = 0.005
# Control characters of both sets, and what reorders or hides text.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def plain(text: str, longest: int = 400) -> str:
    """Text that cannot steer a terminal: no control or direction characters, and not endless."""
    text = _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def summary(found: Findings) -> list[str]:
    """Two lines: the device and the size of the trace; its host-to-device copies."""
    copies = found.copies
    simulated = "SIMULATED: " if found.simulated and "SIMULATED" not in found.device.name else ""
    memory = {"pageable": copies.h2d_pageable, "pinned": copies.h2d_pinned, "unknown memory": copies.h2d_unknown}
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in memory.items() if count)
    size = f", {human_bytes(copies.h2d_bytes)}" if copies.h2d else ""
    return [
        f"{simulated}{plain(found.device.name)}: {found.events:,} events, {found.gpu_ops:,} GPU operations, "
        f"{duration(found.span_us)}",
        f"host-to-device copies: {copies.h2d:,}{f' ({kinds}{size})' if copies.h2d else ''}, "
        f"{copies.h2d_blocking:,} of them blocking",
    ]


def times(group: Group) -> str:
    """How often and how long: `37 x 2.10 ms`, or the longest where they differ much."""
    longest = max(stall.stall_us for stall in group.stalls)
    count = len(group.stalls)
    if count == 1:
        return "once"
    return (
        f"{count:,}, up to {duration(longest)}"
        if longest > 3 * group.median_us
        else f"{count:,} x {duration(group.median_us)}"
    )


def place(group: Group) -> str:
    return plain(group.where, _LONGEST_NAME)


def details(group: Group) -> str:
    """Memory, stream, what was waited on and what that cost, in one line."""
    stream = "" if group.stream is None else f"stream {plain(str(group.stream), _LONGEST_NAME)}"
    waited = f"waited on {plain(group.waited_on, _LONGEST_NAME)}" if group.waited_on else ""
    cost = f"then the GPU idled {duration(group.bubble_us)}" if group.bubble_us >= 0.5 else "the GPU never idled for it"
    parts = (group.memory, stream, waited, cost)
    return ", ".join(part for part in parts if part)


def step_lines(inspected: Inspected) -> Iterator[str]:
    """What each step of a loop loses, by place."""
    steps = inspected.steps
    if steps.count < 2:
        return
    yield f"{steps.count:,} steps ({plain(steps.what, _LONGEST_NAME)}), {duration(steps.median_us)} each (median)"
    for group in fold(inspected.findings.stalls)[:MOST_GROUPS]:
        lost = group.per_step()
        if len(lost) >= 2 and median(lost) >= _WORTH_SAYING * steps.median_us > 0:
            share = f"{duration(median(lost))} a step ({median(lost) / steps.median_us:.0%}) in {len(lost):,} of them"
            yield f"  {share}: {group.kind} at {place(group)}"


def print_table(inspected: Inspected, min_us: float, console: "Console") -> None:
    """Print one trace to a terminal."""
    from rich.table import Table
    from rich.text import Text

    found = inspected.findings
    console.print(Text(plain(found.trace), style="bold"))
    for line in summary(found):
        console.print(Text(line))
    groups = fold([stall for stall in found.stalls if stall.stall_us >= min_us])
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for group in groups[:MOST_GROUPS]:
        head = Text.assemble((f"{group.kind}  ", "bold red"), (place(group), "bold"), f"  {times(group)}")
        table.add_row(Text(duration(group.total_us), style="bold"), head)
        table.add_row("", Text(details(group)))
        table.add_row("", Text(group.advice, style="green"))
    console.print(table if groups else Text("no host stalls"))
    if len(groups) > MOST_GROUPS:
        console.print(Text(f"... and {len(groups) - MOST_GROUPS:,} more places; --format json has all"))
    for line in step_lines(inspected):
        console.print(Text(line))
    for line in found.warnings:
        console.print(Text(f"warning: {plain(line)}", style="yellow"))
    console.print()


def markdown(inspected: Inspected, min_us: float) -> str:
    """One trace as Markdown, fit for a comment on a pull request."""
    found = inspected.findings
    groups = fold([stall for stall in found.stalls if stall.stall_us >= min_us])
    lines = [f"### {code(found.trace)}", "", *(f"{escaped(line)}  " for line in summary(found)), ""]
    if groups:
        lines += ["| total | kind | where | stalls | details |", "|--:|---|---|--:|---|"]
    for group in groups[:MOST_GROUPS]:
        total, told = duration(group.total_us), f"{escaped(details(group))}<br>{escaped(group.advice)}"
        lines.append(f"| {total} | {group.kind} | {code(place(group))} | {times(group)} | {told} |")
    if not groups:
        lines.append("No host stalls.")
    if len(groups) > MOST_GROUPS:
        lines += ["", f"... and {len(groups) - MOST_GROUPS:,} more places."]
    for title, items in (("Steps", step_lines(inspected)), ("Warnings", (plain(line) for line in found.warnings))):
        if listed := [f"- {escaped(item)}" for item in items]:
            lines += ["", f"**{title}**", "", *listed]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """Text as Markdown code, in which nothing is markup and nobody is mentioned."""
    return "`" + plain(text).replace("`", "'").replace("|", "\\|") + "`"


def escaped(text: str) -> str:
    """Text with everything that Markdown or HTML would read as markup escaped."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&commat;")
    return re.sub(r"([\\`*_{}\[\]#|~!])", r"\\\1", text)

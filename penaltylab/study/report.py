"""`report.html`: the answer, what ran, the figures, the numbers, how to open the traces; one file, no network.

`report.md` is the short of it for a pull request; executed notebooks become pages beside themselves.
"""

import base64
from dataclasses import dataclass
from pathlib import Path

from penaltylab.study.answer import answer
from penaltylab.study.notebook_html import write_notebook_pages
from penaltylab.study.pages import environment
from penaltylab.study.records import CellRecord, Record, Row, read_rows, write_atomically
from penaltylab.study.summary import Arm, against, arms, baselines, controls, path_of, throttled
from penaltylab.widgets import runtime_html

SHOWN = 200
SHOWN_IN_MARKDOWN = 30


@dataclass(frozen=True)
class Figure:
    """A figure of a cell: its PNG as a data address, its caption, and, if there is one, a live page of the same."""

    address: str
    caption: str
    live: str = ""


@dataclass(frozen=True)
class Section:
    """What one cell found."""

    record: CellRecord
    figures: list[Figure]
    runs: list[Arm]
    other: list[Row]
    traces: list[str]

    @property
    def devices(self) -> str:
        """What the numbers were taken on; the name of an emulated device begins with SIMULATED."""
        return ", ".join(sorted({row.device for row in [*(arm.rows[0] for arm in self.runs), *self.other]}))


@dataclass(frozen=True)
class Line:
    """One arm as a line of a table: in a sweep, also what it is to the baseline."""

    name: str
    arm: Arm
    against: str = ""


def write_report(folder: Path, record: Record) -> None:
    """Write `report.html` and `report.md` of the run in `folder`, from its record, rows, figures and traces."""
    rows = list(read_rows(folder))
    write_notebook_pages(folder)
    sections = [_section(folder, entry, rows) for entry in record.notebooks]
    live = any(figure.live for section in sections for figure in section.figures)
    lines = _lines(record, rows)
    given = {
        "record": record,
        "provenance": record.provenance,
        "answer": answer(record, rows),
        "controls": controls(row for row in rows if row.status == "ok"),
        "throttled": throttled(rows),
        "sections": sections,
        "lines": lines[:SHOWN],
        "left": max(0, len(lines) - SHOWN),
        "failures": [row for row in rows if row.status != "ok"][:SHOWN],
        "sweep_figures": [_figure(path) for path in sorted((folder / "figures").glob("*.png"))] if record.sweep else [],
        "sweep_traces": sorted(f"traces/{path.name}" for path in (folder / "traces").glob("*")) if record.sweep else [],
        "runtime": runtime_html() if live else "",
        "devices": sorted({row.device for row in rows}),
        "simulated": any(row.simulated for row in rows),
        "host_times": sorted({row.host_time for row in rows if row.host_time}),
        "folder": folder.name,
    }
    write_atomically(folder / "report.html", environment().get_template("report.html").render(given).encode())
    many = {section.record.cell for section in sections if len(section.runs) > SHOWN_IN_MARKDOWN}
    few = [line for line in lines if line.arm.cell not in many][:SHOWN_IN_MARKDOWN]
    short = given | {"shown": few, "left": len(lines) - len(few)}
    page = environment(markdown=True).get_template("report.md").render(short)
    write_atomically(folder / "report.md", page.encode())


def _lines(record: Record, rows: list[Row]) -> list[Line]:
    found = arms(row for row in rows if row.status == "ok")
    if record.sweep is None:
        return [Line(arm.name, arm) for arm in found]
    first = baselines(found)
    ratios = {arm.cell: against(first[path_of(arm)], arm).text() for arm in found if arm is not first[path_of(arm)]}
    return [Line(arm.cell, arm, ratios.get(arm.cell, "")) for arm in found]


def _section(folder: Path, entry: CellRecord, rows: list[Row]) -> Section:
    own = [row for row in rows if row.cell == entry.cell]
    figures = sorted((folder / "figures").glob(f"{entry.cell}.*.png"), key=lambda path: path.stat().st_mtime_ns)
    traces = sorted((folder / "traces").glob(f"{entry.cell}.*.json.gz"), key=lambda path: path.stat().st_mtime_ns)
    return Section(
        record=entry,
        figures=[_figure(path) for path in figures],
        runs=arms(row for row in own if row.status == "ok"),
        other=[row for row in own if row.metrics],
        traces=[f"traces/{path.name}" for path in traces],
    )


def _figure(path: Path) -> Figure:
    from PIL import Image

    with Image.open(path) as image:
        caption = image.info.get("Description", path.stem)
    page = path.with_suffix(".html")
    live = page.read_text(encoding="utf-8") if page.exists() else ""
    return Figure(f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}", caption, live)

"""`report.html`: what ran, on what, the figures, the numbers, how to open the traces; one file, no network."""

import base64
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penaltylab.study.records import CellRecord, Record, Row, read_rows, write_atomically
from penaltylab.widgets import runtime_html

TEMPLATES = Path(__file__).with_name("templates")


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
    runs: list[Row]
    other: list[Row]
    traces: list[str]

    @property
    def devices(self) -> str:
        """What the numbers were taken on; the name of an emulated device begins with SIMULATED."""
        return ", ".join(sorted({row.device for row in [*self.runs, *self.other]}))


def write_report(folder: Path, record: Record) -> None:
    """Write `report.html` of the run in `folder`, from its record, its rows, its figures and its traces."""
    import jinja2

    rows = list(read_rows(folder))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = number
    sections = [_section(folder, entry, rows) for entry in record.notebooks]
    live = any(figure.live for section in sections for figure in section.figures)
    page = environment.get_template("report.html").render(
        record=record,
        sections=sections,
        runtime=runtime_html() if live else "",
        devices=sorted({row.device for row in rows}),
        simulated=any(row.simulated for row in rows),
        host_times=sorted({row.host_time for row in rows if row.host_time}),
        folder=folder.name,
    )
    write_atomically(folder / "report.html", page.encode())


def _section(folder: Path, entry: CellRecord, rows: list[Row]) -> Section:
    own = [row for row in rows if row.cell == entry.cell]
    figures = sorted((folder / "figures").glob(f"{entry.cell}.*.png"), key=lambda path: path.stat().st_mtime_ns)
    traces = sorted((folder / "traces").glob(f"{entry.cell}.*.json.gz"), key=lambda path: path.stat().st_mtime_ns)
    return Section(
        record=entry,
        figures=[_figure(path) for path in figures],
        runs=[row for row in own if row.step_us_median is not None],
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


def number(value: Any) -> str:
    """A number as a table shows it: three significant digits or the whole part, a dash for what was not measured."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"

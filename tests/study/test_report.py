"""The report holds everything it shows, and nothing that a file contains becomes markup."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from penaltylab.params import Params
from penaltylab.study.pages import number
from penaltylab.study.records import CellRecord, Record, Row, append_row
from penaltylab.study.report import write_report

PROVENANCE = {
    "cpu": "a cpu",
    "cpus": 2,
    "system": "Linux",
    "python": "3.11",
    "packages": {"torch": "2"},
    "git": None,
    "gpus": [],
}


def record(**changes: Any) -> Record:
    entry = {
        "cell": "cell",
        "notebook": "cell.ipynb",
        "status": "ok",
        "reason": None,
        "arguments": {"params": {"steps": 16}},
    }
    notebooks = [CellRecord(params={}, params_hash="0", **entry | changes)]
    return Record(
        penaltylab="0", started="then", status="ok", reason=None, given={}, notebooks=notebooks, provenance=PROVENANCE
    )


def page(folder: Path, record: Record) -> str:
    write_report(folder, record)
    return (folder / "report.html").read_text()


def add_row(folder: Path, simulated: bool = True, **measured: Any) -> None:
    params = Params.of()
    device = "SIMULATED h100" if simulated else "H100"
    row = Row(
        cell="cell",
        arm="an arm",
        params=params.asdict(),
        params_hash=params.hash(),
        device=device,
        simulated=simulated,
        host_time="modelled" if simulated else None,
        **measured,
    )
    append_row(folder, row)


def add_figure(folder: Path, caption: str) -> None:
    (folder / "figures").mkdir()
    Figure(figsize=(1, 1)).savefig(folder / "figures" / "cell.a.png", metadata={"Description": caption})


def test_numbers_figures_and_traces_are_in_it(tmp_path: Path) -> None:
    add_row(tmp_path, step_us_median=2775.4, wait_us_median={"copy": 2415.0}, hazards=0)
    add_figure(tmp_path, "where the host stalls — µs")
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "cell.one.json.gz").touch()
    text = page(tmp_path, record())
    for shown in (
        "an arm",
        "2,775",
        "2,415",
        "steps=16",
        "where the host stalls — µs",
        'href="traces/cell.one.json.gz"',
    ):
        assert shown in text


def test_it_needs_no_network_and_runs_no_script(tmp_path: Path) -> None:
    add_row(tmp_path, step_us_median=1.0)
    add_figure(tmp_path, "a")
    text = page(tmp_path, record())
    assert not re.search(r"<script|<link|(?:src|href)=\"(?:https?:)?//", text)
    assert 'src="data:image/png;base64,' in text


def test_a_simulated_number_says_so_at_the_top_and_at_its_table(tmp_path: Path) -> None:
    add_row(tmp_path, step_us_median=1.0)
    add_row(tmp_path, metrics={"8 B, us": 1.0})
    text = page(tmp_path, record())
    assert "<b>SIMULATED.</b>" in text
    assert text.count('<span class="tag">SIMULATED h100</span>') == 2


def test_a_measured_run_does_not(tmp_path: Path) -> None:
    add_row(tmp_path, simulated=False, step_us_median=1.0)
    assert "SIMULATED" not in page(tmp_path, record())


def test_a_failed_notebook_shows_its_reason_and_what_it_had_measured(tmp_path: Path) -> None:
    add_row(tmp_path, step_us_median=4321.0)
    text = page(tmp_path, record(status="failed", reason="the kernel died"))
    assert "the kernel died" in text
    assert "4,321" in text


@pytest.mark.parametrize("where", ["reason", "cell", "arguments"])
def test_markup_in_a_value_stays_text(tmp_path: Path, where: str) -> None:
    evil = "<img src=x onerror=alert(1)>"
    changes = {"reason": evil, "status": "failed", "cell": "cell", "arguments": {}}
    if where != "reason":
        changes |= {where: {"params": {"a": evil}} if where == "arguments" else evil}
    add_figure(tmp_path, evil)
    assert "<img src=x" not in page(tmp_path, record(**changes))


def test_a_run_without_results_has_a_report_too(tmp_path: Path) -> None:
    assert "nothing was measured" in page(tmp_path, record(status="interrupted", reason="not started"))


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (math.nan, "–"), (0.0, "0"), (1.234, "1.23"), (99.96, "100"), (2775.4, "2,775"), (-0.5, "-0.5")],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number(value) == text

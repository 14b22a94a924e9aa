"""The example that readers without a machine see: made by `make example`, and current with the code that makes it."""

import math
import os
import re
from pathlib import Path

import msgspec
import pytest

from penaltylab.engine.run import decode
from penaltylab.params import Params
from penaltylab.study.records import Row, read_rows

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "data" / "example"
STALE = "data/example is not what the code makes: run `make example`"


def rows() -> list[Row]:
    """The rows that a decode of ours made; those of released sglang need its wheel."""
    return [row for row in read_rows(EXAMPLE) if row.step_us_median is not None and " sglang " not in row.arm]


def some_rows() -> list[Row]:
    """All rows of the decode timelines, and a part of the many of the gain map."""
    return [row for index, row in enumerate(rows()) if index % 8 == 0 or row.cell.startswith("02")]


def test_it_has_the_page_and_every_picture_of_the_readme():
    pictures = re.findall(r"\]\((data/example/[^)]+)\)", (ROOT / "README.md").read_text())
    assert pictures
    for name in [*pictures, "data/example/report.html"]:
        assert (ROOT / name).stat().st_size < 5_000_000, name


def test_it_says_that_its_numbers_are_simulated():
    assert all(row.simulated for row in rows())
    assert "SIMULATED" in (EXAMPLE / "report.html").read_text()


@pytest.mark.parametrize("row", some_rows(), ids=lambda row: f"{row.cell} {row.arm}")
def test_its_numbers_are_those_of_this_code(row):
    run = decode(**msgspec.to_builtins(Params.of(**{**row.params, "device": "emu"}).asdict()))
    for name in ("step_us", "cumulate_us", "stall_us"):
        kept = getattr(row, f"{name}_median")
        assert math.isclose(run.median(name), kept, rel_tol=1e-6, abs_tol=1e-6), STALE
    assert len(run.hazards) == row.hazards, STALE


NUMBER = r" ([\d,]+) \|"
README_ROW = re.compile(rf"^\| (0\.5\.\d+) \| (normal|eagle) \|{3 * NUMBER} 0\.0 % \|$", re.MULTILINE)


@pytest.mark.parametrize("cells", README_ROW.findall((ROOT / "README.md").read_text()), ids=lambda cells: cells[:2])
def test_the_table_of_the_readme_is_what_the_command_prints(cells):
    """Ours with the settings of the release, which differs from the release itself by 0.0 % (tests/upstream)."""
    version, path, *numbers = cells
    run = decode(path=path, revision=f"sglang-{version}", device="emu")
    measured = [run.median(name) for name in ("step_us", "cumulate_us", "stall_us")]
    assert [f"{value:,.0f}" for value in measured] == numbers


def test_it_names_no_folder_of_the_machine_that_made_it():
    page = (EXAMPLE / "report.html").read_text()
    assert str(Path.home()) not in page or str(Path.home()) == os.sep
    assert str(ROOT) not in page

"""The notebooks are thin: they say what is measured and why, and the library does it."""

import ast
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from penaltylab.params import Params
from penaltylab.resources import notebooks_path
from penaltylab.study.notebooks import read

PATHS = sorted(notebooks_path().glob("*.ipynb"))
TIMING = ("times(", "step_times", "timelines(", "plot(")
CORRECTNESS = ("same_values", "same_tokens", "equal", "check")

pytestmark = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def cells(path: Path, kind: str = "code") -> list[NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def test_it_is_valid(path: Path) -> None:
    nbformat.validate(nbformat.read(path, as_version=4))


def test_a_cell_has_at_most_six_lines_and_defines_nothing(path: Path) -> None:
    for cell in cells(path):
        assert len(cell.source.splitlines()) <= 6, cell.source
        defined = [
            node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.FunctionDef | ast.ClassDef)
        ]
        assert defined == [], cell.source


def test_it_is_committed_without_outputs(path: Path) -> None:
    for cell in cells(path):
        assert (cell.outputs, cell.execution_count) == ([], None), cell.source


def test_it_runs_on_the_kernel_of_its_environment_and_has_no_widgets(path: Path) -> None:
    metadata = nbformat.read(path, as_version=4).metadata
    assert metadata.kernelspec.name == "python3"
    assert "widgets" not in metadata
    assert "papermill" not in metadata


def test_one_cell_holds_the_parameters_and_each_is_valid(path: Path) -> None:
    tagged = [cell for cell in cells(path) if "parameters" in cell.metadata.get("tags", [])]
    assert tagged == cells(path)[:1]
    notebook = read(path)
    Params.of(**notebook.params)
    assert notebook.options["out_dir"] is None
    assert notebook.options["cell"] == path.stem


def test_it_opens_with_its_question_and_its_number(path: Path) -> None:
    title = cells(path, "markdown")[0].source.splitlines()[0]
    assert title.startswith(f"# {int(path.stem.split('_')[0])}. ")


def test_what_is_timed_is_shown_to_be_right_before(path: Path) -> None:
    sources = [cell.source for cell in cells(path)]
    timed = [index for index, source in enumerate(sources) if any(word in source for word in TIMING)]
    checked = [index for index, source in enumerate(sources) if any(word in source for word in CORRECTNESS)]
    if timed:
        assert checked
        assert checked[0] < timed[0]

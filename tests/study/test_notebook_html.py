"""An executed notebook as a page: its text, code and figures, and nothing in it that runs."""

import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from penaltylab.study.notebook_html import render, write_notebook_pages

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>"
TABLE = f"<style>td {{ color: red }}</style><table onclick='x()'><tr><td colspan='2'>2,767 {EVIL}</td></tr></table>"


def page(*cells: nbformat.NotebookNode) -> str:
    return render("book", list(cells))


def code(source: str, kind: str, data: str) -> nbformat.NotebookNode:
    return new_code_cell(source, outputs=[new_output("execute_result", data={kind: data, "text/plain": "a text"})])


def test_text_code_tables_and_figures_are_on_it() -> None:
    shown = page(
        new_markdown_cell("# 3. Where?\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
        code("study.plot()", "image/png", "iVBORw0KGgo="),
        code("table", "text/html", TABLE),
    )
    assert "<h1>3. Where?</h1>" in shown
    assert "<td>1</td>" in shown
    assert "study.plot()" in shown
    assert 'src="data:image/png;base64,iVBORw0KGgo="' in shown
    assert '<td colspan="2">2,767' in shown


def test_nothing_on_it_runs_or_comes_from_elsewhere() -> None:
    shown = page(
        new_markdown_cell(f"{EVIL} [link](javascript:alert(1))"),
        code(f"print('{EVIL}')", "text/html", TABLE),
        code("x", "text/plain", EVIL),
        code("y", "image/png", '"><script>alert(1)</script>'),
        new_code_cell("z", outputs=[new_output("error", ename=EVIL, evalue=EVIL, traceback=[])]),
        new_code_cell("s", outputs=[new_output("stream", text=EVIL)]),
    )
    assert not re.search(r"<script|<img src=x|<[^>]*\son\w+=|href=\"javascript|https?://", shown)
    assert "color: red" not in shown


def test_every_executed_notebook_gets_one_and_a_torn_one_none(tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    nbformat.write(new_notebook(cells=[new_markdown_cell("# 1")]), folder / "whole.ipynb")
    (folder / "torn.ipynb").write_text('{"cells": [')
    write_notebook_pages(tmp_path)
    assert [path.name for path in folder.glob("*.html")] == ["whole.html"]

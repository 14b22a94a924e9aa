"""The script of the timeline: one module of many, in the colours of the PNG."""

import re

import pytest

from penaltylab.traces import timeline as png
from penaltylab.widgets import scene
from penaltylab.widgets.assets import STATIC, script, style
from penaltylab.widgets.slices import COLUMNS, VERSION

MODULES = sorted(STATIC.glob("*.js"))
TYPED_ARRAYS = {"<f8": "Float64Array", "<f4": "Float32Array", "<u4": "Uint32Array", "<u1": "Uint8Array"}


@pytest.mark.parametrize("entry", ["widget.js", "page.js"])
def test_an_entry_comes_behind_all_it_imports_and_imports_nothing_itself(entry: str) -> None:
    joined = script(entry)
    order = re.findall(r"^// --- (\w+\.js)$", joined, re.MULTILINE)
    assert order[-1] == entry
    assert len(order) == len(set(order)) == len(MODULES) - 1
    for name in order:
        for needed in re.findall(r'from "\./(\w+\.js)"', (STATIC / name).read_text()):
            assert order.index(needed) < order.index(name)
    assert not re.search(r"^\s*import\b|^export (?!default \{ render \})", joined, re.MULTILINE)
    assert "fetch(" not in joined
    assert "innerHTML" not in joined


def test_names_at_the_top_of_modules_are_distinct_for_they_share_a_scope() -> None:
    for entry in ("widget.js", "page.js"):
        names = re.findall(r"^(?:const|let|class|(?:async )?function) (\w+)", script(entry), re.MULTILINE)
        assert len(names) == len(set(names)) > 30


def test_script_and_style_fit_in_a_page_of_any_encoding_and_cannot_end_their_element() -> None:
    for text in (script("widget.js"), script("page.js"), style()):
        assert text.isascii()
        assert "</" not in text.replace('"</', "")
    assert len(script("widget.js")) < 60_000


def test_modules_fit_on_a_few_screens() -> None:
    lines = {path.name: len(path.read_text().splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if not 20 <= count <= 250} == {}


def test_the_page_reads_the_columns_that_are_written() -> None:
    text = (STATIC / "scene.js").read_text()
    assert re.findall(r'\["(\w+)", (\w+)\]', text) == [(name, TYPED_ARRAYS[kind]) for name, kind in COLUMNS]
    assert f"const VERSION = {VERSION};" in text


def test_sorts_and_colours_are_those_of_the_figure() -> None:
    text = (STATIC / "palette.js").read_text()
    for name, number in re.findall(r"([A-Z0-9]+): (\d+)", text):
        assert getattr(scene, name) == int(number)
    for sort, look in png._STYLES.items():
        name = next(
            name for name in ("RUNNING", "STALL", "WAIT", "KERNEL", "H2D", "D2H") if getattr(scene, name) == sort
        )
        colour = {"white": "#ffffff"}.get(look["facecolor"], look["facecolor"])
        assert f'[SORT.{name}]: {{ fill: "{colour}"' in text

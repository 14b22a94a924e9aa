"""Upstream's history as relations: each change removes the stall of its own path, and never a token."""

from pathlib import Path

import pytest
from pandas import DataFrame

from penaltylab.errors import InputError
from penaltylab.study import history
from penaltylab.study.collect import Collector
from penaltylab.study.records import read_rows

REVISIONS = ["28397", "28491", "28500"]
SMALL = {"device": "emu", "steps": 16, "warmup": 6, "batch_size": 4, "vocab_size": 256, "forward_ms": 2.5}


@pytest.fixture
def study(tmp_path: Path) -> Collector:
    return Collector(str(tmp_path), "history", **SMALL)


def test_the_revisions_give_the_same_tokens(study: Collector) -> None:
    table = history.same_tokens(study, REVISIONS)
    assert table["same"].all()
    assert len(table) == 2 * len(REVISIONS)
    assert (table["tokens"] > 0).all()


def stalls(table: DataFrame) -> list[bool]:
    """Per revision: whether the host stalls for most of a forward."""
    return [bool(stall > 0.75 * 2500) for stall in table["stall"]]


def test_28491_ends_the_stall_of_the_normal_path(study: Collector) -> None:
    table = history.step_times(study, "normal", REVISIONS)
    assert stalls(table) == [True, False, False]
    assert table["step"]["28491"] < table["step"]["28397"]


def test_28500_ends_the_stall_of_the_speculative_path_and_the_waits_are_in_series(study: Collector) -> None:
    table = history.step_times(study, "eagle", REVISIONS)
    assert stalls(table) == [True, True, False]
    gained = table["step"]["28491"] - table["step"]["28500"]
    assert 0 < gained < 0.25 * (table["stall"]["28491"] - table["stall"]["28500"])


def test_each_run_is_kept(study: Collector, tmp_path: Path) -> None:
    history.step_times(study, "normal", REVISIONS)
    assert [row.arm for row in read_rows(tmp_path)] == ["normal 28397", "normal 28491", "normal 28500"]


def test_a_timeline_leaves_its_traces_and_its_figure(study: Collector, tmp_path: Path) -> None:
    history.timelines(study, "normal", ["28397", "28500"])
    names = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert names == ["history.normal-28397.json.gz", "history.normal-28500.json.gz"]
    assert (tmp_path / "figures" / "history.normal-timelines.png").stat().st_size > 10_000


def test_releases_that_cannot_be_fetched_are_a_word_in_the_table(
    study: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(versions: list[str], **given: object) -> None:
        raise InputError("sglang 0.5.13 cannot be fetched")

    monkeypatch.setattr("penaltylab.upstream.compare", unreachable)
    assert "cannot be fetched" in history.released(study, ["0.5.13"]).iloc[0, 0]


@pytest.mark.network
def test_released_code_stands_beside_ours(study: Collector, tmp_path: Path) -> None:
    table = history.released(study, ["0.5.13", "0.5.14"])
    if "not run here" in table:
        pytest.skip(table.iloc[0, 0])
    assert (table.loc["0.5.13"]["stall"] > 0.75 * 2500).all()
    assert (table.loc["0.5.14"]["stall"] < 25).all()
    assert table["tokens_equal"].all()
    assert len(list(read_rows(tmp_path))) == 8

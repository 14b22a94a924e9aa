"""The gain map as relations: under the bound everywhere, large behind the coarse barrier, none where nothing waits."""

from pathlib import Path

import pandas as pd
import pytest

from penaltylab.study import gain_map
from penaltylab.study.collect import Collector
from penaltylab.study.records import read_rows

SMALL = {"device": "emu", "vocab_size": 64}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("map")


@pytest.fixture(scope="module")
def study(folder: Path) -> Collector:
    return Collector(str(folder), "map", **SMALL)


@pytest.fixture(scope="module")
def table(study: Collector) -> pd.DataFrame:
    return gain_map.step_times(study)


def gains(table: pd.DataFrame, path: str, barrier: str) -> pd.Series:
    return table.xs((path, barrier), level=("path", "barrier"))["gain %"]


def test_the_strategies_give_the_same_tokens(study: Collector) -> None:
    assert gain_map.same_tokens(study)["same"].all()


def test_no_cell_gains_more_than_its_bound(table: pd.DataFrame) -> None:
    assert (table["gain %"] <= table["bound %"] + 1).all()
    assert (table["bound %"] <= 100).all()


@pytest.mark.parametrize("path", gain_map.PATHS)
def test_every_cell_behind_the_coarse_barrier_gains(table: pd.DataFrame, path: str) -> None:
    assert (gains(table, path, "coarse") > gain_map.NO_GAIN).all()


def test_the_gain_shrinks_as_the_forward_grows(table: pd.DataFrame) -> None:
    found = gains(table, "normal", "coarse").xs((1, "pinned_async"), level=("batch", "strategy"))
    assert found.is_monotonic_decreasing


@pytest.mark.parametrize(("path", "barrier"), [("normal", "read_done"), ("normal", "none"), ("eagle", "none")])
def test_where_the_copy_waits_for_nothing_there_is_no_gain(table: pd.DataFrame, path: str, barrier: str) -> None:
    assert (gains(table, path, barrier).abs() < gain_map.NO_GAIN).all()


def test_the_summary_says_nowhere_where_there_is_none(study: Collector, table: pd.DataFrame) -> None:
    found = gain_map.summary(study, table)
    assert found.loc[("normal", "read_done"), "at"] == "nowhere"
    assert found.loc[("normal", "coarse"), "at"].startswith("batch")
    assert "SIMULATED" in str(found.columns.name)


def test_the_figure_and_every_run_are_kept(study: Collector, table: pd.DataFrame, folder: Path) -> None:
    gain_map.plot(study, table)
    assert (folder / "figures" / "map.gain-map.png").stat().st_size > 10_000
    assert len(list(read_rows(folder))) >= len(table) / 2 * 3


def test_acceptance_makes_more_tokens_of_the_same_round(study: Collector) -> None:
    found = gain_map.acceptance(study)
    assert found["tokens a round"].is_monotonic_increasing
    assert found["step"].nunique() == 1

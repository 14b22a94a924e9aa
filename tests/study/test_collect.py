"""A collector leaves a row for each run, a trace for each recording and a PNG for each figure, or shows them only."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import penaltylab as pl
from penaltylab.errors import InputError
from penaltylab.study.collect import Collector
from penaltylab.study.measure import CONTROL
from penaltylab.study.metrics import median
from penaltylab.study.records import read_rows
from penaltylab.study.stats import MIN_PAIRS

SMALL = {"device": "emu", "steps": 12, "warmup": 4, "batch_size": 2, "vocab_size": 64}


def test_a_run_leaves_the_medians_after_warm_up(tmp_path: Path) -> None:
    run = Collector(str(tmp_path), "cell", **SMALL).decode("blocking", h2d="blocking")
    (row,) = read_rows(tmp_path)
    assert (row.cell, row.arm, row.simulated, row.host_time, row.status) == ("cell", "blocking", True, "modelled", "ok")
    assert row.params == pl.Params.of(**SMALL, h2d="blocking").asdict()
    assert row.params_hash == run.params.hash()
    assert row.step_us_median == np.median(run.step_us[4:])
    assert row.stall_us_median == np.median(run.stall_us[4:]) > 0
    assert row.wait_us_median["result"] == np.median(run.wait_us["result"][4:])
    assert row.step_us_p10 <= row.step_us_median <= row.step_us_p90 <= row.step_us_p99
    assert row.prepare_us_median > row.cumulate_us_median
    assert row.bubble_us_median == np.median(run.bubble_us[4:])
    assert (row.copies_per_step, row.syncs_per_step) == (run.copies[4:].mean(), run.syncs[4:].mean())
    assert row.peak_memory_bytes is None
    assert row.hazards == 0
    assert "SIMULATED" in row.device


def test_modelled_arms_run_once_and_measured_ones_in_rounds_with_a_control(tmp_path: Path) -> None:
    arms = {"blocking": {"h2d": "blocking"}, "pinned": {"h2d": "pinned_async"}}
    runs, measurement = Collector(str(tmp_path), "cell", **SMALL).compare(arms)
    assert {arm: len(found) for arm, found in runs.items()} == {"blocking": 1, "pinned": 1, CONTROL: 0}
    assert measurement.control is None
    assert [(row.arm, row.pair) for row in read_rows(tmp_path)] == [("blocking", None), ("pinned", None)]

    study = Collector(str(tmp_path), "cell", **SMALL, host_time="measured")
    runs, measurement = study.compare(arms)
    assert {len(found) for found in runs.values()} == {MIN_PAIRS}
    assert measurement.control
    rows = [row for row in read_rows(tmp_path) if row.pair is not None]
    assert len(rows) == 3 * MIN_PAIRS
    assert {row.pair for row in rows} == set(range(MIN_PAIRS))
    assert ("CONTROL" in study.label) == (measurement.control.verdict != "no difference")


def test_what_was_measured_elsewhere_leaves_a_row_too(tmp_path: Path) -> None:
    study = Collector(str(tmp_path), "cell", **SMALL)
    study.keep("8 bytes", study.params, metrics={"call, us": 2.0})
    (row,) = read_rows(tmp_path)
    assert (row.arm, row.metrics, row.step_us_median) == ("8 bytes", {"call, us": 2.0}, None)


def test_a_trace_is_named_after_the_notebook_and_the_arm(tmp_path: Path) -> None:
    trace = Collector(str(tmp_path), "cell", **SMALL).record("eagle: 28500", path="eagle")
    assert Path(trace) == tmp_path / "traces" / "cell.eagle__28500.json.gz"
    assert pl.read_trace(trace).simulated


def test_a_figure_is_a_png_that_carries_its_caption(tmp_path: Path) -> None:
    shown = Collector(str(tmp_path), "cell", **SMALL).figure("a b", Figure(), "what it shows, in µs")
    path = tmp_path / "figures" / "cell.a_b.png"
    assert path.read_bytes() == shown.data
    with Image.open(path) as image:
        assert image.info["Description"] == "what it shows, in µs"


def test_without_a_folder_everything_is_shown_and_nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = Collector(**SMALL)
    assert study.decode("a").step_us.shape == (12,)
    assert study.figure("a", Figure(), "b").data.startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == []


def test_changes_go_over_the_notebooks_parameters() -> None:
    study = Collector(None, "cell", **SMALL)
    assert study.with_changes(steps=20, path="eagle") == SMALL | {"steps": 20, "path": "eagle"}
    with pytest.raises(InputError, match="stepz"):
        study.decode("a", stepz=1)


def test_the_median_of_nothing_and_of_an_unknown_is_nan() -> None:
    assert np.isnan([median([]), median([1.0, float("nan")])]).all()
    assert median([3.0, 1.0, 2.0]) == 2.0

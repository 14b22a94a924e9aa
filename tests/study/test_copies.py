"""Which copies block, as relations between call times on the emulated device."""

import pytest
from pandas import DataFrame

from penaltylab.study import copies
from penaltylab.study.collect import Collector

FORWARD_US = 2500.0


@pytest.fixture(scope="module")
def study() -> Collector:
    return Collector(None, "copies", device="emu", forward_ms=FORWARD_US / 1e3)


@pytest.fixture(scope="module")
def times(study: Collector) -> DataFrame:
    return copies.call_times(study)


def test_every_way_brings_the_same_values(study: Collector) -> None:
    assert copies.same_values(study)["same values"].all()


def test_a_copy_that_synchronizes_waits_for_the_stream_at_every_size(times: DataFrame) -> None:
    for way in ("blocking", "pinned_blocking"):
        assert (times.loc[("busy", way)] > 0.98 * FORWARD_US).all()
        assert (times.loc[("idle", way)]["8 B"] < 0.01 * FORWARD_US).all()


def test_pinned_and_non_blocking_never_waits(times: DataFrame) -> None:
    assert (times.loc[("busy", "pinned_async")] < 0.01 * FORWARD_US).all()


def test_pageable_and_non_blocking_waits_only_past_what_the_driver_stages(times: DataFrame) -> None:
    busy = times.loc[("busy", "pageable_async")]
    assert (busy[["8 B", "64 B", "512 B", "4 KiB", "32 KiB"]] < 0.01 * FORWARD_US).all()
    assert busy["16 MiB"] > FORWARD_US


def test_the_table_says_on_what_it_was_measured(times: DataFrame) -> None:
    assert "SIMULATED" in times.columns.name


def test_the_figure_is_a_png(study: Collector, times: DataFrame) -> None:
    assert copies.plot(study, times).data.startswith(b"\x89PNG")


@pytest.mark.parametrize(("size", "text"), [(8, "8 B"), (1 << 10, "1 KiB"), (32 << 10, "32 KiB"), (2 << 20, "2 MiB")])
def test_sizes_are_readable(size: int, text: str) -> None:
    assert copies.label(size) == text

"""Tables for notebooks: the folded findings, and SIMULATED over every time that is."""

import io
from typing import Any

import pytest

from penaltylab.traces import tables
from penaltylab.traces.read import read_trace
from penaltylab.traces.trace import Trace

from .build import blocking_copy, call, kernel, note, written

OURS = {"device": {"id": 0, "name": "SIMULATED H100"}, "penaltylab": {"simulated": True}}


def loop(**top: Any) -> Trace:
    events = [
        one
        for k in range(4)
        for one in (note(f"step {k}", 1000 * k, 1000), *blocking_copy(1000 * k + 100, 394, 9 * k + 1))
    ]
    return read_trace(io.BytesIO(written(events, **top)))


def test_places_and_steps_hold_the_folded_figures() -> None:
    (place,) = tables.places(loop()).itertuples(name=None)
    assert place[:5] == ("blocking-h2d", "cudaMemcpyAsync", 4, 400.0, 1600.0)
    (step,) = tables.steps(loop()).itertuples(name=None)
    assert step == ("blocking-h2d", "cudaMemcpyAsync", 4, 400.0, "40.0%")


@pytest.mark.parametrize("table", [tables.places, tables.steps])
def test_a_simulated_time_says_so(table: Any) -> None:
    times = [name for name in table(loop(**OURS)).columns if " us" in name]
    assert times
    assert all("SIMULATED" in name for name in times)
    assert not any("SIMULATED" in name for name in table(loop()).columns)


def test_the_check_shows_the_device_and_every_warning() -> None:
    told = tables.check(read_trace(io.BytesIO(written(call("cudaLaunchKernel", 5, 1, 1)))))["what was read"].tolist()
    assert "NVIDIA H100 80GB HBM3" in told
    assert any("no GPU operations" in str(line) for line in told)


def test_a_trace_without_stalls_gives_empty_tables() -> None:
    trace = read_trace(io.BytesIO(written(kernel("k", 0, 1, 1))))
    assert tables.places(trace).empty
    assert tables.steps(trace).empty

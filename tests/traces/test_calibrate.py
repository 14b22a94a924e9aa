"""Cost models from traces: each value from exactly the events that show it."""

import io
import tomllib
from pathlib import Path
from typing import Any

import pytest

from penaltylab.commands.calibrate import calibrate, cost_model
from penaltylab.errors import InputError
from penaltylab.traces.calibration import calibrate as measure
from penaltylab.traces.read import read_trace
from penaltylab.traces.stalls import analyse

from .build import AMD, NVIDIA, Json, blocking_copy, call, kernel, memcpy, op, written


def values(*events: Json | list[Json], **top: Any) -> dict[str, float]:
    return {one.name: one.value for one in measure(analyse(read_trace(io.BytesIO(written(*events, **top)))))}


def three(make: Any) -> list[Json]:
    """The same thing three times, 10 ms apart: the fewest that count."""
    return [one for k in range(3) for one in make(10_000.0 * k, 100 * k)]


def test_a_launch_on_an_idle_stream_and_the_gap_between_queued_kernels() -> None:
    found = values(
        three(
            lambda at, ids: [
                call("cudaLaunchKernel", at, 4.5, ids),
                kernel("a", at + 6.4, 100, ids),
                call("cudaLaunchKernel", at + 5, 4.5, ids + 1),
                kernel("b", at + 107.6, 50, ids + 1),
                call("cudaLaunchKernel", at + 10, 4.5, ids + 2),
                kernel("c", at + 158.8, 50, ids + 2),
            ]
        )
    )
    assert found["launch_us"] == 4.5
    assert found["kernel_gap_us"] == pytest.approx(1.2)
    assert found["kernel_min_us"] == 50
    assert "launch_to_start_us" not in found, "two launches on an idle stream are too few"


def test_synchronizing_an_idle_device_and_returning_from_a_wait() -> None:
    found = values(
        three(
            lambda at, ids: [
                kernel("a", at, 100, ids),
                call("cudaStreamSynchronize", at + 50, 58, ids + 1),
                call("cudaStreamSynchronize", at + 500, 1.3, ids + 2),
            ]
        )
    )
    assert found["sync_return_us"] == pytest.approx(8)
    assert found["sync_idle_us"] == pytest.approx(1.3)


def test_copies_give_floors_bandwidths_and_what_returns_at_once() -> None:
    found = values(
        three(
            lambda at, ids: [
                op("aten::copy_", at, 10, ids),
                call("cudaMemcpyAsync", at + 1, 4.1, ids),
                memcpy("HtoD (Pageable -> Device)", at + 50, 0.8, ids, size=64),
                call("cudaMemcpyAsync", at + 100, 9, ids + 1),
                memcpy("HtoD (Pinned -> Device)", at + 120, 100, ids + 1, size=2_600_000),
                *blocking_copy(at + 1000, 5000, ids + 2, size=1_110_000),
            ]
        )
    )
    assert (found["copy_min_us"], found["memcpy_call_us"]) == (0.8, 4.1)
    assert found["h2d_bytes_per_us"] == 26_000
    assert found["h2d_pageable_bytes_per_us"] == 555_000
    assert found["pageable_async_max_bytes"] == 1_110_000


def test_what_is_printed_is_a_machine_with_counts_and_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(written([call("cudaLaunchKernel", 100.0 * k, 3.5, k) for k in range(5)], [kernel("k", 7, 2, 0)]))
    assert calibrate(str(path)) == 0
    printed = capsys.readouterr().out
    machine = tomllib.loads(printed)
    assert (machine["device_name"], machine["base"]) == (NVIDIA["name"], "h100")
    assert machine["launch_us"] == {
        "value": 3.5,
        "source": "measured: median of 5 calls of cudaLaunchKernel (mine.json)",
    }
    assert "# h2d_bytes_per_us" in printed
    assert "h2d_bytes_per_us" not in machine


def test_names_from_a_trace_cannot_break_out_of_the_model() -> None:
    hostile = 'GPU"\n[launch_us]\nvalue = 0'
    assert tomllib.loads(cost_model(hostile, hostile, [])).keys() == {"name", "device_name", "base"}


def test_only_a_real_cuda_trace_will_do() -> None:
    for device in (AMD, {"id": 0, "name": "SIMULATED H100"}, None):
        with pytest.raises(InputError, match="needs a real CUDA trace"):
            values(kernel("k", 0, 1, 1), device=device)

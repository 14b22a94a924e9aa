"""Clocks and throttling: what the driver says, in words, and nothing where there is none."""

import subprocess
from typing import Any

import pytest

from penaltylab.study import gpu_state

COLD = {"clock_mhz": 1980.0, "temperature_c": 40.0, "throttled": []}
HOT = {"clock_mhz": 1200.0, "temperature_c": 88.0, "throttled": ["power cap"]}


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0x0, []),
        (0x1, []),
        (0x2, []),
        (0x4, ["power cap"]),
        (0x41, ["thermal slowdown (hardware)"]),
        (0xA8, ["hardware slowdown", "thermal slowdown (software)", "power brake"]),
    ],
)
def test_idling_is_no_throttling(mask: int, words: list[str]) -> None:
    assert gpu_state.reasons(mask) == words


def test_a_run_keeps_both_ends_and_what_throttled_at_either() -> None:
    assert gpu_state.change(COLD, HOT) == {
        "clock_mhz_before": 1980.0,
        "clock_mhz_after": 1200.0,
        "temperature_c_before": 40.0,
        "temperature_c_after": 88.0,
        "throttled": ["power cap"],
    }
    assert gpu_state.change(COLD, {}) == {}


def test_a_device_without_a_driver_has_no_state() -> None:
    assert gpu_state.read("") == {}


@pytest.mark.parametrize(
    ("printed", "state"),
    [
        ("1980, 40, 0x0000000000000000\n", COLD),
        ("1200, 88, 0x0000000000000004\n", HOT),
        ("[N/A], 88, 0x4\n", {}),
        ("", {}),
    ],
)
def test_the_driver_is_read_as_it_prints(printed: str, state: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: subprocess.CompletedProcess(args, 0, printed, ""))
    assert gpu_state._from_nvidia_smi("GPU-1") == state

"""The same programs on a GPU and on the emulated device: the same calls wait, and work ends in the same order."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.emu.order import ENDS, WAITS, observe

WAITING = {
    "item",
    "cpu",
    "tolist",
    "to pageable, non-blocking",
    "tensor",
    "tensor, pinned",
    "pinned, blocking",
    "strided pinned, non-blocking",
    "boolean index",
    "an element set to a number",
    "nonzero",
    "unique",
    "masked_select",
    "repeat_interleave",
    "multinomial",
    "equal",
}


@pytest.fixture(scope="module")
def on_emu() -> dict[str, Any]:
    """In a process of its own: one process uses one device."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.emu.order", "emu"],
        env={**os.environ, "PENALTYLAB_EMU": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_on_emu_the_host_waits_where_the_rules_say(on_emu: dict[str, Any]) -> None:
    assert {name for name, waited in on_emu["waits"].items() if waited} == WAITING
    assert on_emu["waits"].keys() == WAITS.keys()


def test_on_emu_work_ends_in_the_order_that_streams_and_events_say(on_emu: dict[str, Any]) -> None:
    assert on_emu["ends"] == {
        "independent streams": ["short", "long"],
        "wait_stream": ["long", "short"],
        "an event recorded early": ["first", "short", "long"],
        "an event recorded again": ["first", "short", "long"],
        "the host waits": ["long", "short"],
    }
    assert on_emu["ends"].keys() == ENDS.keys()


@pytest.mark.gpu
def test_a_gpu_agrees(on_emu: dict[str, Any]) -> None:
    on_gpu = observe("cuda")
    assert on_gpu["ends"] == on_emu["ends"]
    assert on_gpu["waits"] == on_emu["waits"]

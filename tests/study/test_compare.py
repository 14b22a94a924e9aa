"""Two runs side by side: ratios among equals, predictions beside measurements, a gate that says when it cannot tell."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from penaltylab.commands.compare import compare
from penaltylab.errors import InputError
from penaltylab.params import Params
from penaltylab.study.compare import compare_runs, read_side
from penaltylab.study.measure import CONTROL
from penaltylab.study.metrics import row
from penaltylab.study.records import Record, append_row, write_record

EMU = {"name": "SIMULATED h100", "simulated": True}
GPU = {"name": "NVIDIA H100", "simulated": False}
CELLS = {"h2d=blocking": {"h2d": "blocking"}, "h2d=pinned_async": {"h2d": "pinned_async"}}


def run(
    folder: Path,
    device: dict[str, Any] = EMU,
    host_time: str = "measured",
    scale: float = 1.0,
    spread: float = 0.002,
    runs: int = 20,
    control: float = 1.0,
    **provenance: Any,
) -> str:
    """Leave a run of two cells: step times of 2500 us times `scale` for the second cell, with noise."""
    folder.mkdir()
    noise = random.Random(folder.name)
    write_record(folder, Record(penaltylab="0", started="", given={}, status="ok", provenance=provenance))
    kind = "cuda" if device is GPU else "emu"
    for cell, given in CELLS.items():
        params = Params.of(device=kind, host_time=host_time, **given)
        first = given["h2d"] == "blocking"
        arms = {"run": 1.0 if first else scale} | ({CONTROL: control} if first and host_time == "measured" else {})
        for arm, factor in arms.items():
            for pair in range(runs):
                us = 2500 * factor * noise.gauss(1, spread)
                measured = {"pair": None if host_time == "modelled" else pair, "step_us_median": us}
                append_row(folder, row(cell, arm, params, device, **measured))
    return str(folder)


def test_what_differs_comes_first_and_what_changed_most_on_top(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = run(tmp_path / "a", packages={"torch": "2.12", "numpy": "2"}, cpu="one")
    b = run(tmp_path / "b", scale=1.1, packages={"torch": "2.13", "numpy": "2"}, cpu="other")
    assert compare(a, b, "table", None) == 0
    lines = capsys.readouterr().out.splitlines()
    order = [
        next(i for i, line in enumerate(lines) if text in line) for text in ("cpu", "packages.torch", "pinned_async")
    ]
    assert order == sorted(order)
    assert "2.12" in lines[order[1]]
    assert "numpy" not in "".join(lines)
    assert "slower: +" in lines[order[2]]
    assert "h2d=blocking" in lines[order[2] + 1]


@pytest.mark.parametrize(
    ("scale", "spread", "limit", "status"),
    [(1.10, 0.002, 5, 1), (1.10, 0.002, 15, 0), (1.0, 0.002, 0.5, 0), (1.03, 0.002, 0, 1), (0.9, 0.002, 0, 0)],
)
def test_the_gate(tmp_path: Path, scale: float, spread: float, limit: float, status: int) -> None:
    a, b = run(tmp_path / "a", spread=spread), run(tmp_path / "b", scale=scale, spread=spread)
    if limit == 0 and status == 0:
        with pytest.raises(InputError, match="cannot tell"):  # the other cell is equal, and 0 is inside its interval
            compare(a, b, "table", limit)
    else:
        assert compare(a, b, "table", limit) == status


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"spread": 0.2}, "quieter machine"), ({"runs": 5}, "take at least 20"), ({"control": 1.08}, "the control of")],
)
def test_a_gate_that_cannot_tell_says_why(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    a, b = run(tmp_path / "a", **changes), run(tmp_path / "b", scale=1.05, **changes)
    with pytest.raises(InputError, match=f"cannot tell.*{says}"):
        compare(a, b, "table", 5)


def test_modelled_runs_are_compared_without_an_interval(tmp_path: Path) -> None:
    a = run(tmp_path / "a", host_time="modelled", spread=0, runs=1)
    b = run(tmp_path / "b", host_time="modelled", spread=0, runs=1, scale=1.06)
    found = compare_runs(read_side(Path(a)), read_side(Path(b)))
    assert [entry.comparison.text() for entry in found.entries if entry.comparison] == [
        "slower: +6.0 %",
        "no difference: +0.0 %",
    ]
    assert compare(a, b, "table", 5) == 1
    assert compare(a, b, "table", 7) == 0


def test_a_simulated_and_a_measured_run_make_no_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = run(tmp_path / "a", host_time="modelled", runs=1), run(tmp_path / "b", device=GPU, scale=1.3)
    found = compare_runs(read_side(Path(a)), read_side(Path(b)))
    assert len(found.entries) == 2
    assert all(entry.comparison is None for entry in found.entries)
    assert compare(a, b, "table", None) == 0
    printed = capsys.readouterr().out
    assert "prediction and measurement" in printed
    assert printed.count("SIMULATED h100, modelled host time, B NVIDIA H100: no ratio") == 2
    with pytest.raises(InputError, match=r"cannot tell.*prediction beside a measurement"):
        compare(a, b, "table", 5)


def test_two_clocks_of_the_emulated_device_make_no_ratio_either(tmp_path: Path) -> None:
    a, b = run(tmp_path / "a", host_time="modelled", runs=1), run(tmp_path / "b")
    assert all(entry.comparison is None for entry in compare_runs(read_side(Path(a)), read_side(Path(b))).entries)


def test_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = run(tmp_path / "a", cpu="one"), run(tmp_path / "b", cpu="other", scale=1.1)
    compare(a, b, "json", None)
    found = json.loads(capsys.readouterr().out)
    assert found["differences"] == [{"name": "cpu", "a": "one", "b": "other"}]
    assert [cell["comparison"]["verdict"] for cell in found["cells"]] == ["slower", "no difference"]


def test_markdown_keeps_values_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = run(tmp_path / "a", cpu="<b>|`x`"), run(tmp_path / "b", cpu="other")
    compare(a, b, "markdown", None)
    assert "| cpu | &lt;b>\\|\\`x\\` | other |" in capsys.readouterr().out


def test_runs_without_a_common_cell_are_refused(tmp_path: Path) -> None:
    a, b = run(tmp_path / "a"), tmp_path / "b"
    b.mkdir()
    write_record(b, Record(penaltylab="0", started="", given={}))
    with pytest.raises(InputError, match="no cell in common"):
        compare(a, str(b), "table", None)

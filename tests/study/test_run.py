"""`penaltylab run` for real: what ends well, and everything that can end badly, leaves a true record and no process."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from penaltylab.study.records import read_rows
from tests.study.build import notebook

pytestmark = pytest.mark.slow

PID = "import os, pathlib; pathlib.Path(out_dir, 'pid').write_text(str(os.getpid()))"
MEASURE = """from penaltylab.study.collect import Collector
study = Collector(out_dir, cell, **params)
study.decode('arm').median('step_us')"""
SLEEP = "import time; time.sleep(600)"


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    workers = () if "--workers" in arguments else ("--workers", 1)
    command = [sys.executable, "-m", "penaltylab.cli", "run", *map(str, arguments + workers)]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments: object, cwd: Path) -> tuple[int, str]:
    """The exit status and the standard error of a run that ends by itself."""
    process = start(*arguments, cwd=cwd)
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return found


def ends(folder: Path) -> dict[str, tuple[str, str | None]]:
    return {entry["cell"]: (entry["status"], entry["reason"]) for entry in record(folder)["notebooks"]}


def wait_for(path: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def assert_kernel_gone(out: Path, seconds: float = 5) -> None:
    """The kernel that wrote its number to `out` ends within a moment."""
    pid = int((out / "pid").read_text())
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def test_a_run_that_ends_well(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", PID, MEASURE)
    status, errors = run("a.ipynb", "--out", "out", "-p", "steps=20", cwd=tmp_path)
    assert (status, ends(tmp_path / "out")) == (0, {"a": ("ok", None)}), errors
    found = record(tmp_path / "out")
    assert found["status"] == "ok"
    assert found["notebooks"][0]["arguments"]["params"]["steps"] == 20
    (row,) = read_rows(tmp_path / "out")
    assert (row.cell, row.params["steps"], row.params_hash) == ("a", 20, found["notebooks"][0]["params_hash"])
    executed = nbformat.read(tmp_path / "out" / "notebooks" / "a.ipynb", as_version=4)
    assert float(executed.cells[-1].outputs[-1].data["text/plain"]) == row.step_us_median
    assert "20" in (tmp_path / "out" / "report.html").read_text()
    assert_kernel_gone(tmp_path / "out")


def test_a_sweep_runs_each_value_and_workers_run_them_side_by_side(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", MEASURE)
    status, errors = run(
        "a.ipynb", "--out", "out", "--sweep", "h2d=blocking,pinned_async", "--workers", 2, cwd=tmp_path
    )
    assert status == 2
    assert "set by the notebook itself" in errors
    status, _ = run("a.ipynb", "--out", "out", "--sweep", "steps=16,24", "--workers", 2, cwd=tmp_path)
    assert status == 0
    assert sorted((row.cell, row.params["steps"]) for row in read_rows(tmp_path / "out")) == [
        ("a.steps=16", 16),
        ("a.steps=24", 24),
    ]


def test_one_that_fails_keeps_its_rows_and_the_others_go_on(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", MEASURE, "1 / 0", SLEEP)
    notebook(tmp_path / "b.ipynb", MEASURE)
    status, errors = run("a.ipynb", "b.ipynb", "--out", "out", cwd=tmp_path)
    assert status == 1
    assert "Traceback" not in errors
    assert ends(tmp_path / "out") == {"a": ("failed", "cell 4: ZeroDivisionError: division by zero"), "b": ("ok", None)}
    assert record(tmp_path / "out")["status"] == "failed"
    assert [row.cell for row in read_rows(tmp_path / "out")] == ["a", "b"]


def test_a_kernel_that_is_killed(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", PID, "import signal; os.kill(os.getpid(), signal.SIGKILL)")
    status, _ = run("a.ipynb", "--out", "out", cwd=tmp_path)
    assert (status, ends(tmp_path / "out")) == (1, {"a": ("failed", "the kernel died")})


def test_a_notebook_past_its_deadline(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", PID, MEASURE, SLEEP)
    status, _ = run("a.ipynb", "--out", "out", "--deadline", 12, cwd=tmp_path)
    assert (status, ends(tmp_path / "out")) == (1, {"a": ("failed", "not done within its deadline of 12 s")})
    assert len(list(read_rows(tmp_path / "out"))) == 1
    assert_kernel_gone(tmp_path / "out")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    notebook(tmp_path / "a.ipynb", MEASURE)
    notebook(tmp_path / "b.ipynb", PID, SLEEP)
    notebook(tmp_path / "c.ipynb", MEASURE)
    process = start("a.ipynb", "b.ipynb", "c.ipynb", "--out", "out", cwd=tmp_path)
    wait_for(tmp_path / "out" / "pid")
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert ends(tmp_path / "out") == {
        "a": ("ok", None),
        "b": ("interrupted", f"stopped by {number.name}"),
        "c": ("interrupted", "not started"),
    }
    assert record(tmp_path / "out")["status"] == "interrupted"
    assert [row.cell for row in read_rows(tmp_path / "out")] == ["a"]
    nbformat.read(tmp_path / "out" / "notebooks" / "b.ipynb", as_version=4)
    assert_kernel_gone(tmp_path / "out")


def test_a_driver_that_is_killed_leaves_no_kernel_and_a_record_that_says_so(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", PID, SLEEP)
    process = start("a.ipynb", "--out", "out", cwd=tmp_path)
    wait_for(tmp_path / "out" / "pid")
    process.kill()
    process.communicate(timeout=30)
    assert_kernel_gone(tmp_path / "out")
    assert record(tmp_path / "out")["status"] == "interrupted"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting a small file system takes root")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("this machine mounts no tmpfs")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_fills_up(tmp_path: Path, small_disk: Path) -> None:
    notebook(tmp_path / "a.ipynb", "open(out_dir + '/big', 'wb').write(b'0' * (64 << 20))")
    status, errors = run("a.ipynb", "--out", small_disk / "out", cwd=tmp_path)
    assert status == 2
    assert "o space left on" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert record(small_disk / "out")["status"] == "failed"


def test_a_disk_that_is_full_before(tmp_path: Path, small_disk: Path) -> None:
    (small_disk / "big").write_bytes(b"0" * (20 << 20))
    notebook(tmp_path / "a.ipynb", MEASURE)
    status, errors = run("a.ipynb", "--out", small_disk / "out", cwd=tmp_path)
    assert status == 2
    assert "MiB free" in errors
    assert len(errors.splitlines()) == 1


def test_the_notebooks_that_ship_run_quickly(tmp_path: Path) -> None:
    status, errors = run("01", "02", "--quick", "--device", "auto", "--out", "out", cwd=tmp_path)
    assert status == 0, errors
    out = tmp_path / "out"
    assert {row.cell for row in read_rows(out)} == {"01_which_copies_block", "02_decode_timelines"}
    assert len(list((out / "traces").glob("*.json.gz"))) == 6
    assert len(list((out / "figures").glob("*.png"))) == 3
    assert not list((out / "notebooks").glob("*.log")), "the kernels printed something"


def test_a_run_of_notebooks_is_resumed_where_it_stopped(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", PID, MEASURE)
    notebook(tmp_path / "b.ipynb", MEASURE, "import pathlib; assert pathlib.Path(out_dir, 'go').exists()")
    assert run("a.ipynb", "b.ipynb", "--out", "out", cwd=tmp_path)[0] == 1
    kernel = (tmp_path / "out" / "pid").read_text()
    (tmp_path / "out" / "go").touch()
    status, errors = run("a.ipynb", "b.ipynb", "--out", "out", "--resume", cwd=tmp_path)
    assert status == 0, errors
    assert (tmp_path / "out" / "pid").read_text() == kernel, "what was done was run again"
    assert sorted(row.cell for row in read_rows(tmp_path / "out")) == ["a", "b"]
    assert set(ends(tmp_path / "out").values()) == {("ok", None)}


def test_a_notebook_that_was_edited_is_run_again_when_resumed(tmp_path: Path) -> None:
    notebook(tmp_path / "a.ipynb", MEASURE)
    assert run("a.ipynb", "--out", "out", cwd=tmp_path)[0] == 0
    notebook(tmp_path / "a.ipynb", MEASURE, "study.decode('other')")
    assert run("a.ipynb", "--out", "out", "--resume", cwd=tmp_path)[0] == 0
    assert [row.arm for row in read_rows(tmp_path / "out")] == ["arm", "other"]

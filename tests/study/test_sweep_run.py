"""`penaltylab run --sweep` for real: rows and records, workers that die, a run killed at any moment and resumed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penaltylab.study.measure import CONTROL
from penaltylab.study.records import Row, read_record, read_rows
from penaltylab.study.stats import MIN_PAIRS
from tests.test_project import ROOT

pytestmark = pytest.mark.slow

SMALL = ["-p", "warmup=4", "-p", "batch_size=2", "-p", "vocab_size=64", "--device", "emu"]
KILLS = 20
PATHS = ("normal", "eagle")


@pytest.fixture(autouse=True)
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the package to run: editing the sources while the tests run must not change the setting of results."""
    for name in ("penaltylab", "data"):
        shutil.copytree(ROOT / name, tmp_path / "frozen" / name)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "frozen"))
    monkeypatch.chdir(tmp_path / "frozen")


def start(out: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    steps = [] if any("steps=" in text for text in arguments) else ["-p", "steps=12"]
    command = [sys.executable, "-m", "penaltylab.cli", "run", "--out", str(out), *SMALL, *steps, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )


def run(out: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """The exit status of a run that ends by itself, and what it said."""
    process = start(out, *arguments, **environment)
    _, errors = process.communicate(timeout=120)
    assert "Traceback" not in errors
    return process.returncode, errors


def seeds(count: int) -> list[str]:
    return ["--sweep", f"seed={','.join(map(str, range(count)))}"]


def comparable(out: Path) -> list[dict[str, Any]]:
    """The rows of a sweep in modelled time, in one order: runs are deterministic, so all of it can be compared."""
    lines = (out / "results.jsonl").read_text().splitlines()
    return sorted(map(json.loads, lines), key=lambda found: (found["cell"], found["arm"]))


def wait_until_rows(out: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    path = out / "results.jsonl"
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def workers(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    return psutil.Process(process.pid).children()


def test_a_sweep_leaves_a_row_a_cell_a_record_and_traces(tmp_path: Path) -> None:
    out = tmp_path / "out"
    status, said = run(out, *seeds(3), "--sweep", "path=all", "--traces")
    assert status == 0, said
    assert "6 cells, 6 runs to do" in said
    rows = list(read_rows(out))
    assert {found.cell for found in rows} == {f"seed={seed},path={path}" for seed in range(3) for path in PATHS}
    assert all(found.pair is None and found.status == "ok" and found.step_us_median for found in rows)
    record = read_record(out)
    assert record.sweep
    assert (record.status, record.sweep.measured, record.sweep.failed) == ("ok", 6, 0)
    assert {found.setting for found in rows} == set(record.settings)
    assert "PyTorch built with" in record.provenance["torch"]["flags"]
    assert {path.name for path in (out / "traces").iterdir()} == {f"{found.params_hash}.json.gz" for found in rows}
    assert not (out / "workers.log").exists(), "the workers printed something"


def test_measured_cells_run_in_rounds(tmp_path: Path) -> None:
    status, said = run(tmp_path / "out", *seeds(2), "-p", "host_time=measured")
    assert status == 0, said
    rows = list(read_rows(tmp_path / "out"))
    assert len(rows) == 3 * MIN_PAIRS
    assert [found.arm for found in rows].count(CONTROL) == MIN_PAIRS
    assert [found.pair for found in rows] == [pair for pair in range(MIN_PAIRS) for _ in range(3)]


def test_resuming_runs_what_is_new_and_nothing_twice(tmp_path: Path) -> None:
    run(tmp_path / "out", *seeds(3))
    status, said = run(tmp_path / "out", *seeds(5), "--resume")
    assert status == 0
    assert "2 runs to do" in said
    assert "3 already there" in said
    assert sorted(found.cell for found in read_rows(tmp_path / "out")) == [f"seed={seed}" for seed in range(5)]


def test_a_worker_that_is_killed_costs_its_cell_one_retry(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(out, *seeds(30), "--workers", "1")
    wait_until_rows(out, 3)
    (worker,) = workers(process)
    worker.kill()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert [found.status for found in read_rows(out)] == ["ok"] * 30


def test_a_cell_past_its_deadline_fails_and_the_others_do_not(tmp_path: Path) -> None:
    status, _ = run(tmp_path / "out", "--sweep", "steps=12,1000000", "--deadline", "8", "--workers", "2")
    assert status == 1
    failed = [found for found in read_rows(tmp_path / "out") if found.status != "ok"]
    assert [found.reason for found in failed] == ["not done within 8 s, 2 times"]
    assert "1 of 2 runs failed" in (read_record(tmp_path / "out").reason or "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_told_to_stop_keeps_what_it_has(tmp_path: Path, number: signal.Signals) -> None:
    out = tmp_path / "out"
    process = start(out, *seeds(200))
    wait_until_rows(out, 3)
    alive = workers(process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "Traceback" not in errors
    record = read_record(out)
    assert (record.status, record.reason) == ("interrupted", f"stopped by {number.name}")
    assert 3 <= len(list(read_rows(out))) < 200
    assert not any(worker.is_running() for worker in alive)


def test_twenty_kills_and_resumptions_end_as_an_undisturbed_run(tmp_path: Path) -> None:
    sweep = [*seeds(240), "--workers", "2"]
    assert run(tmp_path / "whole", *sweep)[0] == 0
    moments, out = random.Random(11), tmp_path / "killed"
    interrupted = 0
    for _ in range(KILLS):
        process = start(out, *sweep, *(["--resume"] if (out / "record.json").exists() else []))
        try:
            process.communicate(timeout=moments.uniform(0.3, 3))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)
            interrupted += 1
        if (out / ".lock").exists() and not (out / "record.json").exists():
            shutil.rmtree(out)  # killed before it had begun: nothing to resume
    assert interrupted >= KILLS / 2
    assert run(out, *sweep, "--resume")[0] == 0
    assert comparable(out) == comparable(tmp_path / "whole")
    assert [path.name for path in out.glob(".*") if path.name != ".lock"] == []
    assert read_record(out).status == "ok"


def test_workers_end_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path / "out", *seeds(200))
    wait_until_rows(tmp_path / "out", 3)
    left = workers(process)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(left, timeout=5)
    assert left
    assert alive == []


def test_a_sweep_into_the_folder_of_notebooks_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    record = {"schema": 1, "penaltylab": "0", "started": "", "given": {}, "notebooks": []}
    (out / "record.json").write_text(json.dumps(record))
    status, said = run(out, *seeds(2), "--resume")
    assert (status, len(said.splitlines())) == (2, 1)
    assert "notebooks" in said


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("record.json", b'{"schema": 2}', "schema 2"),
        ("record.json", b'{"sch', "not a record"),
        ("results.jsonl", b'{"schema": 7}\n', "schema 7"),
        ("results.jsonl", b"nonsense\n{}\n", "line 1: not a result"),
    ],
)
def test_what_another_version_or_an_accident_left_is_one_line_and_stays(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    out = tmp_path / "out"
    run(out, *seeds(1))
    (out / name).write_bytes(content)
    status, said = run(out, *seeds(2), "--resume")
    assert (status, len(said.splitlines())) == (2, 1)
    assert says in said
    assert (out / name).read_bytes() == content


HEAD = """
import sys
import ray

context = ray.init(address="local", num_gpus=2, num_cpus=2, include_dashboard=False)
print(context.address_info["address"], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a Ray cluster on this machine that declares two GPUs."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'penaltylab[cluster]'")
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert head.stdout
    address = head.stdout.readline().strip()
    assert address, head.communicate()[1]
    yield address
    head.communicate(timeout=60)


def test_ray_places_each_cell_on_a_gpu_of_its_own_and_brings_all_back(tmp_path: Path, cluster: str) -> None:
    out = tmp_path / "out"
    status, said = run(out, *seeds(8), "--engine", "ray", "--traces", RAY_ADDRESS=cluster)
    assert status == 0, said
    assert "on 2 workers" in said
    rows: list[Row] = list(read_rows(out))
    assert {found.gpu["visible"] for found in rows} == {"0", "1"}
    assert len({found.cell for found in rows}) == len(rows) == 8
    assert len(list((out / "traces").glob("*.json.gz"))) == 8


def test_ray_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'penaltylab[cluster]'")
    status, said = run(tmp_path / "out", *seeds(2), "--engine", "ray", RAY_ADDRESS="127.0.0.1:1")
    assert (status, len(said.splitlines())) == (2, 1)
    assert "no cluster at 127.0.0.1:1" in said

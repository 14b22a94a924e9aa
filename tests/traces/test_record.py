"""Recording: the real profiler, quiet, and a trace file that is whole or absent."""

import gzip
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import record_function

from penaltylab import devices
from penaltylab.errors import InputError
from penaltylab.traces.record import TorchProfiler, record_trace
from penaltylab.traces.write import check_writable, write_trace


def names(document: dict[str, Any]) -> list[str]:
    return [event["name"] for event in document["traceEvents"] if event["ph"] == "X"]


def test_a_profiled_body_is_a_trace_with_our_key(tmp_path: Path) -> None:
    with TorchProfiler() as profiler, record_function("step 1"):
        torch.ones(3) + 1
    profiler.export(tmp_path / "trace.json.gz", {"params": {"h2d": "blocking"}})
    document = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    assert document["penaltylab"] == {"simulated": False, "params": {"h2d": "blocking"}}
    assert {"step 1", "aten::add"} <= set(names(document))


def test_every_thread_has_its_slices() -> None:
    def work() -> None:
        with record_function(threading.current_thread().name):
            torch.ones(3) + 1

    with TorchProfiler() as profiler:
        workers = [threading.Thread(target=work, name=f"worker {i}") for i in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert {"worker 0", "worker 1"} <= set(names(profiler.document()))


def test_an_annotation_with_quotes_does_not_spoil_the_document() -> None:
    with TorchProfiler() as profiler, record_function('say "so"'):
        torch.ones(3) + 1
    assert 'say "so"' in names(profiler.document())


@pytest.mark.parametrize(
    "name", [pytest.param("emu", id="emulated"), pytest.param("cuda", id="cuda", marks=pytest.mark.gpu)]
)
def test_a_recording_returns_what_the_body_does_and_holds_the_devices_rows(tmp_path: Path, name: str) -> None:
    device = devices.resolve(name)
    path = tmp_path / "trace.json.gz"

    def body() -> list[int]:
        ids = torch.tensor([3, 1, 2], device=device)
        return (ids + 1).tolist()

    assert record_trace(body, device, path, {"params_hash": "abc"}) == [4, 2, 3]
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert document["penaltylab"]["params_hash"] == "abc"
    assert document["penaltylab"]["simulated"] is (name == "emu")
    assert {"cuda_runtime", "gpu_memcpy", "kernel"} <= {event.get("cat") for event in document["traceEvents"]}


def test_a_path_that_cannot_be_written_is_refused_before_the_body_runs(tmp_path: Path) -> None:
    ran = []
    with pytest.raises(InputError, match="cannot be written"):
        record_trace(lambda: ran.append(1), devices.resolve("emu"), tmp_path / "absent" / "trace.json")
    assert ran == []


def test_a_body_that_raises_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyError("fails")

    with pytest.raises(KeyError):
        record_trace(fail, devices.resolve("emu"), tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []


def test_kinetos_usdt_lines_are_dropped_and_other_lines_are_not() -> None:
    program = """
import os
from penaltylab.traces.record import TorchProfiler, _without_usdt_lines
with TorchProfiler(): pass
with _without_usdt_lines(): os.write(2, b"USDT:one\\ntwo\\n")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ})
    assert (done.returncode, done.stderr) == (0, "two\n")


def test_a_trace_survives_a_standard_error_that_is_closed() -> None:
    program = "import os; os.close(2); from penaltylab.traces.record import TorchProfiler\nwith TorchProfiler(): pass"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("trace.txt", "ends in"), ("absent/trace.json", "cannot be written"), ("folder.json", "is a folder")],
)
def test_a_path_that_takes_no_trace_is_refused_in_one_line(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(InputError, match=complaint) as refusal:
        check_writable(tmp_path / name)
    assert "\n" not in str(refusal.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here to stand for a full disk")
def test_a_full_disk_is_one_line_and_leaves_the_older_trace(tmp_path: Path) -> None:
    older = tmp_path / "trace.json"
    older.write_text("{}")
    part = tmp_path / f".trace.json.{os.getpid()}.part"
    part.symlink_to("/dev/full")
    with pytest.raises(InputError, match="No space left"):
        write_trace(older, b"[]")
    assert older.read_text() == "{}"
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]


def test_the_same_document_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        write_trace(tmp_path / name, b'{"traceEvents": []}')
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()

"""The command line as a user meets it: real commands, their exit status, and one line for every mistake."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HUNDRED = ",".join(map(str, range(100, 200)))
VERBS = ["run", "compare", "inspect", "upstream", "bench", "view", "calibrate", "doctor"]


MISTAKES = [
    ([], "COMMAND"),
    (["frobnicate"], "frobnicate"),
    (["run", "--frob"], "--frob"),
    (["run", "--workers", "many"], "--workers"),
    (["run", "--workers", "0"], "--workers 0"),
    (["run", "--deadline", "nan"], "--deadline"),
    (["run", "--device", "tpu"], "tpu"),
    (["run", "no-such-notebook"], "01_which_copies_block"),
    (["run", "02", "-p", "steps"], "NAME=VALUE"),
    (["run", "02", "-p", "steps=4", "-p", "steps=5"], "twice"),
    (["run", "02", "-p", "stepz=4"], "steps"),
    (["run", "02", "-p", "steps=many"], "steps='many'"),
    (["run", "02", "-p", "batch_size=0"], "batch_size"),
    (["run", "02", "-p", "path=eagle"], "set by the notebook itself"),
    (["run", "02", "--device", "emu", "-p", "device=emu"], "twice"),
    (["run", "02", "--sweep", "seed="], "seed=''"),
    (["run", "02", "--sweep", "seed=1,1"], "twice"),
    (["run", "02", "--sweep", "seed=1,2", "-p", "seed=3"], "seed"),
    (["run", "--sweep", "seed="], "value missing"),
    (["run", "--sweep", "stepz=1,2"], "stepz"),
    (["run", "--sweep", "seed=1,2", "--workers", "0"], "--workers 0"),
    (["run", "--sweep", "seed=1,2", "--pairs", "0"], "--pairs 0"),
    (["run", "--sweep", "seed=1,2", "--resume"], "--out"),
    (["run", "--sweep", f"seed={HUNDRED}", "--sweep", f"batch_size={HUNDRED}", "--sweep", f"steps={HUNDRED}"], "--yes"),
    (["run", "02", "--engine", "ray"], "--engine ray"),
    (["compare", "a"], "RUN_B"),
    (["compare", "no-such-run", "no-such-run"], "no-such-run"),
    (["inspect"], "TRACE"),
    (["inspect", "no-such-trace.json"], "no-such-trace.json"),
    (["inspect", "x.json", "--format", "xml"], "xml"),
    (["view", "no-such-trace.json"], "no-such-trace.json"),
    (["calibrate", "no-such-trace.json"], "no-such-trace.json"),
    (["bench", "no-such-suite"], "emu"),
    (["upstream"], "VERSION"),
]


def penaltylab(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penaltylab.cli", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def refusal(*arguments: str, cwd: Path | None = None) -> str:
    """The one line that a refused command prints."""
    done = penaltylab(*arguments, cwd=cwd)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("penaltylab: ")
    return done.stderr.removeprefix("penaltylab: ").strip()


def modules_of(*arguments: str) -> set[str]:
    """The top-level modules that a command has imported when it ends."""
    program = (
        "import sys; from penaltylab.cli import run\n"
        "try: run(sys.argv[1:])\nexcept (SystemExit, Exception): pass\n"
        "print('\\nimported', *{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120)
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_help_names_every_command() -> None:
    text = penaltylab("--help").stdout
    assert [verb for verb in VERBS if f"\n    {verb}" not in text] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_explains_itself(verb: str) -> None:
    done = penaltylab(verb, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: penaltylab {verb}")


def test_version() -> None:
    import penaltylab as package

    assert penaltylab("--version").stdout.strip() == f"penaltylab {package.__version__}"


def test_help_comes_at_once_and_needs_the_standard_library_alone() -> None:
    start = time.monotonic()
    penaltylab("--help")
    assert time.monotonic() - start < 2
    assert not modules_of("--help") & {"torch", "numpy", "pandas", "matplotlib", "rich", "papermill", "msgspec"}


def test_inspect_imports_no_torch(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}'
    )
    assert penaltylab("inspect", str(trace)).returncode == 0
    assert not modules_of("inspect", str(trace)) & {"torch", "matplotlib", "papermill"}


@pytest.mark.parametrize(("arguments", "says"), MISTAKES, ids=[" ".join(given) for given, _ in MISTAKES])
def test_a_mistake_is_one_line_and_status_2(arguments: list[str], says: str, tmp_path: Path) -> None:
    assert says in refusal(*arguments, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    assert "cuda" in refusal("run", "02", "--device", "cuda", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    assert "not empty" in refusal("run", "02", "--out", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


@pytest.mark.parametrize("place", ["/dev/null/run", "/proc/run", "/dev/full"])
def test_a_folder_that_cannot_be_written_is_refused(place: str) -> None:
    assert place in refusal("run", "02", "--out", place)


def test_a_reader_that_leaves_early_sees_no_traceback() -> None:
    """As `penaltylab doctor | head -1` does."""
    command = [sys.executable, "-u", "-m", "penaltylab.cli", "doctor"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert done.stderr == ""


@pytest.mark.slow
def test_doctor_finds_that_the_study_can_run_here() -> None:
    done = penaltylab("doctor")
    assert done.returncode == 0, done.stdout
    assert "SIMULATED" in done.stdout

"""The folder of a run is had by one at a time, and everything wrong with it is one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from penaltylab.errors import InputError
from penaltylab.study.folder import LOCK, cannot_write, reserve, run_folder


def test_it_is_made_with_its_places(tmp_path: Path) -> None:
    with run_folder(tmp_path / "a" / "b") as folder:
        assert {entry.name for entry in folder.iterdir()} == {LOCK, "notebooks", "traces", "figures"}


def test_one_that_holds_something_is_refused_without_resume(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match="not empty"), run_folder(tmp_path):
        pass
    with pytest.raises(InputError, match="not the folder of a run"), run_folder(tmp_path, resume=True):
        pass
    (tmp_path / "record.json").touch()
    with run_folder(tmp_path, resume=True):
        pass


def test_resuming_takes_away_what_a_kill_left_half_written(tmp_path: Path) -> None:
    for name in ("record.json", ".record.json.x1", ".results.jsonl.y2", "results.jsonl"):
        (tmp_path / name).touch()
    with run_folder(tmp_path, resume=True):
        assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {LOCK, "record.json", "results.jsonl"}


def test_one_that_another_run_holds_is_refused_until_that_one_ends(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from penaltylab.study.folder import run_folder\n"
        "with run_folder(pathlib.Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout
    holder.stdout.readline()
    with pytest.raises(InputError, match="in use by another run"), run_folder(tmp_path, resume=True):
        pass
    holder.kill()
    holder.communicate()
    (tmp_path / "record.json").touch()
    with run_folder(tmp_path, resume=True):
        pass


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"), run_folder(tmp_path / "file"):
        pass


def test_a_disk_that_fills_up_during_the_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no space left on the disk"), run_folder(tmp_path):
        raise OSError(28, "No space left on device")


def test_a_read_only_folder_is_one_line() -> None:
    assert "Read-only file system" in str(cannot_write(Path("out"), OSError(30, "Read-only file system")))


def test_the_reserve_is_gone_afterwards(tmp_path: Path) -> None:
    with reserve(tmp_path):
        assert (tmp_path / ".reserve").stat().st_size > 1 << 16
    assert list(tmp_path.iterdir()) == []

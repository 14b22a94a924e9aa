"""The sources of a released sglang: its wheel fetched once by pip, checked, and kept in a cache folder."""

import base64
import csv
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

from penaltylab.errors import InputError

KEPT = (
    "sglang/srt/sampling/penaltylib/*.py",
    "sglang/srt/managers/schedule_batch.py",
    "sglang/srt/speculative/eagle*.py",
)
# A wheel of sglang is tagged for one platform, but its Python text is the same in all, so every machine asks for these.
PLATFORMS = tuple(f"manylinux_2_{glibc}_x86_64" for glibc in (39, 35, 34, 31, 28, 17))
PYTHONS = ("3.11", "3.13")
TIMEOUT_S = 600


def cache_folder() -> Path:
    """`$PENALTYLAB_CACHE`, else `penaltylab` under `$XDG_CACHE_HOME` or `~/.cache`."""
    if own := os.environ.get("PENALTYLAB_CACHE"):
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "penaltylab"


def release_key(version: str) -> tuple[int, ...]:
    """What releases sort by. Raises InputError unless `version` is written as a release is."""
    if not re.fullmatch(r"\d+(\.\d+)+((\.post|rc)\d+)?", version):
        raise InputError(f"sglang version {version!r}: expected a release such as 0.5.14")
    return tuple(int(number) for number in re.findall(r"\d+", version))


def sources(version: str) -> Path:
    """The folder of sglang `version`'s sources (those of `KEPT`), laid out as in the wheel.

    A folder whose files differ from the wheel's RECORD is fetched again. Raises InputError where the version does not
    exist, pip cannot fetch it, or the cache cannot be written.
    """
    release_key(version)
    folder = cache_folder() / f"sglang-{version}"
    if not _is_whole(folder):
        try:
            _fetch(version, folder)
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be written ({error.strerror or error}); set PENALTYLAB_CACHE to another folder"
            ) from None
    return folder


def _fetch(version: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as scratch:
        staged = Path(scratch, "sources")
        _unpack(_download(version, Path(scratch)), staged)
        if not list(_recorded(staged / "RECORD")):
            raise InputError(f"sglang {version}: another shape than known ones: the wheel has no {KEPT[1]}")
        if not _is_whole(staged):
            raise InputError(f"sglang {version}: the wheel's files differ from its own RECORD; try again")
        if folder.exists():
            folder.rename(Path(scratch, "damaged"))
        try:
            staged.rename(folder)
        except OSError:
            if not _is_whole(folder):  # else another process was quicker
                raise


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            is_record = name.endswith(".dist-info/RECORD")
            if is_record or any(fnmatch(name, pattern) for pattern in KEPT):
                target = folder / ("RECORD" if is_record else name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))


def _is_whole(folder: Path) -> bool:
    try:
        expected = list(_recorded(folder / "RECORD"))
        return bool(expected) and all(_digest(folder / name) == digest for name, digest in expected)
    except (OSError, ValueError):
        return False


def _recorded(record: Path) -> Iterator[tuple[str, str]]:
    """Name and sha256, as a wheel's RECORD writes it, of each file that is kept."""
    with record.open(newline="") as lines:
        for name, digest, _size in csv.reader(lines):
            if any(fnmatch(name, pattern) for pattern in KEPT):
                yield name, digest.removeprefix("sha256=")


def _digest(path: Path) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()


def _download(version: str, folder: Path) -> Path:
    said = ""
    for python in PYTHONS:
        said = _pip(version, folder, python)
        wheels = list(folder.glob("*.whl"))
        if wheels:
            return wheels[0]
        if "No module named pip" in said:
            raise InputError(f"sglang {version}: to fetch it needs pip; `{sys.executable} -m ensurepip` installs that")
    known = re.search(r"from versions: ([^)]*)\)", said)
    if known and known[1] != "none":
        latest = ", ".join(known[1].split(", ")[-5:])
        raise InputError(f"sglang {version}: the package index has no such release; the latest are {latest}")
    errors = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines() or ["no answer"]
    why = errors[0].removeprefix("ERROR: ")
    raise InputError(f"sglang {version}: pip could not fetch it; is the package index reachable? ({why})")


def _pip(version: str, folder: Path, python: str) -> str:
    """Ask pip for the wheel. Returns what pip said."""
    command = [sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["download", "--no-deps", "--only-binary=:all:", "--retries=2", f"--dest={folder}"]
    command += [f"--platform={platform}" for platform in PLATFORMS]
    command += [f"--python-version={python}", f"sglang=={version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"ERROR: nothing within {TIMEOUT_S} s"
    return done.stdout + done.stderr

"""The folder of a run: had by one run at a time, checked before anything starts, with room for its last words."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penaltylab.errors import InputError

LOCK = ".lock"
PLACES = ("notebooks", "traces", "figures")
FREE_BYTES = 32 << 20
RESERVED_BYTES = 256 << 10


@contextmanager
def run_folder(path: Path, resume: bool = False) -> Iterator[Path]:
    """The folder `path` with all that a run needs in it, locked for the body; the lock goes with its holder's death.

    Raises InputError where it cannot be had or written, is in use, or holds something without `resume`; and for a disk
    that fills up during the body.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not (path / LOCK).exists():  # nothing of ours goes into somebody's folder
            _check(path, resume)
        with _locked(path):
            _check(path, resume)
            _prepare(path)
            yield path.resolve()
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> InputError:
    """The one line for a folder that cannot be written."""
    what = "no space left on the disk; what was written before is there" if error.errno == errno.ENOSPC else ""
    return InputError(f"{path}: {what or f'cannot be written ({error.strerror or error}); give --out another folder'}")


@contextmanager
def reserve(folder: Path) -> Iterator[None]:
    """Hold some bytes of the disk during the body, so that one that fills up has room for the record afterwards."""
    path = folder / ".reserve"
    path.write_bytes(bytes(RESERVED_BYTES))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InputError(f"{folder}: in use by another run; wait for its end, or give another folder") from None
    finally:
        os.close(handle)


def _check(folder: Path, resume: bool) -> None:
    found = {entry.name for entry in folder.iterdir()} - {LOCK}
    if found and not resume:
        raise InputError(f"{folder}: not empty; give --out a new folder, or --resume to go on with what is there")
    if found and "record.json" not in found:
        raise InputError(f"{folder}: not the folder of a run, so that --resume has nothing to go on with")


def _prepare(folder: Path) -> None:
    for scratch in folder.glob(".*.json*.*"):  # of a write that a kill cut short
        scratch.unlink()
    for name in PLACES:
        (folder / name).mkdir(exist_ok=True)
    if shutil.disk_usage(folder).free < FREE_BYTES:
        raise InputError(f"{folder}: less than {FREE_BYTES >> 20} MiB free on its disk")

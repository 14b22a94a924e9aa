"""Write a trace file: plain or gzipped, and never half."""

import gzip
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from penaltylab.errors import InputError

_GZIP_LEVEL = 5


def check_writable(path: str | Path) -> Path:
    """`path`, where a trace (`.json` or `.json.gz`) can be written; InputError where it cannot."""
    path = Path(path)
    if not path.name.endswith((".json", ".json.gz")):
        raise InputError(f"{path}: the name of a trace ends in .json or .json.gz")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name the trace file itself")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def write_trace(path: str | Path, document: bytes) -> None:
    """Write a trace's JSON to `path`, gzipped where its name ends in .gz; InputError where it cannot be written."""
    with opened(path) as file:
        file.write(document)


def copy_trace(path: str | Path, source: Path, keys: dict[str, Any]) -> None:
    """Write the JSON object in `source` to `path` with `keys` put in front, however large it is; as `write_trace`."""
    with opened(path) as file, source.open("rb") as document:
        document.seek(document.read(1024).index(b"{") + 1)
        file.write(msgspec.json.encode(keys).removesuffix(b"}") + b",")
        shutil.copyfileobj(document, file, 1 << 20)


@contextmanager
def opened(path: str | Path) -> Iterator[IO[bytes]]:
    """A stream whose bytes are at `path` once the body is done; a body or a disk that fails leaves `path` as it was."""
    path = check_writable(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as packed:
                    yield cast(IO[bytes], packed)
            else:
                yield file
        part.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        part.unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be written ({error.strerror or error}); choose another place for the trace")

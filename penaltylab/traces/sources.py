"""Bytes of a trace, block by block: plain, gzip or zip, a path or an open binary file; memory stays bounded."""

import io
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final

from penaltylab.errors import InputError

BLOCK: Final = 1 << 20
BOMB_RATIO: Final = 250
BOMB_FROM: Final = 256 << 20
Source = str | Path | IO[bytes]


def name_of(source: Source) -> str:
    """The name under which messages speak of a source."""
    return str(source) if isinstance(source, (str, Path)) else str(getattr(source, "name", "<file object>"))


def blocks(source: Source, notes: list[str]) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a trace. What could not be read to its end is said in `notes`.

    Raises:
        InputError: there is no such file, it cannot be read, or a zip holds no JSON file.
    """
    if not isinstance(source, (str, Path)):
        yield from _unpacked(source, name_of(source), notes)
        return
    path = Path(source)
    if path.is_dir():
        raise InputError(f"{path}: a folder, not a trace; name a .json, .json.gz or .zip file in it")
    try:
        with path.open("rb") as stream:
            yield from _unpacked(stream, str(path), notes)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _unpacked(stream: IO[bytes], name: str, notes: list[str]) -> Iterator[bytes]:
    head = stream.read(4)
    if head[:2] == b"\x1f\x8b":
        yield from _one_ahead(_gunzip(head, stream, notes))
    elif head == b"PK\x03\x04":
        yield from _one_ahead(_unzip(head, stream, name, notes))
    else:
        yield head
        while block := stream.read(BLOCK):
            yield block


def _one_ahead(inner: Iterator[bytes]) -> Iterator[bytes]:
    """Unpack the next block on another thread (zlib lets go of the interpreter lock) while this one is parsed."""
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(next, inner, None)
        while (block := pending.result()) is not None:
            pending = pool.submit(next, inner, None)
            yield block


def _gunzip(packed: bytes, stream: IO[bytes], notes: list[str]) -> Iterator[bytes]:
    taken, given = len(packed), 0
    inflate = None
    try:
        while True:
            if not packed:
                packed = stream.read(BLOCK // 16)
                taken += len(packed)
            if not packed:
                break
            if inflate is None:
                packed = packed.lstrip(b"\0")
                inflate = zlib.decompressobj(wbits=31)
            block = inflate.decompress(packed, BLOCK)
            packed = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            inflate = None if inflate.eof else inflate
            given += len(block)
            if block:
                yield block
            if _bomb(given, taken, notes):
                return
        if inflate is not None and given:
            yield inflate.flush()
            notes.append(f"the gzip stream is cut off: {given:,} bytes could be unpacked")
    except zlib.error as error:
        notes.append(f"the gzip stream is damaged after {given:,} bytes: {error}")


def _unzip(head: bytes, stream: IO[bytes], name: str, notes: list[str]) -> Iterator[bytes]:
    try:
        if stream.seekable():
            stream.seek(-len(head), io.SEEK_CUR)
        with zipfile.ZipFile(stream if stream.seekable() else io.BytesIO(head + stream.read())) as archive:
            members = [item for item in archive.infolist() if item.filename.endswith((".json", ".json.gz"))]
            if not members:
                raise InputError(f"{name}: a zip without a .json or .json.gz file in it")
            if len(members) > 1:
                notes.append(f"the zip holds {len(members)} traces: only {members[0].filename!r} was read")
            with archive.open(members[0]) as member:
                if members[0].filename.endswith(".gz"):
                    yield from _gunzip(member.read(4), member, notes)
                    return
                given = 0
                while block := member.read(BLOCK):
                    given += len(block)
                    yield block
                    if _bomb(given, members[0].compress_size, notes):
                        return
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        notes.append(f"the zip is damaged: {error}")


def _bomb(given: int, taken: int, notes: list[str]) -> bool:
    """Whether more was unpacked than any trace packs to; no real trace seen packs better than 40 to 1."""
    if given < BOMB_FROM or given < BOMB_RATIO * taken:
        return False
    notes.append(f"compressed more than {BOMB_RATIO} to 1: reading stopped after {given >> 20} MiB")
    return True

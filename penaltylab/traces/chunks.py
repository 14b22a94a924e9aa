"""The events of a trace in pieces: cut between events, each piece decoded by itself, so that memory stays bounded.

A cut is only a guess (`}, {"` may stand inside an event's arguments too). A piece that starts at an event and decodes
as a whole list has ended at an event as well, so decoding proves the guess; where it fails, `salvage` looks event by
event.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from penaltylab.errors import InputError
from penaltylab.traces.salvage import BOUNDARY, TRAILING, UNREADABLE, Damage, Taken, repair, salvage
from penaltylab.traces.schema import Event

LARGEST_HEAD: Final = 64 << 20
LARGEST_EVENT: Final = 16 << 20
LARGEST_TAIL: Final = 64 << 20
_START = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_STRAY_END = re.compile(rb'\s*,\s*\{\s*"(?:ph|cat|name|pid|tid|ts)"')
_STRAY = "an end of the list of events in the midst of it"
_AS_STRINGS = "a stretch of events with values of unexpected types"
_BOM = b"\xef\xbb\xbf"


class Pieces:
    """Iterate over lists of events; then `metadata` holds the other top-level keys and `damage` what was wrong."""

    def __init__(self, blocks: Iterator[bytes], name: str, kind: type[Event] = Event) -> None:
        self.metadata: dict[str, Any] = {}
        self.damage = Damage()
        self._blocks = blocks
        self._name = name
        self.bare = False
        self._kind = kind
        self._strict = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
        self._coercing = msgspec.json.Decoder(list[kind], strict=False)  # type: ignore[valid-type]

    def __iter__(self) -> Iterator[list[Event]]:
        rest = self._skip_head()
        skipping = False
        for block in self._blocks:
            rest += block
            if skipping:
                rest, skipping = _after_boundary(rest)
            cut = _last_boundary(rest)
            if cut < 0:
                if len(rest) > LARGEST_EVENT:
                    self.damage.remarks.append(f"skipped: one event of more than {LARGEST_EVENT >> 20} MiB")
                    rest, skipping = b"", True
                continue
            events, rest, ended = self._take(rest, cut)
            yield events
            if ended and not self._goes_on(rest):
                self._read_tail(rest)
                return
        while rest.strip():
            rest = rest.lstrip().removeprefix(b",")
            events, rest, ended = self._take(rest, len(rest), final=True)
            yield events
            if ended and not self._goes_on(rest):
                self._read_tail(rest)
                return
            if not ended:
                break
        lost = len(rest.strip())
        self.damage.remarks.append(f"the file ends inside its list of events: its last {lost:,} bytes are lost")

    def _goes_on(self, rest: bytes) -> bool:
        """Whether more events follow what looked like the end of their list."""
        stray = _STRAY_END.match(rest) is not None
        self.damage.repairs[_STRAY] += stray
        return stray

    def _skip_head(self) -> bytes:
        """Read up to the first event; return what was read beyond."""
        text = b""
        for block in self._blocks:
            searched = max(len(text) - 64, 0)
            text += block
            if text.startswith(_BOM):
                text = text[len(_BOM) :]
                self.damage.repairs["a byte order mark"] += 1
            if text.lstrip()[:1] == b"[":
                self.bare = True
                return text.lstrip()[1:]
            if match := _START.search(text, searched):
                self._read_metadata(text[: match.start()].rstrip().removesuffix(b",") + b"}")
                return text[match.end() :]
            if len(text) > LARGEST_HEAD:
                break
        if not text.strip():
            raise InputError(f"{self._name}: empty, not a profiler trace")
        raise InputError(f'{self._name}: not a profiler trace: it has no "traceEvents" list')

    def _take(self, text: bytes, cut: int, final: bool = False) -> Taken:
        """Read the events before `cut`; the text that is returned begins behind the separator that follows them."""
        for decoder in (self._strict, self._coercing):
            try:
                events = decoder.decode(b"".join((b"[", memoryview(text)[:cut], b"]")))
            except msgspec.ValidationError:
                continue
            except UNREADABLE as error:
                if decoder is self._coercing:
                    self.damage.repairs[_AS_STRINGS] += 1
                if found := TRAILING.search(str(error)):
                    close = text.rindex(b"]", 0, int(found.group(1)) - 2)
                    return Taken(decoder.decode(b"[" + text[:close] + b"]"), text[close + 1 :], True)
                break
            if decoder is self._coercing:
                self.damage.repairs[_AS_STRINGS] += 1
            separator = BOUNDARY.match(text, cut - 1) if cut else None
            return Taken(events, text[separator.end() if separator else cut :], False)
        if final:
            return salvage(text, b"", self.damage, final, self._kind)
        return salvage(text[:cut] + b",", text[cut:].lstrip().removeprefix(b","), self.damage, final, self._kind)

    def _read_metadata(self, text: bytes) -> None:
        try:
            self.metadata.update(json.loads(text))
        except (ValueError, RecursionError, TypeError):
            try:
                self.metadata.update(json.loads(repair(text, self.damage)))
            except (ValueError, RecursionError, TypeError):
                self.damage.remarks.append(f"the metadata before the events ({len(text):,} bytes) cannot be read")

    def _read_tail(self, text: bytes) -> None:
        """Read the top-level keys that stand behind the events, and notice what does not belong to this document."""
        beyond = 0
        for block in self._blocks:
            if len(text) < LARGEST_TAIL:
                text += block
            else:
                beyond += len(block)
        if self.bare:
            beyond += len(text.strip())
        elif not text.strip():
            self.damage.remarks.append("the file ends behind its events, without closing its outer object")
        else:
            beyond += self._read_tail_object(text)
        if beyond:
            self.damage.remarks.append(f"not read: {beyond:,} bytes behind the end of the trace (a second document?)")

    def _read_tail_object(self, text: bytes) -> int:
        """Read `, "key": value ... }`; return how many bytes follow its end."""
        for mended in (text, repair(text, Damage())):
            try:
                document = ('{"":0' + mended.decode("utf-8", "replace")).rstrip()
                found, end = json.JSONDecoder(strict=False).raw_decode(document)
            except (ValueError, RecursionError):
                continue
            del found[""]
            if found.pop("traceEvents", None) is not None:
                self.damage.remarks.append('a second "traceEvents" list is not read')
            self.metadata.update(found)
            return len(document) - end
        self.damage.remarks.append(f"the metadata behind the events ({len(text):,} bytes) cannot be read")
        return 0


def _last_boundary(text: bytes) -> int:
    """The byte behind the last event that another one follows; -1 where there is none."""
    at = len(text)
    while (at := text.rfind(b"}", 0, at)) >= 0:
        if BOUNDARY.match(text, at):
            return at + 1
    return -1


def _after_boundary(text: bytes) -> tuple[bytes, bool]:
    found = BOUNDARY.search(text)
    return (text[found.end() :], False) if found else (b"", True)

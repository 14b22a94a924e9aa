"""Reading what can be read of a malformed trace, and saying exactly what was repaired or dropped."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from penaltylab.traces.schema import Event, Scalar

BOUNDARY: Final = re.compile(rb'\}\s*,?\s*(?=\{\s*")')
TRAILING: Final = re.compile(r"trailing characters \(byte (\d+)\)")
UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_MOST_JOINED = 32
_NOT_FINITE = re.compile(rb"(?<=[:\[,])(\s*)[+-]?(?:NaN|Infinity|nan|inf)(?=\s*[,}\]])")
_TRAILING_COMMA = re.compile(rb",(\s*[\]}])")
_ESCAPE = re.compile(
    rb'\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|["\\/bfnrt])'
    rb"|\\(u[dD][89a-fA-F][0-9a-fA-F]{2})|\\"
)
_LIST_END = re.compile(rb"\}\s*\](?=\s*(?:,\s*\"|\}|$))")
_BROKEN_LINE = re.compile(rb"[A-Za-z_][\t\n\r]+[\"A-Za-z_]")
_TO_SPACE = bytes(32 if byte < 32 else byte for byte in range(256))
_NOT_CONTROL = bytes({9, 10, 13} | set(range(32, 256)))


@dataclass(slots=True)
class Damage:
    """What was wrong with a file."""

    repairs: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    dropped_bytes: int = 0
    remarks: list[str] = field(default_factory=list)

    def drop(self, size: int, events: int = 1) -> None:
        self.dropped += events
        self.dropped_bytes += size

    def sentences(self) -> list[str]:
        """One line for each sort of damage, in words for a person."""
        lines = [f"repaired: {count:,} x {what}" for what, count in self.repairs.items() if count]
        if self.dropped:
            lines.append(f"dropped: {self.dropped:,} unreadable event(s), {self.dropped_bytes:,} bytes")
        return lines + self.remarks


class Taken(NamedTuple):
    """Events read from the front of a text, the text that is left, and whether the list of events ended."""

    events: list[Event]
    rest: bytes
    ended: bool


class _Attempt(NamedTuple):
    """One try at an event: `edge` is where to go on, `ended` the byte after the list's end or -1.

    `bent` means that it took more than plain decoding.
    """

    event: Event | None
    edge: int
    ended: int = -1
    incomplete: bool = False
    bent: bool = False


def repair(text: bytes, damage: Damage) -> bytes:
    """Make text JSON again where that can be done without guessing at its structure."""
    counts: Counter[str] = Counter()

    def mend_escape(match: re.Match[bytes]) -> bytes:
        if match.group(1):
            counts["a lone surrogate"] += 1
            return rb"\ufffd"
        if match.group() == b"\\":
            counts["a backslash that escapes nothing"] += 1
            return rb"\\"
        return match.group()

    mended = text.decode("utf-8", "replace").encode()
    if mended != text:
        counts["invalid UTF-8"] += 1
    if b"\\" in mended:
        mended = _ESCAPE.sub(mend_escape, mended)
    mended, counts["NaN or Infinity"] = _NOT_FINITE.subn(rb"\1null", mended)
    mended, counts["a trailing comma"] = _TRAILING_COMMA.subn(rb"\1", mended)
    counts["a raw control character"] = len(mended.translate(None, _NOT_CONTROL)) + len(_BROKEN_LINE.findall(mended))
    mended = mended.translate(_TO_SPACE)
    damage.repairs.update({what: count for what, count in counts.items() if count})
    return mended


def salvage(text: bytes, rest: bytes, damage: Damage, final: bool, kind: type[Event] = Event) -> Taken:
    """Read `text` event by event; `rest` follows it, and unless `final` gets back an event that may go on in it."""
    text = repair(text, damage)
    boundaries = list(BOUNDARY.finditer(text))
    damage.repairs["a missing comma"] += sum(b"," not in match.group() for match in boundaries)
    edges = [0, *(match.end() for match in boundaries), len(text)]
    decoder = msgspec.json.Decoder(kind, strict=False)
    events: list[Event] = []
    at = 0
    while at < len(edges) - 1:
        attempt = _attempt(text, edges, at, kind, decoder)
        damage.repairs["an event with fields of unexpected types"] += attempt.bent and attempt.event is not None
        if attempt.event is not None:
            events.append(attempt.event)
        elif attempt.incomplete and not final:
            return Taken(events, text[edges[at] :] + rest, False)
        elif final and at == len(edges) - 2:
            return _last(events, text[edges[at] :], damage)
        else:
            damage.drop(edges[at + 1] - edges[at])
        if attempt.ended >= 0:
            return Taken(events, text[attempt.ended :] + rest, True)
        at = attempt.edge
    return Taken(events, rest, False)


def _attempt(
    text: bytes, edges: list[int], at: int, kind: type[Event], decoder: "msgspec.json.Decoder[Event]"
) -> _Attempt:
    """Read the event at an edge, joining on what follows while it is only incomplete (an edge inside its arguments)."""
    start = edges[at]
    for to in range(at + 1, min(at + _MOST_JOINED, len(edges) - 1) + 1):
        segment = text[start : edges[to]].rstrip().removesuffix(b",")
        try:
            return _Attempt(_known(decoder.decode(segment)), to)
        except msgspec.ValidationError:
            return _Attempt(_coerced(segment, kind), to, bent=True)
        except UNREADABLE as error:
            if found := TRAILING.search(str(error)):
                stop = int(found.group(1)) - 1
                ended = start + stop + 1 if segment[stop : stop + 1] == b"]" else -1
                return _Attempt(_coerced(segment[:stop], kind), to, ended, bent=ended < 0)
            if "truncated" not in str(error):
                return _Attempt(None, at + 1)
    return _Attempt(None, at + 1, incomplete=at + _MOST_JOINED >= len(edges) - 1)


def _last(events: list[Event], text: bytes, damage: Damage) -> Taken:
    """The last stretch of the file does not read as an event: cut off, or the list ends behind a broken event."""
    if close := _LIST_END.search(text):
        damage.drop(close.start() + 1)
        return Taken(events, text[close.end() :], True)
    return Taken(events, text, False)


def _known(event: Event) -> Event | None:
    return event if event.ph else None


def _coerced(segment: bytes, kind: type[Event]) -> Event | None:
    """An event whose fields have surprising types, if it has a phase and a usable time at all."""
    try:
        found = msgspec.json.decode(segment)
        found["ph"] = str(found["ph"])
        for field in ("cat", "name"):
            found[field] = str(found.get(field) or "")
        for field in ("pid", "tid"):
            found[field] = found.get(field) if isinstance(found.get(field), Scalar) else str(found[field])
        found["ts"] = float(found.get("ts") or 0.0) if found["ph"] == "M" else float(found["ts"])
        found["dur"] = float(found.get("dur", 0.0))
    except (*UNREADABLE, KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    for dropped in ((), ("args",), ("args", "id", "s", "bp")):
        try:
            return msgspec.convert({key: found[key] for key in found if key not in dropped}, kind, strict=False)
        except (msgspec.ValidationError, RecursionError):
            continue
    return None

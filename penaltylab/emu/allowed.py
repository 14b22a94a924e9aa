"""What `forbid_sync` lets pass, as strings: a kind of synchronization; the line that makes it; a function or a file
that makes it or calls what does.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from penaltylab.emu.sites import Place
from penaltylab.errors import InputError

_LINE = re.compile(r"(?P<file>[^:()]+\.\w+)(?::(?P<colon>\d+)|\((?P<parenthesis>\d+)\)(?::.*)?)")
_FILE = re.compile(r"[^:()]+\.py")


@dataclass(frozen=True)
class Allowed:
    """Kinds, functions by name, and files (with a line, or None for all of the file)."""

    kinds: frozenset[str]
    functions: frozenset[str]
    lines: tuple[tuple[str, int | None], ...]

    @classmethod
    def of(cls, allow: str | Collection[str], kinds: Iterable[str]) -> "Allowed":
        """From strings: one of `kinds`, `sampler.py:12`, `sampler.py(12)`, `sampler.py`, or the name of a function.

        Raises:
            InputError: a string is none of these.
        """
        known, found, functions = set(kinds), set(), set()
        lines: list[tuple[str, int | None]] = []
        for entry in (allow,) if isinstance(allow, str) else allow:
            if entry in known:
                found.add(entry)
            elif match := _LINE.fullmatch(entry):
                lines.append((match["file"], int(match["colon"] or match["parenthesis"])))
            elif _FILE.fullmatch(entry):
                lines.append((entry, None))
            elif entry.isidentifier():
                functions.add(entry)
            else:
                raise InputError(
                    f"allow={entry!r}: neither a line (file.py:12), a file, a function nor a kind; the kinds are "
                    f"{', '.join(sorted(known))}"
                )
        return cls(frozenset(found), frozenset(functions), tuple(lines))

    def passes(self, kind: str, stack: Iterable[Place]) -> bool:
        """Whether a synchronization of `kind` is let pass; `stack` is its line, and then the calls that it is under."""
        if kind in self.kinds:
            return True
        if not (self.functions or self.lines):
            return False
        return any(
            place.function in self.functions or self._holds(place, innermost=not depth)
            for depth, place in enumerate(stack)
        )

    def _holds(self, place: Place, innermost: bool) -> bool:
        path = place.path.replace("\\", "/")
        return any(
            (line is None or (innermost and line == place.line)) and (path == file or path.endswith(f"/{file}"))
            for file, line in self.lines
        )

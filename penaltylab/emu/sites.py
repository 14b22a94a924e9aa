"""Call sites: which line of the user's code made a call. Taken cheaply, put into words only when somebody asks."""

import linecache
import os
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import NamedTuple

import torch

Site = tuple[CodeType, int] | None
"""A code object and the index of its last instruction; None where no user frame is on the stack."""

_INTERNAL = (
    os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,
    os.path.dirname(os.path.abspath(__file__)) + os.sep,
    "<frozen",
)


class Sites:
    """Finds the innermost frame outside PyTorch and the emulator."""

    def __init__(self) -> None:
        self._internal: dict[CodeType, bool] = {}

    def caller(self) -> Site:
        """The line that is responsible for the call being emulated."""
        frame: FrameType | None = sys._getframe(1)
        internal = self._internal
        while frame is not None:
            code = frame.f_code
            skip = internal.get(code)
            if skip is None:
                skip = internal[code] = code.co_filename.startswith(_INTERNAL)
            if not skip:
                return code, frame.f_lasti
            frame = frame.f_back
        return None


class Place(NamedTuple):
    """A line of a program."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{os.path.basename(self.path)}({self.line}): {self.function}"

    def text(self) -> str:
        """What the line says; empty where its file cannot be read."""
        return linecache.getline(self.path, self.line).strip()


def place_of(site: Site) -> Place | None:
    """The line of `site`."""
    if site is None:
        return None
    code, instruction = site
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
            break
    return Place(code.co_filename, line, code.co_name)


def format_site(site: Site) -> str:
    """`file.py(12): function`, as profilers write it."""
    return str(place_of(site) or "unknown")


def stack_of(site: Site) -> Iterator[Place]:
    """`site`, then every line outside PyTorch and the emulator that the running call is under, innermost first."""
    if (place := place_of(site)) is not None:
        yield place
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_INTERNAL):
            yield Place(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back

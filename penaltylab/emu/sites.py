"""Call sites: which line of the user's code made a call. Taken cheaply, put into words only when somebody asks."""

import os
import sys
from types import CodeType, FrameType

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


def format_site(site: Site) -> str:
    """`file.py(12): function`, as profilers write it."""
    if site is None:
        return "unknown"
    code, instruction = site
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
            break
    return f"{os.path.basename(code.co_filename)}({line}): {code.co_name}"

"""The JavaScript and the style of the timeline, joined from their modules: no build step, nothing fetched."""

import re
from functools import cache
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).with_name("static")
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(?P<name>\w+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


@cache
def script(entry: str) -> str:
    """One ES module: `entry` behind everything that it imports, each once.

    The modules share one scope then, so their top-level names are distinct.
    """
    joined: dict[str, str] = {}
    _join(entry, joined)
    return "\n".join(joined.values())


def _join(name: str, joined: dict[str, str]) -> None:
    text = (STATIC / name).read_text(encoding="utf-8")
    for found in _IMPORT.finditer(text):
        if found["name"] not in joined:
            _join(found["name"], joined)
    joined[name] = f"// --- {name}\n{_EXPORT.sub('', _IMPORT.sub('', text))}"


@cache
def style() -> str:
    return (STATIC / "timeline.css").read_text(encoding="utf-8")

"""Templates of the pages that a run leaves: every value from a file is escaped, numbers are short."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).with_name("templates")


def environment(markdown: bool = False) -> "jinja2.Environment":
    """Where the templates are found; for Markdown, values are escaped so that they stay text in it."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=not markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escaped if markdown else None,
    )
    found.filters["number"] = number
    return found


def number(value: Any) -> str:
    """A number as a table shows it: three significant digits or the whole part, a dash for what was not measured."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def escaped(value: Any) -> str:
    """A value as text that stays text in Markdown, tables included."""
    text = str(value)
    for letter, instead in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "\\`"), ("[", "\\["), ("*", "\\*")):
        text = text.replace(letter, instead)
    return " ".join(text.split())

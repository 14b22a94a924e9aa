"""Texts from a trace, made harmless to show: no control codes, no reversed direction, no megabytes."""

from typing import Final

MOST_LETTERS: Final = 300
_STRANGE: Final = "\ufffd"


def clean(text: str, most: int = MOST_LETTERS) -> str:
    """`text` on one line of at most `most` letters.

    Control characters and the marks that turn the direction of writing become U+FFFD: a terminal would obey them, and
    so would the text around them. Half a surrogate pair, which UTF-8 cannot carry, does too.
    """
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return cut if cut.isprintable() else "".join(letter if letter.isprintable() else _STRANGE for letter in cut)

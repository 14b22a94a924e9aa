"""Texts from a trace, made harmless to show: no control codes, no reversed direction, no megabytes."""

from typing import Final

MOST_LETTERS: Final = 300
_MOST_LINES: Final = 8
_STRANGE: Final = "\ufffd"


def clean(text: str, most: int = MOST_LETTERS) -> str:
    """`text` on one line of at most `most` letters.

    Control characters and the marks that turn the direction of writing become U+FFFD: a terminal would obey them, and
    so would the text around them. Half a surrogate pair, which UTF-8 cannot carry, does too.
    """
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return cut if cut.isprintable() else "".join(letter if letter.isprintable() else _STRANGE for letter in cut)


class Table:
    """Distinct texts by number, cleaned; number 0 is the empty text. With `lines`, a text may have some lines."""

    def __init__(self, lines: bool = False) -> None:
        self.texts = [""]
        self._most_lines = _MOST_LINES if lines else 1
        self._number = {"": 0}

    def __getitem__(self, text: str | None) -> int:
        text = text or ""
        number = self._number.get(text)
        if number is None:
            number = self._number[text] = len(self.texts)
            parts = text.split("\n", self._most_lines)[: self._most_lines] if self._most_lines > 1 else [text]
            self.texts.append("\n".join(map(clean, parts)))
        return number

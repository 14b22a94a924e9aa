"""The texts of a scene by number, so that a slice carries four bytes and not its name."""

from typing import Final

from penaltylab.traces.names import clean

_MOST_LINES: Final = 8


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

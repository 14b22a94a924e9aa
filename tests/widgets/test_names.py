"""Texts from a trace are harmless wherever they are shown."""

import unicodedata

import pytest

from penaltylab.traces.names import MOST_LETTERS, clean
from penaltylab.widgets.names import Table

from .build import HOSTILE


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_keeps_no_control_no_direction_and_no_megabyte(text: str) -> None:
    shown = clean(text)
    assert len(shown) <= MOST_LETTERS
    assert not [letter for letter in shown if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    shown.encode()


def test_an_ordinary_text_stays_as_it_is() -> None:
    for text in ("void at::native::add<float>(int)", "Kern für Größe", "核", "a.py(1): <lambda>", "🙂"):
        assert clean(text) == text


def test_markup_is_text_and_stays_text() -> None:
    assert clean(HOSTILE["markup"]) == HOSTILE["markup"]


def test_a_table_numbers_distinct_texts_and_keeps_zero_for_none() -> None:
    table = Table()
    assert [table[text] for text in (None, "a", "b", "a", "")] == [0, 1, 2, 1, 0]
    assert table.texts == ["", "a", "b"]


def test_only_a_table_of_lines_keeps_line_ends() -> None:
    names, notes = Table(), Table(lines=True)
    assert names.texts[names["a\nb"]] == "a\ufffdb"
    assert notes.texts[notes["a\nb\x1b"]] == "a\nb\ufffd"
    assert notes.texts[notes["\n" * 1_000_000]].count("\n") < 10

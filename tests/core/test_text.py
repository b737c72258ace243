"""What is printed cannot control a terminal, fills one line and has a limited length."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purectrl.core.text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("\x1b[2J\x1b[1;1Herror", "error"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("a\x00b\x7fc\x85d", "abc d"),
        ("\u202egnp\u2066x\u2069\ufeff", "gnpx"),
        ("one\r\ntwo\tthree\u2028four", "one two three four"),
        ("\udcff\ud800", "\ufffd\ufffd"),
        ("β_F, ⌊N/m⌋, 日本, क्‍ष", "β_F, ⌊N/m⌋, 日本, क्‍ष"),
    ],
)
def test_control_sequences_are_removed_and_words_are_kept(text, shown):
    assert printable(text) == shown


@given(st.text(st.characters(), max_size=300), st.integers(7, 60))
def test_any_text_becomes_one_short_line_that_can_be_encoded(text, limit):
    shown = printable(text, limit)
    assert len(shown) <= limit
    assert "\n" not in shown
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cs", "Zl", "Zp"}
    shown.encode()


def test_both_ends_of_a_long_text_are_shown():
    shown = printable("config.json: " + "x" * 10**6 + ": use another directory", limit=60)
    assert shown.startswith("config.json")
    assert shown.endswith("directory")
    assert len(shown) == 60

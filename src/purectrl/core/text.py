"""Text from files and arguments on a terminal: without control sequences, on one line, and of limited length."""

import re
import unicodedata

MESSAGE = 390
"""Characters of a message; with `error: ` in front of it, a line has fewer than 400."""
VALUE = 100
"""Characters of a value inside a message."""

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]?"
)
_JOINERS = "\u200c\u200d"
"""Invisible characters that belong to the spelling of words and to emoji."""


def printable(value: object, limit: int = MESSAGE) -> str:
    r"""`value` as one line of at most `limit` characters that is safe to print.

    Escape sequences, control characters (C0, C1) and invisible characters such as bidirectional overrides are removed, line
    breaks and tabs become spaces, bytes that are not UTF-8 become U+FFFD, and the middle of a long text is left out.

    >>> printable("\x1b[31mred\x1b[0m\n\u202egnp.exe")
    'red gnp.exe'
    >>> printable("a" * 1000, limit=11)
    'aaaa … aaaa'
    """
    text = str(value)
    if len(text) > 20 * limit:  # the rest cannot be shown and need not be searched
        text = text[: 10 * limit] + text[-10 * limit :]
    text = re.sub(r"\s*\n\s*", " ", "".join(map(_visible, _SEQUENCE.sub("", text)))).strip()
    if len(text) <= limit:
        return text
    tail = (limit - 3) // 2
    return f"{text[: limit - 3 - tail]} … {text[len(text) - tail :]}"


def _visible(character: str) -> str:
    kind = unicodedata.category(character)
    if kind == "Cs":
        return "\ufffd"
    if character in "\t\n\v\f\r\x85" or kind in ("Zl", "Zp"):
        return "\n"
    return "" if kind == "Cc" or (kind == "Cf" and character not in _JOINERS) else character

"""Text from a model or a corpus, made visible and harmless.

Tokens are data: they may contain spaces, line breaks, half characters, terminal escapes, markup or right-to-left
letters. They are shown on one line, with every character visible, and nothing in them is interpreted.
"""

import html
import re
import unicodedata
from collections.abc import Sequence

from armillary.results.numbers import ABSENT, count, number
from armillary.results.table import Cell

_SPACES = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\N{NO-BREAK SPACE}": "⍽"}
_ISOLATE, _END_ISOLATE = "\N{FIRST STRONG ISOLATE}", "\N{POP DIRECTIONAL ISOLATE}"
_JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"


def show_token(text: str | bytes, limit: int = 24) -> str:
    """A token as one visible word of at most `limit` characters.

    >>> show_token(" the"), show_token("a\\n\\tb"), show_token(b"\\xe2\\x80"), show_token("x" * 40, limit=8)
    ('␣the', 'a⏎⇥b', '⟨E2⟩⟨80⟩', 'xxxxxxx…')
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    byte = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", text)  # sentencepiece's name for a byte without a token
    if byte:
        return f"⟨{byte[1].upper()}⟩"
    return _isolated(_cut([_visible(text, i) for i in range(len(text))], limit))


def show_text(text: str, limit: int | None = None) -> str:
    """A label or sentence on one line: spaces between words stay spaces, everything else as in `show_token`.

    >>> show_text("two words "), show_text("red \\x1b[31m")
    ('two words␣', 'red ⟨1B⟩[31m')
    """
    inner = text.strip(" ")
    if inner == text and text.isascii() and text.isprintable():
        return _cut(list(text), limit)
    start = len(text) - len(text.lstrip(" "))
    shown = [
        " " if char == " " and inner and start <= i < start + len(inner) else _visible(text, i)
        for i, char in enumerate(text)
    ]
    return _isolated(_cut(shown, limit))


def is_token_column(name: str) -> bool:
    """Whether a column or an axis of that name contains tokens, in which every space matters.

    >>> is_token_column("top tokens"), is_token_column("site")
    (True, False)
    """
    return re.search(r"\b(token|word|noun|key|query|promoted)s?\b", name, re.IGNORECASE) is not None


def show_label(text: str, name: str, limit: int | None = None) -> str:
    """A cell or coordinate, as a token if its column or axis contains tokens."""
    return show_token(text, limit or 10_000) if is_token_column(name) else show_text(text, limit)


def show_cell(cell: Cell, column: str, limit: int | None = None) -> str:
    """One cell of a table in that column.

    >>> [show_cell(c, "n") for c in (None, True, 16384, 0.12345, "a ")]
    ['–', 'yes', '16,384', '0.123', 'a␣']
    """
    if cell is None:
        return ABSENT
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, str):
        return show_label(cell, column, limit)
    return count(cell) if isinstance(cell, int) else number(cell)


def are_numbers(cells: Sequence[Cell]) -> bool:
    """Whether a column has only numbers, which are aligned on their decimal points."""
    return all(c is None or (isinstance(c, int | float) and not isinstance(c, bool)) for c in cells)


def in_html(text: str) -> str:
    """Escaped for HTML and for plotly's labels, which read a subset of HTML: a model's `<b>` stays `<b>`."""
    return html.escape(text, quote=True)


def html_text(text: str) -> str:
    """A label or sentence from outside, made visible and harmless in HTML."""
    return in_html(show_text(text))


def _visible(text: str, index: int) -> str:
    char = text[index]
    if char in _SPACES:
        return _SPACES[char]
    category = unicodedata.category(char)
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8, kept by surrogateescape
        return f"⟨{ord(char) - 0xDC00:02X}⟩"
    if char in _JOINERS and 0 < index < len(text) - 1:
        return char  # emoji and Indic letters need them
    if category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return f"⟨{ord(char):02X}⟩"
    if category == "Zs":
        return "␣"
    if category.startswith("M") and index == 0:
        return "◌" + char  # a combining mark alone would combine with its neighbour
    return char


def _cut(shown: list[str], limit: int | None) -> str:
    if limit is None or sum(map(len, shown)) <= limit:
        return "".join(shown)
    start = ""
    for piece in shown:
        if len(start) + len(piece) > limit - 1:
            break
        start += piece
    return start + "…"


def _isolated(text: str) -> str:
    if any(unicodedata.bidirectional(c) in ("R", "AL", "AN") or unicodedata.category(c)[0] == "M" for c in text):
        return _ISOLATE + text + _END_ISOLATE
    return text

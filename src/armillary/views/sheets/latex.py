"""Tables as LaTeX that compiles, whatever words they contain."""

import re
from collections.abc import Sequence
from functools import cache

from armillary.results.sheets.sheet import Sheet
from armillary.results.table import Table
from armillary.views.sheets.lists import Listed, gathered, plain
from armillary.views.text.quoting import are_numbers, show_cell, show_text, show_token

# Rows on a page: longer tables become a longtable.
_PAGE = 45
_WORD = 64
# Characters side by side on a page; in a wider table columns of text are paragraphs in a small font.
_LINE, _PARAGRAPH = 60, 14
_DOTTED = re.compile(r"(?<=[a-z])\.(?=[a-z])")
# pdflatex prints a character it does not have as its number instead of stopping; other engines ignore this. It is
# inside the table's braces, so that an author's mistakes elsewhere are still reported.
_UNKNOWN = (
    r"{\makeatletter",
    r"\def\UTFviii@undefined@err#1{\expandafter\number@of\string#1\relax}%",
    r"\def\number@of#1:#2\relax{$\langle$\expandafter\UTFviii@hexcodepoint"
    r"\expandafter{\the\numexpr\decode@UTFviii#2\relax}$\rangle$}%",
    r"\makeatother",
)
_ENGINES = (
    "% It prints words outside Latin script as numbers. For the words themselves use xelatex or lualatex with",
    r"% \usepackage{fontspec}\setmonofont{a font that has them}; letters that the font lacks are not shown.",
)
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    # In the old font encoding these are other characters; quotes and dashes would form ligatures.
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": "{-}",
    "␣": r"\textvisiblespace{}",
    "⏎": r"$\hookleftarrow$",
    "␍": r"$\Leftarrow$",
    "⇥": r"$\mapsto$",
    "⍽": r"$\sqcup$",
    "◌": r"$\circ$",
    "⟨": r"$\langle$",
    "⟩": r"$\rangle$",
    "…": r"\dots{}",
    "−": r"$-$",
    "–": r"\textendash{}",
    "σ": r"$\sigma$",
    "Σ": r"$\Sigma$",
    "ρ": r"$\rho$",
    "γ": r"$\gamma$",
    "β": r"$\beta$",
    "⊙": r"$\odot$",
    "Δ": r"$\Delta$",
    "√": r"$\surd$",
    "‖": r"$\Vert$",
    "·": r"\textperiodcentered{}",
    "²": r"\textsuperscript{2}",
    # Needed in a terminal line with right-to-left text, not in a table cell.
    "\N{FIRST STRONG ISOLATE}": "",
    "\N{POP DIRECTIONAL ISOLATE}": "",
}


def in_latex(text: str) -> str:
    r"""
    >>> in_latex(r"50% of a_b\{x}")
    '50\\% of a\\_b\\textbackslash{}\\{x\\}'
    """
    # Two commas would form a quotation mark.
    return "".join(_ESCAPES.get(char, char) for char in text).replace(",,", ",{},").replace(",,", ",{},")


def sheet_latex(sheet: Sheet) -> str:
    """Every table of a sheet, one after the other."""
    return "\n".join(
        table_latex(table, f"{sheet.name}: {name}. {sheet.caption}") for name, table in sheet.tables.items()
    )


def table_latex(table: Table, caption: str) -> str:
    """One tabular, or a longtable if it does not fit on a page; one line per list of words."""
    listed = gathered(table) or plain(table)
    aligned = ["r" if are_numbers([row[i] for row in listed.cells]) else "l" for i in range(len(listed.columns))]
    widths = _widths(listed)
    wide = sum(map(max, widths)) > _LINE and not listed.lists
    kinds = _paragraphs(widths, aligned) if wide else "".join(aligned) + "l" * len(listed.lists)
    head = [column.name for column in listed.columns] + [f"{name} words" for name in listed.lists]
    lines = [" & ".join(in_latex(show_text(name)) for name in head) + r" \\", r"\hline"]
    lines += [_row([_DOTTED.sub(r".\\allowbreak{}", cell) if wide else cell for cell in row]) for row in _body(listed)]
    long = len(listed.cells) > _PAGE
    name = "longtable" if long else "tabular"
    if long:
        lines[1:2] = [r"\hline", r"\endhead"]
    needed = ", ".join(
        [
            r"\usepackage[T1]{fontenc}",
            *([r"\usepackage{array}"] if wide else []),
            *([r"\usepackage{longtable}"] if long else []),
        ]
    )
    comments = (f"% {_comment(caption)}", f"% pdflatex needs {needed}.", *_ENGINES)
    small = [r"\scriptsize\setlength{\tabcolsep}{2pt}"] if wide else []
    return "\n".join((*comments, *_UNKNOWN, *small, f"\\begin{{{name}}}{{{kinds}}}", *lines, f"\\end{{{name}}}}}", ""))


def _widths(listed: Listed) -> list[tuple[int, int]]:
    """Of every column, the longest word and the longest cell."""
    widths = []
    for i, column in enumerate(listed.columns):
        shown = [show_text(column.name), *(show_cell(row[i], column.name) for row in listed.cells)]
        words = [word for cell in shown for word in _DOTTED.sub(". ", cell).split() or [""]]
        widths.append((max(map(len, words)), max(map(len, shown))))
    return widths


def _paragraphs(widths: Sequence[tuple[int, int]], aligned: Sequence[str]) -> str:
    """Columns that share the line: as wide as their longest word, and as their longest cell while that is short."""
    shares = [max(word + 1, min(cell, _PARAGRAPH)) for word, cell in widths]
    room = f"\\dimexpr\\linewidth-{2 * len(shares)}\\tabcolsep\\relax"
    sides = [r"\raggedleft" if side == "r" else r"\raggedright" for side in aligned]
    return "".join(
        f">{{{side}\\arraybackslash}}p{{{share / sum(shares):.3f}{room}}}"
        for side, share in zip(sides, shares, strict=True)
    )


def _row(cells: Sequence[str]) -> str:
    # After the end of a row, LaTeX reads a bracket as a length and a star as a command.
    return ("{}" if cells[0].startswith(("[", "*")) else "") + " & ".join(cells) + r" \\"


def _body(listed: Listed) -> list[list[str]]:
    rows = []
    for cells, lists in zip(listed.cells, listed.words, strict=True):
        shown = [show_cell(cell, column.name) for cell, column in zip(cells, listed.columns, strict=True)]
        rows.append([in_latex(cell) for cell in shown] + [_words(words) for words in lists])
    return rows


def _words(words: Sequence[str]) -> str:
    return r" \quad ".join(map(_word, words))


@cache
def _word(word: str) -> str:
    return f"\\texttt{{{in_latex(show_token(word, _WORD))}}}"


def _comment(text: str) -> str:
    # A line break would end the comment, and the rest would be typeset.
    return " ".join(show_text(text).split())

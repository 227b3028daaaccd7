"""How does a table become LaTeX that compiles, whatever its words are?"""

from collections.abc import Sequence
from functools import cache

from armillary.results.sheet import Sheet
from armillary.results.table import Table
from armillary.views.lists import Listed, gathered, plain
from armillary.views.words import are_numbers, show_cell, show_text, show_token

# Longer than a page: an environment that breaks.
_PAGE = 45
_WORD = 64
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
    # In the old font encoding these three are other characters; quotes and dashes would join into ligatures.
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": "{-}",
    "␣": r"\textvisiblespace{}",
    "⏎": r"$\hookleftarrow$",
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
    # Marks that keep a terminal from turning round its line; a table cell is a box of its own.
    "\N{FIRST STRONG ISOLATE}": "",
    "\N{POP DIRECTIONAL ISOLATE}": "",
}


def in_latex(text: str) -> str:
    r"""
    >>> in_latex(r"50% of a_b\{x}")
    '50\\% of a\\_b\\textbackslash{}\\{x\\}'
    """
    return "".join(_ESCAPES.get(char, char) for char in text)


def sheet_latex(sheet: Sheet) -> str:
    """Every table of a sheet, one after the other."""
    return "\n".join(
        table_latex(table, f"{sheet.name}: {name}. {sheet.caption}") for name, table in sheet.tables.items()
    )


def table_latex(table: Table, caption: str) -> str:
    """One tabular, or a longtable where a page would not hold it; lists of words on one line each."""
    listed = gathered(table) or plain(table)
    aligned = ["r" if are_numbers([row[i] for row in listed.cells]) else "l" for i in range(len(listed.columns))]
    kinds = "".join(aligned) + "l" * len(listed.lists)
    head = [column.name for column in listed.columns] + [f"{name} words" for name in listed.lists]
    lines = [" & ".join(in_latex(show_text(name)) for name in head) + r" \\", r"\hline"]
    lines += [" & ".join(cells) + r" \\" for cells in _body(listed)]
    long = len(listed.cells) > _PAGE
    name = "longtable" if long else "tabular"
    said = f"% {_comment(caption)}\n% Words outside Latin script need xelatex or lualatex and a font that has them.\n"
    said += (
        "% Otherwise \\usepackage[T1]{fontenc}, \\usepackage{textcomp}"
        + (", \\usepackage{longtable}" if long else "")
        + "\n"
    )
    if long:
        lines[1:2] = [r"\hline", r"\endhead"]
    return said + f"\\begin{{{name}}}{{{kinds}}}\n" + "\n".join(lines) + f"\n\\end{{{name}}}\n"


def _body(listed: Listed) -> list[list[str]]:
    made = []
    for cells, lists in zip(listed.cells, listed.words, strict=True):
        shown = [show_cell(cell, column.name) for cell, column in zip(cells, listed.columns, strict=True)]
        made.append([in_latex(cell) for cell in shown] + [_words(words) for words in lists])
    return made


def _words(words: Sequence[str]) -> str:
    return r" \quad ".join(map(_word, words))


@cache
def _word(word: str) -> str:
    return f"\\texttt{{{in_latex(show_token(word, _WORD))}}}"


def _comment(text: str) -> str:
    # A line break would end the comment, and what follows would be typeset.
    return " ".join(show_text(text).split())

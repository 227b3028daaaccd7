"""Tables as LaTeX that compiles, whatever words they contain."""

from collections.abc import Sequence
from functools import cache

from armillary.results.sheets.sheet import Sheet
from armillary.results.table import Table
from armillary.views.sheets.lists import Listed, gathered, plain
from armillary.views.text.quoting import are_numbers, show_cell, show_text, show_token

# Rows on a page: longer tables become a longtable.
_PAGE = 45
_WORD = 64
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
    kinds = "".join(aligned) + "l" * len(listed.lists)
    head = [column.name for column in listed.columns] + [f"{name} words" for name in listed.lists]
    lines = [" & ".join(in_latex(show_text(name)) for name in head) + r" \\", r"\hline"]
    lines += [_row(cells) for cells in _body(listed)]
    long = len(listed.cells) > _PAGE
    name = "longtable" if long else "tabular"
    if long:
        lines[1:2] = [r"\hline", r"\endhead"]
    needed = r"\usepackage[T1]{fontenc}" + (r", \usepackage{longtable}" if long else "")
    comments = (f"% {_comment(caption)}", f"% pdflatex needs {needed}.", *_ENGINES)
    return "\n".join((*comments, *_UNKNOWN, f"\\begin{{{name}}}{{{kinds}}}", *lines, f"\\end{{{name}}}}}", ""))


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

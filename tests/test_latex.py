"""Tables of any words are LaTeX that compiles: what can be said without an engine, and with one where there is one."""

import shutil
import subprocess

import pytest

from armillary.results import Column, Table
from armillary.views.sheets.latex import in_latex, table_latex

HOSTILE = (
    *"_&%$#{}~^\\<>\"'`|[]*",
    *(
        "-",
        "--",
        ",,",
        ",,,",
        "?`",
        "<<",
        "[h]",
        "*[",
        "^^41",
        "\\input{x}",
        "\\\\",
        "%%",
        "$x$",
        "a\tb",
        "\r\n",
        "a\u00a0b",
    ),
    *("é", "Ł", "“q”", "€", "½", "₁", "π", "≤", "→", "σ", "√"),
    *(
        "中文",
        "мир",
        "שלום",
        "العربية",
        "हिन्दी",
        "😀",
        "👩‍👩‍👧",
        "\u202eabc",
        "e\u0301",
        "\u0301",
        "\ufeff",
        "\x00",
        "\ud83d",
    ),
)
ENGINES = {
    "pdflatex": r"\usepackage[T1]{fontenc}",
    "xelatex": r"\usepackage{fontspec}",
    "lualatex": r"\usepackage{fontspec}",
}


def hostile(rows: int) -> str:
    """Words as cells, the first column among them."""
    columns = (Column("noun", "a word"), Column("value", "a number"), Column("key token", "another"))
    cells = [(HOSTILE[i % len(HOSTILE)], i / 7, HOSTILE[-i % len(HOSTILE)]) for i in range(rows)]
    return table_latex(Table(columns, tuple(cells)), "100 % of\nthem")


def lists() -> str:
    """All words as one list, by rank."""
    columns = tuple(Column(name, "") for name in ("head", "rank", "key_word", "key_id", "key_score"))
    cells = [("L0H0", i + 1, word, i, 1.0) for i, word in enumerate(HOSTILE)]
    return table_latex(Table(columns, tuple(cells)), "a list")


@pytest.mark.parametrize("engine", ENGINES)
def test_hostile_words_compile(engine, tmp_path):
    if shutil.which(engine) is None:
        pytest.skip(f"no {engine} here")
    path = subprocess.run(["kpsewhich", "fontspec.sty"], capture_output=True).stdout
    if engine != "pdflatex" and not path:
        pytest.skip(f"{engine} without fontspec")
    document = (
        r"\documentclass{article}",
        ENGINES[engine],
        r"\usepackage{array}\usepackage{longtable}",
        r"\begin{document}",
    )
    body = (hostile(20), hostile(len(HOSTILE) + 60), lists(), r"\end{document}")
    (tmp_path / "x.tex").write_text("\n".join((*document, *body)), "utf-8")
    ran = subprocess.run(
        [engine, "-halt-on-error", "-interaction=nonstopmode", "x.tex"], cwd=tmp_path, capture_output=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout.decode("utf-8", "replace")[-2000:]
    assert (tmp_path / "x.pdf").stat().st_size > 1000


def test_words_of_a_list_are_told_apart():
    assert lists().count(r"\texttt{") == len(HOSTILE)


def test_a_row_never_begins_with_what_the_last_one_s_end_would_take():
    """`\\\\ [h]` is a length that is missing, `\\\\ *` a request."""
    for line in hostile(len(HOSTILE)).splitlines():
        assert not line.startswith(("[", "*"))
    assert "{}[h] & " in hostile(len(HOSTILE))


def test_commas_do_not_join():
    assert in_latex(",,,") == ",{},{},"
    assert in_latex("1,024, 2") == "1,024, 2"


def test_what_is_defined_for_a_table_ends_with_it():
    table = hostile(3)
    assert table.index(r"{\makeatletter") < table.index(r"\begin{tabular}")
    assert table.rstrip().endswith(r"\end{tabular}}")
    assert "longtable" not in table
    assert r"\usepackage{longtable}" in hostile(60)

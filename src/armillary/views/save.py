"""Save a result: the ending of the path decides what is written."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from armillary.errors import OutputError, ending
from armillary.results.claim import Finding
from armillary.results.compare import Comparison
from armillary.results.disk.cells import as_text
from armillary.results.disk.folder_swap import REPORT, add_files
from armillary.results.sheets.health import Health
from armillary.results.sheets.sheet import Sheet, Sheets
from armillary.results.sheets.trajectory import Trajectory
from armillary.results.store import file_name, finding_json, survey_json, table_csv, write_survey, write_whole
from armillary.results.survey import Survey


def picture(draw: Callable[[bool], Any], kind: str, columns: int = 2) -> bytes:
    """A figure as 'svg', 'pdf' or 'png'; plotly takes half a second to import, so only when it is drawn."""
    from armillary.views.figures.print.picture import picture as make

    return make(draw, kind, columns)


Makers = dict[str, Callable[[], str | bytes]]
"""Ending → what makes the file's content."""


def save_survey(survey: Survey, folder: Path, goes_on: bool = False) -> Path:
    """Write tables/ and survey.json at once, then figures/<claim id>.html and report.html at once.

    Pictures can be made again from survey.json, so a full disk costs pictures alone.
    """
    from armillary.views.page import LIBRARY, library_script
    from armillary.views.report.report import report_html

    written = write_survey(survey, Path(folder), goes_on=goes_on)
    drawings = {finding.id: draw(finding) for finding in survey}
    pages = {f"figures/{file_name(claim, '.html')}": page for claim, (_, page) in drawings.items()}
    report = report_html(survey, {claim: forms for claim, (forms, _) in drawings.items()})
    add_files(Path(folder), {f"figures/{LIBRARY}": library_script(), **pages, REPORT: report})
    return written


def draw(finding: Finding) -> tuple[list[Any], str]:
    """A finding's figure, wide and narrow, and its page in figures/; made once, by whoever has time before a save."""
    from armillary.views.figures.figure import figure
    from armillary.views.page import figure_html

    # A finding is frozen, and tables make it unhashable: what is drawn is kept with it.
    if "_drawn" not in vars(finding):
        forms = [figure(finding, narrow) for narrow in (False, True)]
        vars(finding)["_drawn"] = forms, figure_html(forms, finding, shared=True)
    drawing: tuple[list[Any], str] = vars(finding)["_drawn"]
    return drawing


def save_finding(finding: Finding, path: Path, columns: int = 2) -> Path:
    """The figure (.html .svg .pdf .png), the table (.csv .tex .md) or everything (.json); `columns` of a paper."""
    from armillary.views.figures.figure import figure
    from armillary.views.page import figure_html
    from armillary.views.text.papers.exports import table_export

    makers: Makers = {
        ".html": lambda: figure_html([figure(finding, narrow) for narrow in (False, True)], finding),
        **_pictures(lambda narrow: figure(finding, narrow), columns),
        ".csv": lambda: table_csv(finding.table),
        ".tex": lambda: table_export(finding, "latex"),
        ".md": lambda: table_export(finding, "markdown"),
        ".json": lambda: finding_json(finding),
    }
    return _save(path, makers)


def save_figures(survey: Survey, folder: Path, kind: str, columns: int = 2) -> list[Path]:
    """Every claim's figure as FOLDER/<claim id>.<kind>, and the ledger's, which is two columns wide."""
    from armillary.views.figures.figure import figure, ledger_figure

    written = []
    for finding in survey:
        drawing = picture(lambda narrow, f=finding: figure(f, narrow), kind, columns)  # type: ignore[misc]
        written.append(folder / file_name(finding.id, f".{kind}"))
        write_whole({written[-1]: drawing})
    written.append(folder / f"ledger.{kind}")
    write_whole({written[-1]: picture(lambda narrow: ledger_figure(survey), kind, 2)})
    return written


def save_ledger(survey: Survey, path: Path) -> Path:
    """The ledger as a table (.csv .tex .md), a page (.html), a figure (.svg .pdf .png) or the whole survey (.json)."""
    from armillary.views.figures.figure import ledger_figure
    from armillary.views.page import whole_page
    from armillary.views.report.notebook import ledger_html
    from armillary.views.text.papers.exports import ledger_export

    makers: Makers = {
        ".csv": lambda: str(survey.ledger().to_frame().map(as_text).to_csv(index=False)),
        ".json": lambda: survey_json(survey),
        ".html": lambda: whole_page("Armillary: verdicts", ledger_html(survey)),
        ".tex": lambda: ledger_export(survey, "latex"),
        ".md": lambda: ledger_export(survey, "markdown"),
        **_pictures(lambda narrow: ledger_figure(survey)),
    }
    return _save(path, makers)


def save_comparison(comparison: Comparison, path: Path) -> Path:
    """The page (.html), everything (.json), or one row per claim (.csv)."""
    from armillary.views.compare.comparison import comparison_csv, comparison_json
    from armillary.views.compare.comparison_page import comparison_page

    makers: Makers = {
        ".html": lambda: comparison_page(comparison),
        ".json": lambda: comparison_json(comparison),
        ".csv": lambda: comparison_csv(comparison),
    }
    return _save(path, makers)


def save_sheet(sheet: Sheet, path: Path) -> Path:
    """The main table (.csv), all tables (.tex), the page (.html), the picture (.svg .pdf .png), all (.json)."""
    from armillary.views.sheets.drawing import drawing_svg
    from armillary.views.sheets.latex import sheet_latex
    from armillary.views.sheets.sheet import sheet_figure, sheet_json, sheet_page

    makers: Makers = {
        ".html": lambda: sheet_page(sheet),
        **_pictures(lambda narrow: sheet_figure(sheet)),
        ".csv": lambda: table_csv(sheet.table),
        ".tex": lambda: sheet_latex(sheet),
        ".json": lambda: sheet_json(sheet),
    }
    if sheet.drawing is not None:
        makers |= _drawn_pictures(lambda both: drawing_svg(sheet, both)[0])
    return _save(path, makers)


def save_health(health: Health, path: Path) -> Path:
    """The page (.html), everything (.json) or the table of checks (.csv)."""
    from armillary.results.store import json_text
    from armillary.views.report.health import health_page

    makers: Makers = {
        ".html": lambda: health_page(health),
        ".json": lambda: json_text(health.to_dict()),
        ".csv": lambda: table_csv(health.sheet().table),
    }
    return _save(path, makers)


def save_sheets(sheets: Sheets, folder: Path) -> Path:
    """Every sheet's files, then README.md, which lists them."""
    from armillary.views.sheets.folder import readme, sheet_files

    named: dict[str, list[str]] = {}
    for sheet in sheets:
        files = sheet_files(sheet)
        named[sheet.name] = list(files)
        write_whole({folder / name: content for name, content in files.items()})
    write_whole({folder / "README.md": readme(sheets, named)})
    return folder


def save_trajectory(trajectory: Trajectory, path: Path) -> Path:
    """The page (.html), the picture (.svg .pdf .png), the table (.csv) or everything (.json)."""
    from armillary.views.travel.formats import trajectory_json
    from armillary.views.travel.svg import picture_svg
    from armillary.views.travel.trajectory_page import trajectory_page

    makers: Makers = {
        ".html": lambda: trajectory_page(trajectory),
        **_drawn_pictures(lambda both: picture_svg(trajectory, both)[0]),
        ".csv": lambda: table_csv(trajectory.table),
        ".json": lambda: trajectory_json(trajectory),
    }
    return _save(path, makers)


def save_figure(figure: Any, page: Callable[[], str], table: str, path: Path) -> Path:
    """Any figure as .html (its page), .svg, .pdf or .png, or its numbers as .csv."""
    return _save(path, {".html": page, ".csv": lambda: table, **_pictures(lambda narrow: figure)})


def check_ending(path: Path, endings: Iterable[str]) -> None:
    if path.suffix.lower() not in endings:
        raise OutputError(f"{path} {ending(path)}; choose one of {' '.join(endings)}.")


def _save(path: Path, makers: Makers) -> Path:
    check_ending(path, makers)
    write_whole({path: makers[path.suffix.lower()]()})
    return path


def _drawn_pictures(svg: Callable[[bool], str]) -> Makers:
    """A drawing that is SVG from the start, a globe or a schema; its PDF and PNG are two columns of a paper wide."""
    from armillary.views.figures.paint import painted
    from armillary.views.figures.print.picture import SIZES

    def maker(kind: str) -> Callable[[], bytes]:
        return lambda: painted(svg(False), kind, SIZES[2][1])

    return {".svg": lambda: svg(True), ".pdf": maker("pdf"), ".png": maker("png")}


def _pictures(draw: Callable[[bool], Any], columns: int = 2) -> Makers:
    def maker(kind: str) -> Callable[[], bytes]:
        return lambda: picture(draw, kind, columns)

    return {f".{kind}": maker(kind) for kind in ("svg", "pdf", "png")}

"""A survey as one self-contained page: ledger, chapters, laws, settings."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io

from armillary.errors import OutputError
from armillary.results.disk.folder_swap import REPORT, SURVEY, add_files, listed
from armillary.results.disk.lock import locked
from armillary.results.store import read_survey, survey_json, write_whole
from armillary.results.survey import Survey
from armillary.views.figures import theme  # noqa: F401  (registers the templates)
from armillary.views.figures.marks import DARK, LIGHT
from armillary.views.page import Forms, library_script, whole_page
from armillary.views.report.claims import model_section, settings_section, survey_chapters, survey_ledger
from armillary.views.report.payload import LIMIT, TOP, ClaimData, blocks_html, finding_part
from armillary.views.text.papers.methods import CITATION, methods_text
from armillary.views.text.quoting import html_text as e
from armillary.views.text.summary import chapter_title, chapters, law_line, model_line, text_line

# Three rings around a small globe.
_LOGO = (
    '<svg class="logo" viewBox="-16 -16 32 32" width="34" height="34" aria-hidden="true"><circle r="14"/>'
    '<ellipse rx="14" ry="5" transform="rotate(-23)"/><ellipse rx="5" ry="14" transform="rotate(-23)"/>'
    '<circle class="world" r="2.6"/></svg>'
)


def save_report(survey: Survey, path: Path, figures: Mapping[str, Forms] | None = None) -> Path:
    """Write the report as one file; `figures` are figures of claims, wide and narrow, that were drawn before."""
    content, home = report_html(survey, figures), Path(path).parent
    if Path(path).name == REPORT and SURVEY in listed(home):
        with locked(home):
            # Whoever wrote there while this page was drawn may have put another survey in its place.
            if survey_json(read_survey(home)) != survey_json(survey):
                raise OutputError(f"{home} holds another survey than the one that was drawn; draw it again.")
            add_files(home, {REPORT: content})
    else:
        write_whole({Path(path): content})
    return Path(path)


def report_html(survey: Survey, figures: Mapping[str, Forms] | None = None) -> str:
    """The survey as one self-contained page."""
    name = survey.model.name
    parts = [finding_part(finding, (figures or {}).get(finding.id, ())) for finding in survey]
    laws = law_line(survey)
    lines = [model_line(survey), text_line(survey)]
    above = masthead(f"Verdicts on {name}", lines, f'<a href="#model">Laws</a>: {e(laws)}' if laws else "")
    places = [("ledger", "Ledger")]
    places += [(f"chapter-{i}", chapter_title(chapter)) for i, chapter in enumerate(chapters(survey))]
    places += [("model", "Model and laws"), ("settings", "Settings"), ("methods", "Methods")]
    body = survey_ledger(survey) + survey_chapters(survey, parts) + model_section(survey) + settings_section(survey)
    body += f"<section id='methods'><h2>For a methods section</h2><p>{e(methods_text(survey))}</p></section>"
    foot = "The command armillary report writes this page again from survey.json and tables/ in the same folder."
    return assembled(f"Armillary: {name}", above, places, body, foot, parts)


def masthead(title: str, lines: Sequence[str], last: str = "") -> str:
    """The top of a page; `last` is HTML."""
    text = "<br>".join([*map(e, lines), *([last] if last else [])])
    return f"<header>{_LOGO}<div><h1>{e(title)}</h1><p class='soft'>{text}</p></div></header>"


def assembled(
    title: str, above: str, places: Sequence[tuple[str, str]], body: str, foot: str, parts: Sequence[ClaimData]
) -> str:
    """The page around a ledger and its claims, for reports and comparisons."""
    links = "".join(f'<a href="#{escape(place)}">{e(name)}</a>' for place, name in places)
    here = Path(__file__).parent
    style = (here / "report.css").read_text("utf-8")
    script = "".join((here / name).read_text("utf-8") for name in ("figures.js", "tables.js", "report.js"))
    library = library_script()
    missing = "Figures, tables and the search need JavaScript."
    whole = (
        f"<style>{style}</style>{above}<nav aria-label='parts of this page'>{links}</nav>"
        f"<noscript><style>.figure, .controls, .save {{ display: none !important }}</style><p>{missing}</p></noscript>"
        f"{body}<footer class='soft'>{e(foot)} Cite as: {e(CITATION)}</footer>"
    )
    blocks = blocks_html(parts, themes(), LIMIT - len(library) - len(whole.encode()))
    scripts = f"{blocks}<script>{library}</script><script>{script}</script>"
    return whole_page(title, whole, scripts)


def themes() -> dict[str, Any]:
    """What the script figures.js needs once for all figures of a page."""
    return {
        "templates": {kind: _template(name) for kind, name in (("light", "armillary"), ("dark", "armillary-dark"))},
        "darker": dict(zip(asdict(LIGHT).values(), asdict(DARK).values(), strict=True)),
        "top": TOP,
    }


def _template(name: str) -> dict[str, object]:
    template: go.layout.Template = plotly.io.templates[name]
    record: dict[str, object] = template.to_plotly_json()
    return record

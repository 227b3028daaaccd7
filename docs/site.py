"""How do the pages become a site? This file assembles them, adds those that follow from the code, and builds.

    python docs/site.py [OUT]            or `make docs-site`; needs armillary[docs], and no network

Generated: a page per claim (what is said, measured and decided, the figure, the verdicts, the calibration), a gallery,
an API reference from docstrings, and the notebooks. Figures are those in docs/figures/claims, which
`python docs/site.py --figures DIR` takes from a stored survey; `--globe` draws the sentence of the first page again.
"""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import armillary
from armillary.probes import claims
from armillary.readouts.trajectory import trajectory
from armillary.results.calibration.calibration_file import shipped
from armillary.results.claim import CHAPTERS, KINDS, SOURCES, Claim
from armillary.results.numbers import interval
from armillary.views.figures.figure import figure
from armillary.views.figures.marks import MARKS
from armillary.views.figures.print.picture import picture_svg
from armillary.views.text.calibration import claim_lines
from armillary.views.travel.svg import picture_svg as globe_svg

DOCS = Path(__file__).parent
ROOT = DOCS.parent
FIGURES = DOCS / "figures" / "claims"
# What a line of code or a printed reading does not fit is wrapped: nothing has to be scrolled sideways.
# A head of empty cells is not shown.
# At 400 pixels the theme's cells are so wide that tables of four columns would have to be scrolled.
NARROW_CSS = """.md-typeset thead:not(:has(th:not(:empty))) { display: none; }
.md-typeset pre > code { white-space: pre-wrap; overflow-wrap: anywhere; }
.md-typeset table:not([class]) td:first-child { white-space: nowrap; }
@media (max-width: 600px) {
  .md-typeset table:not([class]) th, .md-typeset table:not([class]) td { min-width: 0; padding: .5em .4em;
    overflow-wrap: anywhere; white-space: normal; }
  .md-typeset pre > code { font-size: .72em; }
}
"""
GLOBE = re.compile(r"!\[([^]]*)\]\(figures/travel\.svg\)")
CHAPTER_PAGES = dict(zip("ABCDEFGH", "sphere attention words stability filter grid lab others".split(), strict=True))
MODULES = ("armillary", "armillary.edits", "armillary.results", "armillary.results.compare", "armillary.lab.parts")
NAV: dict[str, dict[str, str]] = {
    "Start": {"The picture": "index.md", "First survey": "first-survey.md", "Gallery": "gallery.md"},
    "Use": {
        "Health": "health.md",
        "What changed": "compare.md",
        "Report": "report.md",
        "Words that travel": "travel.md",
        "Heads": "heads.md",
        "Explore": "explore.md",
        "Applications": "applications.md",
        "Examples": "examples.md",
        "Many machines": "scale.md",
        "Laboratory": "lab.md",
    },
    "Notebooks": {},
    "Claims": {"All claims": "claims/index.md", **{CHAPTERS[key]: f"{page}.md" for key, page in CHAPTER_PAGES.items()}},
    "How we know": {
        "How we know": "how-we-know.md",
        "How far to trust it": "trust.md",
        "Prior work": "prior-work.md",
        "Coverage": "coverage.md",
        "Design": "design.md",
    },
    "Reference": {
        "Python": "api.md",
        "Architectures": "families.md",
        "Kinds of models": "generalise.md",
        "Glossary": "glossary.md",
        "Changelog": "changelog.md",
    },
    "Contribute": {
        "Contributing": "contributing.md",
        "Add a probe": "add-a-probe.md",
        "Add a family": "add-a-family.md",
        "Security": "security.md",
    },
}


def assemble(work: Path) -> dict[str, dict[str, str]]:
    """Write every page of the site into a folder; returns the navigation."""
    pages = work / "docs"
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.py", "*.json", "*.jsonl", "__pycache__"))
    shutil.copytree(ROOT / "examples", pages / "examples", ignore=shutil.ignore_patterns("__pycache__", "*.ipynb"))
    for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"):
        _write(pages / f"{name.lower()}.md", _upwards((ROOT / f"{name}.md").read_text("utf-8")))
    _write(pages / "index.md", _upwards((ROOT / "README.md").read_text("utf-8")))
    for page in pages.rglob("*.md"):
        depth = "../" * (len(page.relative_to(pages).parts) - 1)
        text = re.sub(r"\]\((?:\.\./)+examples/", f"]({depth}examples/", page.read_text("utf-8"))
        _write(page, text)
    known = claims()
    for claim in known:
        _write(pages / "claims" / f"{claim.id}.md", claim_page(claim))
    _write(pages / "claims" / "index.md", claims_page(known))
    _write(pages / "gallery.md", gallery(known))
    _write(pages / "narrow.css", NARROW_CSS)
    for page in (pages / "index.md", pages / "travel.md", pages / "gallery.md"):
        _write(page, GLOBE.sub(_globe, page.read_text("utf-8")))
    _write(pages / "api.md", reference())
    nav = {name: dict(entries) for name, entries in NAV.items()}
    for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        title, text = notebook_page(path)
        _write(pages / "notebooks" / f"{path.stem}.md", text)
        nav["Notebooks"][title] = f"notebooks/{path.stem}.md"
    return nav


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _upwards(text: str) -> str:
    """A page of the root among the docs: its links lose docs/, and root pages have small names."""
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(r'src="docs/', 'src="', text)
    return re.sub(r"\]\((CHANGELOG|CONTRIBUTING|SECURITY)\.md", lambda m: f"]({m[1].lower()}.md", text)


# ---- claims ---------------------------------------------------------------------------------------------


def claim_page(claim: Claim) -> str:
    """What a claim says, how it is measured and decided, what came out, and how often the rule errs."""
    parts = [f"# {claim.id}", f"*{_plain(claim.statement)}*"]
    if claim.question:
        parts.append(_plain(claim.question))
    picture = figure_of(claim.id)
    if picture is not None:
        parts.append(picture_html(claim.id, f"../figures/claims/{picture.name}", f"{claim.id} on builtin:gpt"))
    sources = [f"{key}: {SOURCES[key]}" for key in SOURCES if re.search(rf"\b{key}\b", claim.source)]
    parts += [
        f"| | |\n|---|---|\n| chapter | [{claim.chapter}. {CHAPTERS[claim.chapter]}]"
        f"(../{CHAPTER_PAGES[claim.chapter]}.md) |\n| kind | {claim.kind}: {KINDS[claim.kind]} |\n"
        f"| source | {_plain(claim.source)} |",
        *(f"- {_plain(line)}" for line in sources),
        f"## What is measured\n\n{_lines(claim.definition)}",
        f"## Against what\n\n{_lines(claim.control)}",
        f"## What decides\n\n{_lines(claim.rule)}",
    ]
    changes = [f"- {change.date}: {_plain(change.reason)}" for change in claim.changes]
    if changes:
        parts.append("## How the rule was changed after results had been seen\n\n" + "\n".join(changes))
    parts.append("## What came out\n\n" + verdict_table(claim.id))
    calibration = shipped()
    lines = [] if calibration is None else claim_lines(calibration, claim.id, claim)
    rates = "\n".join(f"- {_plain(line)}" for line in lines) or "Not calibrated yet."
    parts.append(f"## How often the rule errs\n\n{rates}\n\n[How far to trust it](../trust.md)")
    parts.append(f"```\narmillary survey MODEL --claims {claim.id}\n```")
    return "\n\n".join(parts) + "\n"


def _lines(text: str) -> str:
    """A text of several lines as its first line and a list of the others."""
    first, *more = map(_plain, text.split("\n"))
    return "\n".join([first, *(["", *(f"- {line}" for line in more)] if more else [])])


def verdict_table(claim_id: str) -> str:
    stored = json.loads((DOCS / "verdicts.json").read_text("utf-8"))
    lines = ["| model | verdict |", "|---|---|"]
    for model, survey in stored.items():
        entry = survey["claims"].get(claim_id)
        if entry is not None:
            value = interval(*(float("nan") if x is None else x for x in entry["statistic"]))
            verdict = f"{MARKS[entry['verdict']]} {entry['verdict']}"
            lines.append(f"| {model} | {verdict}: {value}<br>{_plain(entry['headline'])} |")
    return "\n".join(lines) if len(lines) > 2 else "No survey of the docs has it yet."


def claims_page(known: Iterable[Claim]) -> str:
    lines = ["# All claims", "Each sentence has a page: what is measured, what decides, what came out."]
    chapter = ""
    for claim in known:
        if claim.chapter != chapter:
            chapter = claim.chapter
            lines.append(f"\n## {chapter}. {CHAPTERS[chapter]}\n")
        lines.append(f"- [{claim.id}]({claim.id}.md): {_plain(claim.statement)}")
    return "\n".join(lines) + "\n"


def gallery(known: Iterable[Claim]) -> str:
    parts = [
        "# Gallery",
        "Every figure of a survey of `builtin:gpt` on the built-in text; each leads to its claim.",
        "![Words that travel](figures/travel.svg)",
    ]
    for claim in known:
        picture = figure_of(claim.id)
        if picture is not None:
            shown = picture_html(claim.id, f"figures/claims/{picture.name}", claim.id)
            parts.append(f"## [{claim.id}](claims/{claim.id}.md)\n\n{shown}")
    return "\n\n".join(parts) + "\n"


def picture_html(name: str, wide: str, text: str) -> str:
    """A claim's figure; on a small screen its narrow form, laid out for 400 pixels."""
    narrow = wide.replace(f"{name}.svg", f"narrow/{name}.svg")
    return f'<picture><source media="(max-width: 600px)" srcset="{narrow}"><img src="{wide}" alt="{text}"></picture>'


def _globe(image: re.Match[str]) -> str:
    return picture_html("travel", "figures/travel.svg", image[1])


def figure_of(claim_id: str) -> Path | None:
    path = FIGURES / f"{claim_id}.svg"
    return path if path.exists() else None


def _plain(text: str) -> str:
    """Text in which Markdown finds nothing to interpret."""
    return re.sub(r"([\\*_`<>|\[\]])", r"\\\1", " ".join(str(text).split()))


# ---- Python ---------------------------------------------------------------------------------------------


def reference() -> str:
    """Signatures and docstrings of everything public."""
    parts = ["# Python reference", "Written from the docstrings."]
    for name in MODULES:
        module = import_module(name)
        parts.append(f"## {name}\n\n{_indented(module.__doc__)}")
        public = getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])
        for entry in public:
            thing = getattr(module, entry)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                parts += _entry(entry, thing)
    return "\n\n".join(parts) + "\n"


def _entry(name: str, thing: Any) -> list[str]:
    parts = [f"### {name}", f"```python\n{name}{_signature(thing)}\n```", _indented(thing.__doc__)]
    if inspect.isclass(thing):
        for method, body in vars(thing).items():
            if not method.startswith("_") and inspect.isfunction(body) and body.__doc__:
                parts.append(f"**{name}.{method}**`{_signature(body)}`\n\n{_indented(body.__doc__)}")
    return parts


def _signature(thing: Any) -> str:
    try:
        return re.sub(r"\barmillary(\.\w+)*\.(?=[A-Z])", "", str(inspect.signature(thing)))
    except (TypeError, ValueError):
        return "(…)"


def _indented(text: str | None) -> str:
    """A docstring; its examples become code."""
    lines = inspect.cleandoc(text or "").replace("\\", "\\\\").splitlines()
    out, inside = [], False
    for line in lines:
        if line.startswith(">>>") and not inside:
            out += ["```python", line]
            inside = True
        elif inside and not line.strip():
            out += ["```", ""]
            inside = False
        else:
            out.append(line if inside else line.replace("<", "&lt;").replace("*", "\\*"))
    return "\n".join([*out, "```"] if inside else out)


# ---- notebooks ------------------------------------------------------------------------------------------


def notebook_page(path: Path) -> tuple[str, str]:
    """A notebook's title and its cells as Markdown, with the text that it printed."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join("".join(output.get("text", [])) for output in cell["outputs"])
        parts += [f"```text\n{printed.rstrip()}\n```"] if printed.strip() else []
    title = "".join(cells[0]["source"]).splitlines()[0].lstrip("# ")
    where = f"*`examples/notebooks/{path.name}`*"
    return title, "\n\n".join([parts[0], where, *parts[1:]]) + "\n"


# ---- building -------------------------------------------------------------------------------------------


def configuration(nav: dict[str, dict[str, str]]) -> str:
    """mkdocs.yml as JSON, which YAML contains."""
    record = {
        "site_name": f"Armillary {armillary.__version__}",
        "docs_dir": "docs",
        "site_dir": "site",
        "use_directory_urls": False,
        # No font and no script is fetched: the site opens from disk.
        "theme": {"name": "material", "font": False, "palette": _palette(), "features": ["navigation.tabs"]},
        # Not the plugin `offline`, whose pages ask the network for a script.
        "plugins": ["search"],
        "extra_css": ["narrow.css"],
        "markdown_extensions": ["tables", "toc", "pymdownx.superfences", "attr_list", "md_in_html"],
        "validation": {"links": {"not_found": "warn", "anchors": "warn"}, "omitted_files": "ignore"},
        "nav": [{name: [{title: page} for title, page in entries.items()]} for name, entries in nav.items()],
    }
    return json.dumps(record, indent=1)


def _palette() -> list[dict[str, Any]]:
    day, night = ({"media": f"(prefers-color-scheme: {look})"} for look in ("light", "dark"))
    return [{**day, "scheme": "default", "primary": "brown"}, {**night, "scheme": "slate", "primary": "brown"}]


def build(out: Path) -> Path:
    """The site in `out`; a link that leads nowhere is an error."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        _write(work / "mkdocs.yml", configuration(assemble(work)))
        # The theme prints an advertisement unless told not to.
        quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"], cwd=work, env=quiet, check=True
        )
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(work / "site", out)
    return out


def draw_globe() -> None:
    """The first page's sentence, wide and narrow."""
    words = trajectory(armillary.load("builtin:gpt"), "To kill two birds with one stone")
    for folder, narrow in ((FIGURES.parent, False), (FIGURES.parent / "narrow", True)):
        _write(folder / "travel.svg", globe_svg(words, narrow=narrow)[0])


def take_figures(survey: Path) -> None:
    """Figures of the claims in a stored survey, wide and narrow, in the reader's theme; those of other claims stay."""
    for finding in armillary.read(survey):
        for folder, columns in ((FIGURES, 2), (FIGURES / "narrow", 1)):
            drawing = picture_svg(partial(figure, finding), columns, both=True)
            _write(folder / f"{finding.id}.svg", drawing)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--figures"]:
        take_figures(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--globe"]:
        draw_globe()
    else:
        if sys.argv[1:2] and sys.argv[1].startswith("-"):
            sys.exit(__doc__)
        print(build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site")))

"""Has every claim a page, does every link lead somewhere, and do the notebooks run?"""

import re
import runpy
from pathlib import Path

import pytest

from armillary.probes import claims

ROOT = Path(__file__).parent.parent
SITE = runpy.run_path(str(ROOT / "docs" / "site.py"))
BOOKS = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    work = tmp_path_factory.mktemp("site")
    return work / "docs", SITE["assemble"](work)


def test_every_claim_has_a_page_with_its_rule_figure_and_calibration(site):
    pages, _ = site
    for claim in claims():
        text = (pages / "claims" / f"{claim.id}.md").read_text("utf-8")
        assert SITE["_plain"](claim.statement) in text
        assert SITE["_plain"](claim.question) in text
        for words in (claim.definition, claim.control, claim.rule):
            assert all(SITE["_plain"](line) in text.splitlines() or f"- {SITE['_plain'](line)}" in text.splitlines()
                       for line in words.split("\n"))  # fmt: skip
        assert "## What came out" in text and "## How often the rule errs" in text
        for picture in re.findall(r'(?:src|srcset)="([^"]+)"', text):
            assert (pages / "claims" / picture).exists(), f"{picture} is missing: python docs/site.py --figures DIR"
        assert f'srcset="../figures/claims/narrow/{claim.id}.svg"' in text, "readable at 400 pixels, too"


def test_every_link_leads_to_a_file(site):
    pages, nav = site
    broken = []
    for page in pages.rglob("*.md"):
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for link in LINK.findall(text):
            place = link.partition("#")[0]
            if place and not re.match(r"[a-z]+:", place) and not (page.parent / place).exists():
                broken.append(f"{page.relative_to(pages)}: {link}")
    assert not broken
    assert all((pages / page).exists() for entries in nav.values() for page in entries.values())


def test_the_site_builds_without_a_network(tmp_path, monkeypatch):
    pytest.importorskip("mkdocs")
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    out = SITE["build"](tmp_path / "site")
    page = (out / "claims" / "sphere.radius.html").read_text("utf-8")
    assert "Normalised features have length" in page
    fetched = re.findall(r"""<(?:script|link|img)[^>]*(?:src|href)=["']?(https?://[^"' >]+)""", page)
    assert not [link for link in fetched if not link.startswith("https://squidfunk")], "it opens from disk"


def test_the_reference_has_everything_public(site):
    import armillary

    text = (site[0] / "api.md").read_text("utf-8")
    for name in armillary.__all__:
        assert name.startswith("__") or f"### {name}\n" in text


@pytest.mark.parametrize("name", ["student", "researcher", "engineer", "contributor"])
def test_notebooks_run_and_say_what_they_said(name):
    path = BOOKS["FOLDER"] / f"{name}.ipynb"
    book = BOOKS["run"](path)
    stored = SITE["notebook_page"](path)[1]
    for cell in book["cells"]:
        for output in cell.get("outputs", []):
            # Words, not numbers: machines round differently.
            words = re.findall(r"[A-Za-z]{4,}", "".join(output["text"]))
            assert set(words[:40]) <= set(re.findall(r"[A-Za-z]{4,}", stored))

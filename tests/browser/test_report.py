"""Do the report and the comparison work in a real browser, from disk, with no network and no stray script?"""

import csv
import io
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from armillary.results.compare import compare
from armillary.results.store import table_csv
from armillary.views.page import finding_csv
from armillary.views.report.report import save_report

pytestmark = pytest.mark.slow
SYNTHETIC = runpy.run_path(str(Path(__file__).parent / "synthetic.py"))


def two_chapters() -> Any:
    """The synthetic survey with its last three claims in a chapter of their own."""
    survey = SYNTHETIC["synthetic_survey"]()
    second = [replace(f, claim=replace(f.claim, chapter="B")) for f in survey.findings[5:]]
    return replace(survey, findings=(*survey.findings[:5], *second))


@pytest.fixture(scope="module")
def survey() -> Any:
    return two_chapters()


@pytest.fixture(scope="module")
def report(survey: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_report(survey, tmp_path_factory.mktemp("report") / "report.html")


class Watched:
    """A page with everything it said and asked for."""

    def __init__(self, browser: Any, path: Path, anchor: str = "", **options: Any) -> None:
        options = {"viewport": {"width": 1200, "height": 800}, **options}
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri() + anchor)

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            assert self.problems == []
            own = [url for url in self.requests if not url.startswith(("data:", "blob:"))]
            assert len(own) == 1 and own[0].startswith("file:"), "only the page itself"
            assert self.page.evaluate("window.pwned") is None
        finally:
            self.context.close()

    def rows(self) -> list[str]:
        return self.page.eval_on_selector_all(
            ".ledger tr[data-id]", "rows => rows.filter(r => r.offsetParent).map(r => r.dataset.id)"
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400])
def test_it_opens_from_disk_at_any_width_in_either_theme(browser: Any, report: Path, scheme: str, width: int) -> None:
    with Watched(browser, report, color_scheme=scheme, viewport={"width": width, "height": 800}) as seen:
        page = seen.page
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert ground == {"light": "rgb(251, 250, 247)", "dark": "rgb(14, 20, 32)"}[scheme]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.locator("article").first.scroll_into_view_if_needed()
        page.wait_for_selector(".figure.drawn .main-svg")
        drawn = page.locator(".figure .main-svg").first.evaluate("e => e.style.background || e.style.backgroundColor")
        assert drawn == ground


def test_figures_reflow_on_a_narrow_screen_and_back(browser: Any, report: Path) -> None:
    """Nothing scrolls sideways at 400 pixels; a figure gets its wide form back when the window grows."""
    with Watched(browser, report, viewport={"width": 400, "height": 800}) as seen:
        place = seen.page.locator(".figure").first
        place.scroll_into_view_if_needed()
        place.locator(".main-svg").first.wait_for()
        wide = """() => [...document.querySelectorAll(".scroll, .wide, nav")]
          .filter(one => one.clientWidth && one.scrollWidth > one.clientWidth + 1).length"""
        assert seen.page.evaluate(wide) == 0
        assert place.bounding_box()["width"] <= 400
        narrow = place.bounding_box()["height"]
        seen.page.set_viewport_size({"width": 1200, "height": 800})
        seen.page.wait_for_timeout(600)
        assert place.bounding_box()["width"] >= 600
        assert place.bounding_box()["height"] < narrow, "labels stand beside the lines again"


def test_a_chapter_of_the_ledger_fits_a_laptop_screen(browser: Any, tmp_path: Path) -> None:
    path = save_report(SYNTHETIC["synthetic_survey"](), tmp_path / "report.html")
    with Watched(browser, path, viewport={"width": 1280, "height": 720}) as seen:
        box = seen.page.locator(".ledger").bounding_box()
        assert box["height"] < 640
        assert len(seen.rows()) == 8


def test_figures_are_drawn_only_when_they_come_into_view(browser: Any, report: Path, survey: Any) -> None:
    with Watched(browser, report) as seen:
        seen.page.wait_for_timeout(300)
        assert seen.page.locator(".figure.drawn").count() < len(survey)
        height = seen.page.evaluate("document.documentElement.scrollHeight")
        seen.page.locator("article").last.scroll_into_view_if_needed()
        seen.page.wait_for_selector("article:last-of-type .figure.drawn")
        assert abs(seen.page.evaluate("document.documentElement.scrollHeight") - height) < 40, "nothing jumps"


def test_the_ledger_sorts(browser: Any, report: Path, survey: Any) -> None:
    with Watched(browser, report) as seen:
        page, ids = seen.page, [finding.id for finding in survey]
        assert seen.rows() == ids
        page.uncheck("#grouped")
        by_number = sorted(ids, key=lambda i: survey[i].statistic.value)
        head = page.get_by_role("button", name="measured")
        head.click()
        assert seen.rows() == by_number
        assert head.locator("..").get_attribute("aria-sort") == "ascending"
        head.click()
        assert seen.rows() == by_number[::-1]
        head.click()
        assert seen.rows() == ids, "as it was"
        page.get_by_role("button", name="claim", exact=True).press("Enter")
        assert seen.rows() == sorted(ids)
        page.check("#grouped")
        assert seen.rows() == sorted(ids[:5]) + sorted(ids[5:]), "within chapters"


def test_the_ledger_filters(browser: Any, report: Path, survey: Any) -> None:
    with Watched(browser, report) as seen:
        page = seen.page
        page.click(".chip[value=refuted]")
        assert seen.rows() == ["sphere.plane", "spectrum.two-zeros"]
        assert page.locator(".chip[value=refuted]").get_attribute("aria-pressed") == "true"
        page.click(".chip[value=undecided]")
        assert len(seen.rows()) == 3
        page.select_option("#chapter", label="A. The sphere")
        assert seen.rows() == ["sphere.plane"]
        assert not page.locator("tbody[data-chapter=B]").is_visible()
        page.fill("#find", "no such word")
        assert seen.rows() == []
        assert page.locator(".none").is_visible()
        assert page.inner_text("#found") == "0 of 8"
        page.click(".chip[value=refuted]")
        page.click(".chip[value=undecided]")
        page.select_option("#chapter", "")
        page.fill("#find", "THIN SHELL")
        assert seen.rows() == ["sphere.concentration"]


def test_a_short_word_is_not_found_within_others(browser: Any, report: Path) -> None:
    """'OV' is a synonym; 'over', 'above' and 'removed' hold its letters."""
    with Watched(browser, report) as seen:
        held = seen.page.evaluate("['over, above', 'values ov', 'w_vo'].map(holding('ov', ['over', 'values ov']))")
        assert held == [False, True, False]
        assert seen.page.evaluate("['over', 'above'].map(holding('ov', ['over', 'above']))") == [True, True]
        assert seen.page.evaluate("['qk.lookup'].map(holding('qk', ['qk.lookup']))") == [True]


def test_a_claim_can_be_linked_to(browser: Any, report: Path) -> None:
    with Watched(browser, report, "#spectrum.local") as seen:
        seen.page.wait_for_selector("[id='spectrum.local'] .figure.drawn")
        top = seen.page.locator("[id='spectrum.local']").bounding_box()["y"]
        assert -5 < top < 120
        assert seen.page.locator("tr.here").get_attribute("data-id") == "spectrum.local"
        seen.page.locator(".ledger").get_by_role("link", name="sphere.plane").click()
        assert seen.page.url.endswith("#sphere.plane")


def test_hovering_says_the_token_and_runs_nothing(browser: Any, report: Path) -> None:
    with Watched(browser, report, "#sphere.direction") as seen:
        place = seen.page.locator("[id='sphere.direction'] .figure.drawn")
        place.locator(".heatmaplayer image, .heatmaplayer .hm").first.wait_for()
        box = place.locator(".heatmaplayer").first.bounding_box()
        seen.page.mouse.move(box["x"] + 20, box["y"] + 20)
        place.locator(".hoverlayer text").first.wait_for()
        assert "layer" in place.locator(".hoverlayer").text_content(), "what the page folded is whole again"
        point = place.locator(".trace").last.locator(".points path").first
        point.scroll_into_view_if_needed()
        box = point.bounding_box()
        seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        place.locator(".hoverlayer text", has_text="window.pwned=1").first.wait_for()


def test_tables_are_paged_sorted_searched_and_saved(browser: Any, report: Path, survey: Any) -> None:
    with Watched(browser, report, "#sphere.plane") as seen:
        details = seen.page.locator("[id='sphere.plane'] details.paged")
        details.locator("summary").first.click()
        cells = details.locator("tbody tr td:first-child")
        # A browser tells of an opened element later than the click returns.
        cells.first.wait_for()
        assert cells.count() == 25
        assert "rows 1–25 of 61" in details.inner_text()
        details.get_by_label("rows after").click()
        assert cells.first.inner_text() == "L12.ln2"
        details.get_by_label("rows after").click()
        assert (cells.count(), details.get_by_label("rows after").is_disabled()) == (11, True)
        head = details.get_by_role("button", name="value")
        head.click()
        head.click()
        assert cells.first.inner_text() == "ln_final", "largest first"
        details.get_by_label("find in this table").fill("L29")
        assert cells.all_inner_texts() == ["L29.ln2", "L29.ln1"]
        details.get_by_label("find in this table").fill("pwned")
        assert details.locator("td:nth-child(4)").first.inner_text() == "<script>window.pwned=1</script>"
        assert details.locator("script").count() == 0
        with seen.page.expect_download() as waiting:
            details.get_by_label("save this table as csv").click()
        assert waiting.value.suggested_filename == "sphere.plane.csv"
        # A browser has no half characters: the table's one is saved as �.
        saved = Path(waiting.value.path()).read_bytes().decode()
        assert saved == table_csv(survey["sphere.plane"].table).replace("\udce2", "\ufffd")
        assert len(list(csv.reader(io.StringIO(saved, newline="")))) == 62


@pytest.mark.parametrize("kind", ["png", "svg", "csv"])
def test_every_figure_can_be_saved(browser: Any, report: Path, survey: Any, kind: str) -> None:
    with Watched(browser, report, "#sphere.direction") as seen:
        with seen.page.expect_download() as waiting:
            seen.page.click(f"[id='sphere.direction'] .save button[value={kind}]")
        assert waiting.value.suggested_filename == f"sphere.direction.{kind}"
        content = Path(waiting.value.path()).read_bytes()
        if kind == "csv":
            assert content.decode() == finding_csv(survey["sphere.direction"])
        else:
            assert content.startswith(b"\x89PNG" if kind == "png" else b"<svg")
        if kind == "svg":
            assert "Direction beats length" in content.decode(), "a saved picture carries its title"


def test_on_paper_everything_is_open_and_light(browser: Any, report: Path, survey: Any, tmp_path: Path) -> None:
    with Watched(browser, report, color_scheme="dark") as seen:
        page = seen.page
        page.evaluate(
            "addEventListener('beforeprint', () => { window.printed = {"
            "drawn: document.querySelectorAll('.figure.drawn').length,"
            "closed: document.querySelectorAll('details:not([open]):not(.meanings)').length,"
            "rows: document.querySelectorAll('.paged tbody tr').length,"
            "ground: document.querySelector('.figure .main-svg').style.background}; })"
        )
        page.pdf(path=str(tmp_path / "report.pdf"), format="A4")
        printed = page.evaluate("window.printed")
        assert printed["drawn"] == len(survey)
        assert printed["closed"] == 0
        assert printed["rows"] == 8 * 25 + 8, "each table's first page, and the short one"
        assert "255, 255, 255" in printed["ground"] or "#fff" in printed["ground"]
        assert (tmp_path / "report.pdf").stat().st_size > 50_000
        page.wait_for_timeout(200)
        assert page.locator("details[open]").count() == 0, "and closed again afterwards"


def test_hostile_words_do_nothing(browser: Any, tmp_path: Path) -> None:
    path = save_report(SYNTHETIC["hostile_survey"](), tmp_path / "report.html")
    with Watched(browser, path) as seen:
        for place in seen.page.locator(".figure").all():
            place.scroll_into_view_if_needed()
        for summary in seen.page.locator("details.paged > summary").all():
            summary.click()
        seen.page.wait_for_timeout(300)
        assert seen.page.locator("article script, .ledger script, article b b").count() == 0
        assert seen.page.locator("article").count() == 8
        assert "window.pwned=1" in seen.page.inner_text("article >> nth=0")


def test_a_comparison_opens_from_disk(browser: Any, survey: Any, tmp_path: Path) -> None:
    moved = [
        replace(f, statistic=replace(f.statistic, **{k: 3 * getattr(f.statistic, k) for k in ("value", "low", "high")}))
        for f in survey
    ]
    other = replace(survey, findings=tuple(moved), model=replace(survey.model, name="tuned"))
    path = compare(survey, other).save(tmp_path / "compare.html")
    with Watched(browser, path) as seen:
        page = seen.page
        assert "tuned against smollm2-135m" in page.inner_text("h1")
        before = len(seen.rows())
        page.click(".chip[value=differs]")
        assert 0 < len(seen.rows()) < before
        page.locator("article").first.scroll_into_view_if_needed()
        page.wait_for_selector(".figure.drawn .main-svg")
        page.locator("details.paged summary").first.click()
        page.wait_for_selector("details.paged[open] tbody tr")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_nothing_in_the_ledger_is_cut(browser: Any, report: Path) -> None:
    """Neither a reading, nor a statement, nor the label of a control; the whole reading is one click away."""
    cut = """[...document.querySelectorAll('.ledger *')].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth
        && getComputedStyle(e).overflow != 'visible').map(e => e.textContent)"""
    for width in (1200, 400):
        with Watched(browser, report, viewport={"width": width, "height": 800}) as seen:
            assert seen.page.evaluate(cut) == []
            clamps = "[...document.querySelectorAll('.ledger *')].map(e => getComputedStyle(e).webkitLineClamp)"
            assert set(seen.page.evaluate(clamps)) <= {"none"}
            reading = seen.page.locator(".ledger .more").first
            assert not reading.is_visible()
            seen.page.check("#whole")
            assert reading.is_visible()
            assert not seen.page.locator(".ledger .told").first.is_visible()

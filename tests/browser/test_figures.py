"""Does a saved figure work in a real browser, from a file, with no network and no stray script?"""

import csv
import io
import runpy
from pathlib import Path
from typing import Any

import pytest

from armillary.views.page import finding_csv
from armillary.views.save import save_finding

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finding() -> Any:
    survey = runpy.run_path(str(Path(__file__).parent / "synthetic.py"))["synthetic_survey"]()
    return survey["sphere.direction"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_figure_opens_from_a_file(browser: Any, finding: Any, tmp_path: Path, scheme: str) -> None:
    path = save_finding(finding, tmp_path / "figure.html")
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1100, "height": 1300})
    page = context.new_page()
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("#figure .heatmaplayer image, #figure .heatmaplayer .hm")

    # Hovering writes the token, in full, into the page.
    point = page.locator("#figure .trace").last.locator(".points path").first.bounding_box()
    page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    page.wait_for_selector(".hoverlayer text", timeout=5000)
    assert "window.pwned=1" in page.locator(".hoverlayer").text_content()
    assert page.evaluate("window.pwned") is None
    assert page.locator("#figure script").count() == 0

    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == {"light": "rgb(251, 250, 247)", "dark": "rgb(14, 20, 32)"}[scheme]
    drawn = page.locator("#figure .main-svg").first.evaluate("e => e.style.background || e.style.backgroundColor")
    assert drawn == ground
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert [url for url in requests if url.startswith("file:")] == [path.as_uri()]
    context.close()


@pytest.mark.parametrize("kind", ["png", "svg", "csv"])
def test_the_save_buttons_save(browser: Any, finding: Any, tmp_path: Path, kind: str) -> None:
    path = save_finding(finding, tmp_path / "figure.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    with page.expect_download() as waiting:
        page.click(f".save button[value={kind}]")
    assert waiting.value.suggested_filename == f"sphere.direction.{kind}"
    content = Path(waiting.value.path()).read_bytes()
    if kind == "csv":
        assert content.decode() == finding_csv(finding)
        rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
        assert rows[-8]["token"] == "<script>window.pwned=1</script>"
    else:
        assert content.startswith(b"\x89PNG" if kind == "png" else b"<svg")
    if kind == "svg":
        assert "Direction beats length" in content.decode(), "a saved picture carries its title"
    page.close()

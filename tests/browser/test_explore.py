"""Do the rooms work in a real browser, on a real server with a real model? And do they keep to this machine?"""

import functools
import http.server
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from explored import Running, Watched
from tiny import tiny

pytestmark = pytest.mark.slow
ROOMS = "ledger sphere heads norms filter edits drift shear training laboratory compare".split()
TYPED = "The cat sat on the mat"
AXE = Path(os.environ.get("ARMILLARY_AXE", Path(sys.prefix) / "axe" / "package" / "axe.min.js"))

# Elements whose content is wider than they are and can only be seen by scrolling; a sentence's box wraps.
SIDEWAYS = """() => [...document.querySelectorAll(".page *")].filter(one => one.tagName !== "TEXTAREA"
  && ["auto", "scroll"].includes(getComputedStyle(one).overflowX)
  && one.clientWidth && one.scrollWidth > one.clientWidth + 1)
  .map(one => `${one.className}: ${one.scrollWidth} > ${one.clientWidth}`)"""

# Words of figures that reach beyond their figure, where they are cut.
CUT = """() => [...document.querySelectorAll(".figure")].flatMap(figure => {
  const frame = figure.getBoundingClientRect();
  return [...figure.querySelectorAll("text")].filter(one => {
    const box = one.getBoundingClientRect();
    return box.width && (box.right > frame.right + 1 || box.left < frame.left - 1);
  }).map(one => one.textContent);
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize("room", ROOMS)
def test_a_room_opens(browser: Any, server: Running, room: str, width: int, scheme: str, tmp_path: Path) -> None:
    size = {"width": width, "height": 900}
    with Watched(browser, server.address, room, color_scheme=scheme, viewport=size) as seen:
        seen.settle()
        page = seen.page
        assert page.locator("nav a[aria-current]").inner_text().lower() == room
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert ground == {"light": "rgb(251, 250, 247)", "dark": "rgb(14, 20, 32)"}[scheme]
        cut = page.eval_on_selector_all(
            ".figure .main-svg", "all => all.some(one => one.getBoundingClientRect().right > innerWidth + 1)"
        )
        assert not cut, "figures fit"
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        page.wait_for_timeout(100)
        assert page.evaluate(SIDEWAYS) == [], "tables and figures reflow"
        assert page.evaluate(CUT) == []
        page.screenshot(path=tmp_path / f"{room}-{width}-{scheme}.png", full_page=True)
        assert seen.refused() == []
        assert not page.locator(".working:visible").count(), "nothing is at work any more"
        assert page.locator("#status").inner_text() == "", "nothing was replaced"
        assert seen.problems == []


@pytest.mark.parametrize("room", ["sphere", "heads", "norms", "filter", "edits", "compare"])
def test_typing_changes_what_is_shown(browser: Any, server: Running, room: str) -> None:
    with Watched(browser, server.address, room) as seen:
        seen.settle()
        before = seen.page.locator("#parts").inner_text()
        seen.page.fill("#field-sentence", TYPED)
        typed = re.compile("␣sat|cat sat")
        seen.page.locator("#parts", has_text=typed).wait_for(timeout=60_000)
        seen.settle()
        after = seen.page.locator("#parts").inner_text()
        assert typed.search(after)
        assert not typed.search(before)
        assert "sentence=The+cat+sat" in seen.page.url
        assert seen.problems == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_figure_is_saved(browser: Any, server: Running, room: str) -> None:
    more = "&claim=sphere.radius" if room == "ledger" else ""
    with Watched(browser, server.address, room, more, accept_downloads=True) as seen:
        seen.settle()
        row = seen.page.locator(".save").first
        for kind, start in (("png", b"\x89PNG"), ("svg", b"<svg"), ("csv", None)):
            with seen.page.expect_download() as caught:
                row.locator("button", has_text=kind).click()
            content = Path(caught.value.path()).read_bytes()
            assert content.startswith(start) if start else b"," in content
        assert seen.problems == []


def test_a_click_on_the_atlas_shows_that_heads_pattern(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "heads") as seen:
        seen.settle()
        seen.page.wait_for_selector(".part .nsewdrag")
        box = seen.page.locator(".part .nsewdrag").first.bounding_box()
        # The middle of the second column and the third row, of four heads and seven layers.
        seen.page.mouse.click(box["x"] + box["width"] * 1.5 / 4, box["y"] + box["height"] * 2.5 / 7)
        seen.page.wait_for_selector("h3:has-text('L2H1 gives')", timeout=30_000)
        assert seen.page.input_value("#field-layer") == "2"
        assert seen.page.input_value("#field-head") == "1"
        assert "layer=2" in seen.page.url and "head=1" in seen.page.url
        assert seen.problems == []


def test_names_of_statistics_fit_beside_the_pattern(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "heads", "&statistic=induction") as seen:
        for width in (1200, 920, 660, 400):
            seen.page.set_viewport_size({"width": width, "height": 900})
            seen.page.wait_for_timeout(400)
            seen.settle()
            assert "followed the same token" in seen.page.locator(".figure").first.inner_text().replace("\n", " ")
            assert seen.page.evaluate(CUT) == [], width
        assert seen.problems == []


@pytest.mark.parametrize(("room", "fields"), [("heads", ("layer", "head")), ("filter", ("layer",))])
def test_the_choice_is_framed_on_the_map(browser: Any, server: Running, room: str, fields: tuple[str, ...]) -> None:
    framed = "document.querySelector('.part .figure').layout.shapes.map(one => [one.y0 + .5, one.x0])"
    with Watched(browser, server.address, room, "&layer=2&head=1") as seen:
        seen.settle()
        assert seen.page.evaluate(framed)[0] == [2, 0.5 if len(fields) == 2 else 0]
        seen.page.fill("#field-layer", "4")
        seen.page.wait_for_timeout(500)
        seen.settle()
        assert seen.page.evaluate(framed)[0][0] == 4
        assert seen.problems == []


def test_a_long_sentence_is_refused_and_not_cut(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "norms") as seen:
        seen.settle()
        seen.page.fill("#field-sentence", "word " * 10_000)
        seen.page.wait_for_selector(".refused:has-text('50,000 characters')")
        assert len(seen.page.input_value("#field-sentence")) == 50_000
        assert len(seen.page.url) < 2000
        seen.page.fill("#field-sentence", TYPED)
        seen.page.wait_for_selector(".refused", state="detached")
        seen.settle()
        assert seen.problems == []


def test_the_evidence_of_a_claim_is_one_click_away(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "ledger") as seen:
        seen.settle()
        seen.page.click("tr[data-id='sphere.radius'] a")
        seen.page.wait_for_selector("article#sphere\\.radius .main-svg")
        assert "claim=sphere.radius" in seen.page.url
        seen.page.click("text=Back to the ledger")
        assert not seen.page.locator("article").count()
        assert seen.page.evaluate("document.activeElement.textContent") == "sphere.radius"
        assert seen.problems == []


def test_two_tabs_with_two_models_do_not_mix(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "sphere", "&model=builtin:gpt") as seen:
        other = seen.tab(server.address + "&room=sphere&model=builtin:llama")
        for turn in range(3):
            for page in (seen.page, other):
                page.fill("#field-sentence", f"number {turn} of these words")
            page.wait_for_timeout(500)
            for page, name in ((seen.page, "builtin:gpt"), (other, "builtin:llama")):
                seen.settle(page)
                page.wait_for_selector(f".travel p.soft:has-text('number {turn} of')", timeout=60_000)
                assert page.locator(".travel p.soft").first.inner_text().startswith(name)
        assert seen.problems == []


def test_the_globe_plays_and_hears_the_keyboard(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "sphere") as seen:
        seen.settle()
        page = seen.page
        page.locator(".sphere canvas").focus()
        page.keyboard.press("Home")
        page.wait_for_selector(".layers output:text-is('start')")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".layers output:text-is('after L0')")
        page.fill("#field-sentence", TYPED)
        page.keyboard.press("ArrowLeft")
        seen.settle()
        assert page.input_value("#field-sentence") == TYPED, "keys in a field are the field's"
        assert seen.problems == []


def test_every_control_is_reached_by_tab(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "edits") as seen:
        seen.settle()
        reached = set()
        for _ in range(60):
            seen.page.keyboard.press("Tab")
            reached.add(seen.page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        wanted = {"field-sentence", "field-layer", "field-head", "field-off", "field-shuffle", "field-freeze",
                  "field-factor", "choose-model", "Ledger", "Compare"}  # fmt: skip
        assert wanted <= reached


def test_without_the_token_nothing_is_shown_and_it_can_be_given(browser: Any, server: Running) -> None:
    bare, token = server.address.split("?token=")
    with Watched(browser, bare) as seen:
        seen.page.wait_for_selector("form.token")
        assert not seen.page.locator("nav a").count()
        seen.page.fill("#token", server.address)
        seen.page.click("form.token button")
        seen.settle()
        assert token not in seen.page.url


@pytest.mark.parametrize("room", ROOMS)
def test_the_accessibility_checker_finds_nothing_serious(browser: Any, server: Running, room: str) -> None:
    if not AXE.exists():
        pytest.skip(f"no {AXE}: make slow fetches axe-core, or set ARMILLARY_AXE")
    for scheme in ("light", "dark"):
        with Watched(browser, server.address, room, bypass_csp=True, color_scheme=scheme) as seen:
            seen.settle()
            seen.page.evaluate(AXE.read_text("utf-8"))
            violations = seen.page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
            serious = [
                (violation["id"], violation["impact"], [node["target"] for node in violation["nodes"]][:3])
                for violation in violations
                if violation["impact"] in ("serious", "critical")
            ]
            assert serious == [], json.dumps(serious, indent=1)


@pytest.mark.parametrize("room", ["sphere", "heads", "ledger", "training", "edits", "norms", "shear"])
def test_a_saved_room_works_from_disk(browser: Any, server: Running, room: str, tmp_path: Path) -> None:
    with Watched(browser, server.address, room, accept_downloads=True) as seen:
        seen.settle()
        with seen.page.expect_download(timeout=60_000) as caught:
            seen.page.click("#export")
        caught.value.save_as(tmp_path / "room.html")
    context = browser.new_context()
    problems: list[str] = []
    page = context.new_page()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if request.url.startswith("http") else None)
    page.goto((tmp_path / "room.html").as_uri())
    page.wait_for_selector(".main-svg, .sphere canvas, table.ledger")
    page.wait_for_timeout(300)
    page.set_viewport_size({"width": 400, "height": 900})
    page.wait_for_timeout(800)
    beyond = "all => all.some(one => one.getBoundingClientRect().right > innerWidth + 1)"
    assert not page.eval_on_selector_all(".figure text", beyond), "labels reflow without a server"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []
    context.close()


def test_a_vocabulary_that_attacks_is_text_and_no_path_is_shown(browser: Any, tmp_path: Path) -> None:
    hostile = runpy.run_path(str(Path(__file__).parents[1] / "test_travel_view.py"))
    words = [*hostile["EVIL"], "$x$", "<img/src=x/onerror=window.pwned=1>"]
    hostile["EVIL"][:] = words
    folder = tmp_path / "secret" / "evil"
    tiny("gpt2").save_pretrained(folder)
    hostile["evil_tokenizer"]().save_pretrained(folder)
    running = Running(folder)
    try:
        for room in ("sphere", "heads", "norms", "filter", "edits", "drift"):
            with Watched(browser, running.address, room, "&word=$x$" if room == "heads" else "") as seen:
                seen.page.wait_for_selector("#facts:has-text('evil · 3 layers')", timeout=60_000)
                seen.page.fill("#field-text" if room == "drift" else "#field-sentence", " ".join(words))
                seen.page.wait_for_timeout(500)
                seen.settle()
                text = seen.page.locator("body").inner_text()
                assert "$x$" in text and "onerror" in text and "secret" not in text
                assert seen.page.evaluate("window.pwned") is None
                assert not seen.page.locator("#parts img, #parts script, #parts iframe").count()
                assert seen.refused() == []
                assert seen.problems == []
    finally:
        assert running.stop()[0] == 0


def test_work_can_be_cancelled_and_asked_for_again(browser: Any) -> None:
    running = Running("builtin:gpt")
    try:
        with Watched(browser, running.address, "heads") as seen:
            part = seen.page.locator("section[aria-label='The atlas']")
            part.locator("button", has_text="Cancel").click(timeout=60_000)
            assert "Cancelled" in part.inner_text()
            part.locator("button", has_text="Ask again").click()
            part.locator(".main-svg").first.wait_for(timeout=120_000)
            seen.settle()
            assert seen.problems == []
    finally:
        assert running.stop()[0] == 0


def test_a_third_tab_opens_while_two_compute(browser: Any) -> None:
    """A browser has six connections to one server; the parts of two tabs at work must leave some."""
    running = Running("builtin:gpt")
    try:
        with Watched(browser, running.address, "heads") as seen:
            second = seen.tab(running.address + "&room=heads&layer=1")
            for page in (seen.page, second):
                page.locator("section[aria-label='The atlas'] .working").wait_for(timeout=60_000)
                assert page.evaluate("streams") <= 2
            os.kill(running.children()[0].pid, signal.SIGSTOP)
            third = seen.tab(running.address + "&room=shear")
            third.locator(".main-svg").first.wait_for(timeout=30_000)
            os.kill(running.children()[0].pid, signal.SIGCONT)
            for page in (seen.page, second):
                seen.settle(page)
                assert page.evaluate("[streams, lined.length]") == [0, 0]
            assert seen.problems == []
    finally:
        assert running.stop()[0] == 0


def test_a_killed_worker_is_started_again_and_the_page_says_so(browser: Any) -> None:
    running = Running("builtin:gpt")
    try:
        with Watched(browser, running.address, "heads") as seen:
            part = seen.page.locator("section[aria-label='The atlas']")
            part.locator(".working", has_text=re.compile("decomposing|reading|patterns")).wait_for(timeout=120_000)
            for child in running.children():
                child.kill()
            seen.page.wait_for_selector("text=it is started again", timeout=60_000)
            part.locator(".main-svg").first.wait_for(timeout=120_000)
            assert seen.problems == []
    finally:
        assert running.stop()[0] == 0


def test_ctrl_c_leaves_nothing_behind(browser: Any) -> None:
    running = Running("builtin:gpt")
    with Watched(browser, running.address, "sphere") as seen:
        seen.settle()
        children = running.children()
        assert len(children) == 1, "one model, one process"
        code, errors = running.stop()
    assert code == 0
    assert errors.strip() == "Stopped."
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert not alive, gone


def test_a_notebook_of_another_name_shows_the_page_in_its_frame(browser: Any, tmp_path: Path) -> None:
    """Jupyter is at localhost, the frame at 127.0.0.1: another site, in which a browser forbids storage."""
    import armillary

    page = armillary.explore("builtin:gpt")
    (tmp_path / "notebook.html").write_text(f"<!doctype html><link rel=icon href='data:,'>{page._repr_html_()}")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    notebook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=notebook.serve_forever, daemon=True).start()
    try:
        with Watched(browser, "about:blank") as seen:
            seen.page.goto(f"http://localhost:{notebook.server_port}/notebook.html")
            frame = seen.page.frame_locator("iframe")
            frame.locator(".travel canvas").first.wait_for(timeout=120_000)
            frame.locator("nav a[data-room=shear]").click()
            frame.locator(".main-svg").first.wait_for(timeout=60_000)
            assert [
                problem for problem in seen.problems if "localhost" not in problem and "about:" not in problem
            ] == []
    finally:
        notebook.shutdown()
        notebook.server_close()
        page.stop()


SCRIPT = """
import armillary
page = armillary.explore("builtin:gpt")
print(page.address, flush=True)
input()
page.stop()
print("stopped")
"""


def test_a_plain_script_can_show_the_page(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "script.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    with Watched(browser, process.stdout.readline().strip(), "sphere") as seen:
        seen.settle()
        assert seen.refused() == []
        assert seen.problems == []
    output, complaints = process.communicate("\n", timeout=30)
    assert (output.strip(), complaints) == ("stopped", "")


def test_an_impatient_ctrl_c_is_quiet(browser: Any) -> None:
    running = Running("builtin:gpt")
    with Watched(browser, running.address, "sphere") as seen:
        seen.settle()
        running.process.send_signal(signal.SIGINT)
        code, errors = running.stop()
    assert code == 0
    assert errors.strip() == "Stopped."


def test_ctrl_c_while_the_model_is_loaded_is_quiet(browser: Any) -> None:
    running = Running("builtin:gpt")
    with Watched(browser, running.address, "sphere") as seen:
        seen.page.wait_for_selector("text=loading")
        code, errors = running.stop()
    assert code == 0
    assert errors.strip() == "Stopped."


def test_a_browser_that_goes_away_frees_the_worker(browser: Any) -> None:
    running = Running("builtin:gpt")
    try:
        with Watched(browser, running.address, "heads") as seen:
            seen.page.locator("section[aria-label='The atlas'] .working").wait_for(timeout=120_000)
        start = time.monotonic()
        with Watched(browser, running.address, "sphere") as seen:
            seen.settle()
            assert seen.problems == []
        assert time.monotonic() - start < 60
    finally:
        assert running.stop()[0] == 0

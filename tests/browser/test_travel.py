"""Does a trajectory's page rotate, play and respond in a real browser, offline and without stray scripts?"""

import re
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
TRAVEL = runpy.run_path(str(Path(__file__).parents[1] / "test_travel_view.py"))

pytestmark = pytest.mark.slow
# WebGL is off: nothing here may need it.
FLAGS = ("--disable-gpu", "--disable-3d-apis")
GROUND = {"light": "rgb(251, 250, 247)", "dark": "rgb(14, 20, 32)"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: Any) -> dict[str, Path]:
    from tiny import tiny

    from armillary import load
    from armillary.readouts.trajectory import trajectory

    folder = tmp_path_factory.mktemp("travel")
    plain = load(tiny("gpt2"), tokenizer=TRAVEL["tokenizer"](), progress=False)
    evil = load(tiny("gpt2"), tokenizer=TRAVEL["evil_tokenizer"](), progress=False)
    travels = {
        "short": trajectory(plain, "to kill"),
        "middle": trajectory(plain, TRAVEL["SENTENCE"]),
        "long": trajectory(plain, "the birds " * 12),
        "span": trajectory(plain, TRAVEL["SENTENCE"], "span"),
        "evil": trajectory(evil, " ".join(TRAVEL["EVIL"])),
    }
    return {name: travel.save(folder / f"{name}.html") for name, travel in travels.items()}


def opened(browser: Any, path: Path, problems: list[str], **more: Any) -> Any:
    page = browser.new_context(**{"viewport": {"width": 1200, "height": 1000}, **more}).new_page()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "blob:")) else problems.append(request.url)
    )
    page.goto(path.as_uri())
    return page


def painted(page: Any) -> str:
    return str(page.evaluate("document.querySelector('canvas').toDataURL()"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize("name", ["short", "middle", "long", "span", "evil"])
def test_the_page_opens(browser: Any, pages: dict[str, Path], scheme: str, width: int, name: str) -> None:
    problems: list[str] = []
    page = opened(browser, pages[name], problems, color_scheme=scheme, viewport={"width": width, "height": 900})
    page.wait_for_selector(".travel.alive canvas")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == GROUND[scheme]
    assert "rank correlation with true angles" in page.locator(".scores").inner_text()
    assert page.locator(".scores").is_visible()
    box = page.locator("canvas").bounding_box()
    assert box["width"] == box["height"] > 300
    shades = page.evaluate(
        "(canvas => [...new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)"
        ".data.buffer)].reduce((s, v) => s.add(v), new Set()).size)(document.querySelector('canvas'))"
    )
    assert shades > 200, "a shaded globe with lines, not an empty sheet"
    assert page.locator(".card td.word").count() == 5
    assert not page.locator(".paper").is_visible()
    assert problems == []
    page.context.close()


def test_it_plays_in_five_seconds(browser: Any, pages: dict[str, Path]) -> None:
    problems: list[str] = []
    page = opened(browser, pages["middle"], problems)
    started = time.time()
    page.click(".layers button")
    page.wait_for_timeout(1500)
    assert 0 < page.evaluate("globe.state.time") < 3
    assert page.locator("output").inner_text() != "after L2"
    while page.evaluate("globe.state.play !== null"):
        page.wait_for_timeout(50)
    assert 4.5 < time.time() - started < 8
    assert page.locator("output").inner_text() == "after L2"
    assert problems == []
    page.context.close()


def test_keys_step_choose_turn_and_play(browser: Any, pages: dict[str, Path]) -> None:
    page = opened(browser, pages["middle"], [])
    page.keyboard.press("Home")
    page.wait_for_timeout(100)
    assert page.locator("output").inner_text() == "start"
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(100)
    assert page.locator("output").inner_text() == "after L0"
    assert page.locator(".layers input").input_value() == "1"
    page.keyboard.press("ArrowDown")
    page.wait_for_timeout(100)
    assert (
        page.locator(".sentence [aria-pressed=true]").inner_text()
        == page.locator(".sentence button").first.inner_text()
    )
    before = painted(page)
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_timeout(100)
    assert painted(page) != before
    page.keyboard.press("Escape")
    page.wait_for_timeout(100)
    assert page.locator(".sentence [aria-pressed=true]").count() == 0
    page.keyboard.press(" ")
    assert page.evaluate("globe.state.play !== null")
    page.keyboard.press(" ")
    assert page.evaluate("globe.state.play === null")
    page.context.close()


def test_dragging_turns_and_pointing_tells(browser: Any, pages: dict[str, Path]) -> None:
    page = opened(browser, pages["middle"], [])
    box = page.locator("canvas").bounding_box()
    before = page.evaluate("globe.state.turn")
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    turn = page.evaluate("globe.state.turn")
    assert turn != before
    assert sum(turn[0][k] * turn[1][k] for k in range(3)) == pytest.approx(0, abs=1e-5)
    spot = page.evaluate("globe.spots().filter(s => s.z > 0 && s.step === 1)[0]")
    page.mouse.move(box["x"] + spot["x"], box["y"] + spot["y"])
    page.wait_for_selector(".tip:not([hidden])")
    tip = page.locator(".tip").inner_text()
    assert re.search(r"moved \d+° · \d+° from itself · \d+° from (the next word|its own choice) ‘", tip)
    assert "reads as" in tip
    page.mouse.click(box["x"] + spot["x"], box["y"] + spot["y"])
    assert page.evaluate("globe.state.word") == page.evaluate("globe.state.hover.word")
    page.context.close()


def test_words_from_a_hostile_vocabulary_do_nothing(browser: Any, pages: dict[str, Path]) -> None:
    problems: list[str] = []
    page = opened(browser, pages["evil"], problems)
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    for _ in range(len(TRAVEL["EVIL"])):
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(60)
    page.keyboard.press("Escape")
    spot = page.evaluate("globe.spots().filter(s => s.z > 0)[0]")
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + spot["x"], box["y"] + spot["y"])
    page.wait_for_timeout(200)
    assert page.locator(".travel script").count() == 0
    assert page.locator(".sentence button").first.inner_text() == TRAVEL["EVIL"][0][:23] + "…"
    assert problems == []
    page.context.close()


@pytest.mark.parametrize("kind", ["png", "svg", "csv"])
@pytest.mark.parametrize("name", ["middle", "evil", "span"])
def test_the_save_buttons_save(browser: Any, pages: dict[str, Path], kind: str, name: str) -> None:
    from xml.etree import ElementTree

    page = opened(browser, pages[name], [])
    with page.expect_download() as waiting:
        page.click(f".save button[value={kind}]")
    assert waiting.value.suggested_filename == f"travel.{kind}"
    content = Path(waiting.value.path()).read_bytes()
    if kind == "png":
        assert content.startswith(b"\x89PNG")
        assert len(content) > 50_000
    elif kind == "svg":
        tree = ElementTree.fromstring(content.decode())
        text = " ".join(node.text or "" for node in tree.iter("{http://www.w3.org/2000/svg}text"))
        assert "rank correlation with true angles" in text
        assert not list(tree.iter("{http://www.w3.org/2000/svg}script"))
    else:
        assert content.decode().startswith("position,word,next word,state,moved")
    page.context.close()


def test_without_script_a_picture_stands_there(browser: Any, pages: dict[str, Path]) -> None:
    page = opened(browser, pages["middle"], [], java_script_enabled=False)
    assert page.locator(".paper svg").is_visible()
    assert not page.locator("canvas").is_visible()
    assert page.locator(".angles svg").is_visible()
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_svg_follows_the_readers_ground(browser: Any, tmp_path: Path, scheme: str) -> None:
    from tiny import tiny

    from armillary import load
    from armillary.readouts.trajectory import trajectory

    plain = load(tiny("gpt2"), tokenizer=TRAVEL["tokenizer"](), progress=False)
    path = trajectory(plain, "to kill two").save(tmp_path / "t.svg")
    page = opened(browser, path, [], color_scheme=scheme)
    assert page.evaluate("getComputedStyle(document.querySelector('rect')).fill") == GROUND[scheme]
    page.context.close()

"""Is a view its address? Back and Forward, new tabs, addresses that mean nothing, and fields that were left blank."""

from typing import Any

import pytest
from explored import Running, Watched

pytestmark = pytest.mark.slow


def test_a_view_is_its_address(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "heads", "&layer=3&head=2&sentence=one+two+three") as seen:
        seen.settle()
        assert seen.page.locator("h3", has_text="L3H2 gives").count() == 1
        assert seen.page.input_value("#field-sentence") == "one two three"
        seen.page.click("nav a[data-room=norms]")
        seen.settle()
        assert "room=norms" in seen.page.url
        seen.page.go_back()
        seen.settle()
        assert seen.page.locator("h3", has_text="L3H2 gives").count() == 1
        assert seen.problems == []


def test_an_address_opens_again_whatever_was_chosen(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "sphere") as seen:
        seen.settle()
        assert seen.page.locator("#status").inner_text() == ""
        seen.page.fill("#field-position", "3")
        seen.page.wait_for_url("**position=3**")
        seen.page.check("#field-sublayers")
        seen.page.wait_for_url("**sublayers=true**")
        address = seen.page.url
    with Watched(browser, address) as again:
        again.settle()
        assert again.page.input_value("#field-position") == "3"
        assert again.page.is_checked("#field-sublayers")
        assert again.problems == []


def test_back_restores_the_model(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "norms", "&model=builtin:gpt") as seen:
        seen.settle()
        norms = seen.page.locator("[data-field=norm] option, #field-norm option").count()
        seen.page.click("nav a[data-room=compare]")
        seen.settle()
        seen.page.click("nav a[data-room=shear]")
        seen.page.go_back()
        seen.settle()
        assert seen.page.locator("#choose-second").is_visible()
        seen.page.go_back()
        seen.settle()
        seen.page.wait_for_selector("#facts:has-text('builtin:gpt · 7 layers')")
        assert seen.page.locator("[data-field=norm] option, #field-norm option").count() == norms > 1


def test_back_returns_from_a_claim_to_the_ledger(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "ledger") as seen:
        seen.settle()
        page = seen.page
        entries = page.evaluate("history.length")
        page.click("tr[data-id='sphere.radius'] a")
        page.wait_for_selector("article#sphere\\.radius .main-svg")
        page.select_option("#field-claim", "sphere.plane")
        page.wait_for_selector("article#sphere\\.plane")
        assert page.evaluate("history.length") == entries + 2
        page.go_back()
        page.wait_for_selector("article#sphere\\.radius")
        assert page.input_value("#field-claim") == "sphere.radius"
        page.go_back()
        page.wait_for_selector("article", state="detached")
        assert "room=ledger" in page.url and "claim" not in page.url
        assert page.locator("table.ledger").first.is_visible()
        page.go_forward()
        page.wait_for_selector("article#sphere\\.radius")
        assert seen.problems == []


def test_back_returns_to_the_head_that_was_clicked_before(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "heads") as seen:
        seen.settle()
        seen.page.wait_for_selector(".part .nsewdrag")
        box = seen.page.locator(".part .nsewdrag").first.bounding_box()
        seen.page.mouse.click(box["x"] + box["width"] * 1.5 / 4, box["y"] + box["height"] * 2.5 / 7)
        seen.page.wait_for_selector("h3:has-text('L2H1 gives')", timeout=30_000)
        seen.page.go_back()
        seen.page.wait_for_selector("h3:has-text('L0H0 gives')", timeout=30_000)
        assert seen.page.input_value("#field-layer") == "0"
        assert seen.problems == []


def test_typing_makes_no_history(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "norms") as seen:
        seen.settle()
        entries = seen.page.evaluate("history.length")
        for words in ("one", "one two", "one two three"):
            seen.page.fill("#field-sentence", words)
            seen.page.wait_for_timeout(500)
        assert "one+two+three" in seen.page.url
        assert seen.page.evaluate("history.length") == entries


@pytest.mark.parametrize("how", [{"modifiers": ["Control"]}, {"button": "middle"}], ids=["ctrl", "middle"])
def test_a_room_opens_in_a_new_tab(browser: Any, server: Running, how: dict[str, Any]) -> None:
    bare, token = server.address.split("?token=")
    with Watched(browser, bare) as seen:
        # The token is typed: this tab's address does not hold it.
        seen.page.fill("#token", token)
        seen.page.click("form.token button")
        seen.settle()
        seen.page.click("nav a[data-room=sphere]")
        seen.page.fill("#field-sentence", "one two three")
        seen.page.wait_for_url("**sentence=one**")
        with seen.context.expect_page() as caught:
            seen.page.click("nav a[data-room=norms]", **how)
        seen.settle(caught.value)
        assert caught.value.locator("nav a[aria-current]").inner_text() == "Norms"
        assert caught.value.input_value("#field-sentence") == "one two three"
        assert seen.page.locator("nav a[aria-current]").inner_text() == "Sphere", "this tab stays"


def test_a_claim_opens_in_a_new_tab(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "ledger") as seen:
        seen.settle()
        with seen.context.expect_page() as caught:
            seen.page.click("tr[data-id='sphere.radius'] a", modifiers=["Control"])
        caught.value.wait_for_selector("article#sphere\\.radius")
        assert not seen.page.locator("article").count()
        assert seen.problems == []


@pytest.mark.parametrize(
    ("room", "more", "notice", "field", "value"),
    [
        ("heads", "&layer=99", "‘Layer’ cannot be 99; it is 0 now", "layer", "0"),
        ("heads", "&layer=-3", "‘Layer’ cannot be -3; it is 0 now", "layer", "0"),
        ("heads", "&head=1e9", "‘Head’ cannot be 1e9; it is 0 now", "head", "0"),
        ("filter", "&layer=1.5", "‘Layer’ cannot be 1.5; it is 0 now", "layer", "0"),
        ("edits", "&factor=99", "‘Scale the stream by’ cannot be 99; it is 1 now", "factor", "1"),
        ("edits", "&freeze=L77.ln1", "‘Freeze a norm’ cannot be L77.ln1; it is left out now", "freeze", ""),
        ("norms", "&norm=nowhere", "‘Norm’ cannot be nowhere; it is L0.ln1 now", "norm", "L0.ln1"),
        ("sphere", "&position=many", "‘Word’ cannot be many; it is 0 now", "position", "0"),
        ("sphere", "&projection=flat", "‘Projection’ cannot be flat; it is pca now", "projection", "pca"),
        ("sphere", "&model=nobody", "There is no model ‘nobody’ here", "position", "0"),
        ("attic", "", "There is no room ‘attic’; Ledger is shown", "claim", ""),
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_meant_is_answered(
    browser: Any, server: Running, room: str, more: str, notice: str, field: str, value: str
) -> None:
    with Watched(browser, server.address, room, more) as seen:
        seen.page.wait_for_selector(f"#status:has-text('{notice}')", timeout=60_000)
        seen.settle()
        assert seen.page.input_value(f"#field-{field}") == value
        assert seen.refused() == []
        if more and "model" not in more:
            assert more[1:] not in seen.page.url
        assert seen.problems == []


def test_a_choice_that_the_server_refuses_is_no_dead_end(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "heads", "&statistic=warmth") as seen:
        seen.page.wait_for_selector(".refused:has-text(\"no 'warmth'\")", timeout=60_000)
        seen.page.select_option("#field-statistic", "entropy")
        seen.page.wait_for_selector(".refused", state="detached")
        seen.settle()
        assert seen.page.locator("#field-statistic option").count() > 3


@pytest.mark.parametrize(
    ("room", "field", "part", "entry"),
    [
        ("norms", "sentence", "Lengths on the sentence, and massive tokens", "Its ellipsoid and its spectrum"),
        ("heads", "sentence", "Its pattern on the sentence", "The atlas"),
        ("heads", "word", "Keys and values of a word", "The atlas"),
        ("sphere", "sentence", "Sphere", ""),
        ("drift", "text", "Drift", ""),
    ],
)
def test_a_blank_field_is_said_to_be_one(
    browser: Any, server: Running, room: str, field: str, part: str, entry: str
) -> None:
    with Watched(browser, server.address, room) as seen:
        seen.settle()
        label = {"sentence": "Sentence", "word": "Word", "text": "Text"}[field]
        for blank in ("", "   "):
            seen.page.fill(f"#field-{field}", blank)
            seen.page.wait_for_selector(f"section[aria-label='{part}'] .refused:has-text('‘{label}’ is blank; type')")
            seen.page.fill(f"#field-{field}", "time" if field == "word" else "one two three")
            seen.page.wait_for_selector(".refused", state="detached")
            seen.settle()
        seen.page.fill(f"#field-{field}", "")
        seen.page.wait_for_selector(".refused")
        assert not entry or seen.page.locator(f"section[aria-label='{entry}'] .main-svg").first.is_visible()
        assert seen.problems == []


def test_compare_without_a_second_model_asks_for_one(browser: Any, server: Running) -> None:
    with Watched(browser, server.address, "compare") as seen:
        seen.settle()
        seen.page.select_option("#choose-second", "")
        seen.page.wait_for_selector("#status:has-text('choose a second model')")
        seen.page.click("#export")
        seen.page.wait_for_selector("#exported:has-text('nothing to save')")

"""Does the server answer only whom it should, only what it was given, and exactly what the model computes?"""

import base64
import csv
import io
import json
import re
import runpy
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from command import run
from folders import tokenizer
from serving import HOST, TOKEN, library, visiting
from tiny import tiny

from armillary import load
from armillary.errors import ArmillaryError
from armillary.flow.passages import watched
from armillary.serve.app import KEPT, Server
from armillary.serve.fields import SENTENCE, Field, clean
from armillary.serve.guard import BODY
from armillary.serve.library import gather
from armillary.serve.rooms import ROOMS
from armillary.serve.start import bound, check_host

WORDS = "to kill two birds with one stone"


@pytest.fixture(scope="module")
def anatomy():
    return load(tiny("gpt2"), tokenizer=tokenizer(), progress=False)


@pytest.fixture(scope="module")
def other():
    return load(tiny("llama"), tokenizer=tokenizer(), progress=False)


@pytest.fixture(scope="module")
def visitor(anatomy, other):
    with visiting(library({"one": anatomy, "two": other})) as visitor:
        yield visitor


# ---- who may ask -----------------------------------------------------------------------------------------------


def test_every_answer_carries_the_policy(visitor):
    for path in ("/", "/static/explore.js", "/static/none.js", "/api/rooms", "/nowhere", "/library/plotly.min.js"):
        headers = visitor.client.get(path).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'", "no inline script, no eval, no other host"
        assert policy["frame-ancestors"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_only_a_notebook_may_frame_the_page(anatomy):
    with visiting(library({"one": anatomy}), framed=True) as visitor:
        policy = visitor.client.get("/").headers["content-security-policy"]
    assert "frame-ancestors http://localhost:*" in policy
    assert "*://" not in policy


@pytest.mark.parametrize("path", ["/api/rooms", "/api/model", "/api/part", "/api/export"])
def test_nothing_is_told_without_the_token(visitor, path):
    for headers in ({}, {"x-armillary-token": "wrong"}, {"x-armillary-token": TOKEN + "x"}):
        answer = visitor.client.request("GET" if path == "/api/rooms" else "POST", path, headers=headers)
        assert answer.status_code == 403
        assert "token" in answer.json()["error"]


def test_the_token_is_read_from_the_header_alone(visitor):
    assert visitor.client.get(f"/api/rooms?token={TOKEN}").status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:80", "", "localhost:8766"]
)
def test_a_name_that_was_rebound_to_this_machine_is_refused(visitor, host):
    for path in ("/", "/api/rooms"):
        answer = visitor.client.get(path, headers={"host": host, "x-armillary-token": TOKEN})
        assert answer.status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://" + HOST, "http://127.0.0.1:1"])
def test_another_website_is_refused(visitor, origin):
    answer = visitor.client.get("/api/rooms", headers={"origin": origin, "x-armillary-token": TOKEN})
    assert answer.status_code == 403
    assert (
        visitor.client.get("/api/rooms", headers={"origin": f"http://{HOST}", "x-armillary-token": TOKEN}).status_code
        == 200
    )


def test_a_request_across_sites_is_refused_even_with_the_token(visitor):
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        headers = {"sec-fetch-site": site, "x-armillary-token": TOKEN}
        assert visitor.client.get("/api/rooms", headers=headers).status_code == status


def test_files_of_the_package_are_served_by_name_only(visitor):
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/app.py", "/static/index.html", "/etc/passwd"):
        assert visitor.client.get(path).status_code == 404
    assert "travel(root, data" in visitor.client.get("/static/travel.js").text
    assert visitor.client.get("/library/plotly.min.js").headers["content-type"].startswith("text/javascript")


def test_the_page_has_no_script_of_its_own_and_names_no_other_host(visitor):
    page = visitor.client.get("/").text
    assert "<script>" not in page and "onload" not in page and "style=" not in page
    assert "http://" not in page and "https://" not in page


def test_scripts_of_the_page_share_no_name():
    """Scripts of one page share one scope: a second function of a name would replace the first without a word."""
    from armillary.serve.app import STATIC

    names: list[str] = []
    for name, path in STATIC.items():
        if name.endswith(".js"):
            text = path.read_text("utf-8")
            names += re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE)
    assert len(names) > 50
    assert [name for name in set(names) if names.count(name) > 1] == []


# ---- how much ---------------------------------------------------------------------------------------------------


def test_large_requests_are_refused_before_they_are_read(visitor):
    headers = {"x-armillary-token": TOKEN, "content-type": "application/json"}
    large = json.dumps({"room": "sphere", "part": "path", "fields": {"sentence": "word " * BODY}})
    assert visitor.client.post("/api/part", content=large, headers=headers).status_code == 413
    pieces = (b"x" * 4096 for _ in range(BODY // 4096 + 2))
    answer = visitor.client.post("/api/part", content=pieces, headers=headers)
    assert answer.status_code == 400
    assert "larger than allowed" in answer.json()["error"]


@pytest.mark.parametrize(
    "body", ["", "[]", "{", "null", "[" * 5000, '"x"', '{"room": 3}', '{"room": "sphere", "part": []}']
)
def test_what_is_no_request_gets_a_sentence(visitor, body):
    answer = visitor.client.post("/api/part", content=body, headers={"x-armillary-token": TOKEN})
    assert answer.status_code == 400
    assert answer.json()["error"].endswith((".", "?"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sentence": "word " * 10_000}, "50,000 characters"),
        ({"sentence": "word " * 2_000}, "at most 4,000"),
        ({"sentence": ""}, "the sentence is empty"),
        ({"sentence": "   "}, "the sentence is empty"),
        ({"sentence": 5}, "must be text"),
        ({"sentence": "a \ud800 b"}, "half a character"),
        ({"sentence": WORDS, "layer": 99}, "there is no layer|has 3 of them"),
        ({"sentence": WORDS, "layer": 1.5}, "whole number"),
        ({"sentence": WORDS, "layer": 1e9}, "there is no layer 1e\\+09; they are counted from 0"),
        ({"sentence": WORDS, "layer": -1}, "there is no layer -1; they are counted from 0"),
        ({"sentence": WORDS, "layer": 10**400}, "must be a number; got 10000"),
        ({"sentence": WORDS, "layer": float("nan")}, "must be a number; got nan"),
        ({"sentence": WORDS, "head": "x"}, "must be a number"),
        ({"sentence": WORDS, "head": "\ud800\x1b[31m"}, r"400 .*must be a number; got ⟨D800⟩⟨1B⟩\[31m"),
        ({"sentence": WORDS, "nonsense": 1}, "no field 'nonsense'"),
        ({"sentence": WORDS, "model": "/etc"}, "no model '/etc'"),
    ],
)
def test_bad_input_is_answered_by_a_sentence(visitor, fields, message):
    answer = visitor.post("/api/part", {"room": "heads", "part": "pattern", "fields": {"model": "one", **fields}})
    text = f"{answer.status_code} {answer.text}"
    assert re.search(message, text), text
    assert "Traceback" not in text


def test_a_model_without_a_tokenizer_says_so():
    bare = load(tiny("gpt2"), progress=False)
    with visiting(library({"bare": bare})) as visitor:
        assert "without a tokenizer" in visitor.refusal("sphere", "path", model="bare", sentence=WORDS)
        blocks = visitor.blocks("heads", "atlas", model="bare")
        assert blocks[1]["kind"] == "figure", "the weights need no words"


def test_a_refusal_names_no_option_of_the_command_line(visitor, monkeypatch):
    ask = {"model": "one", "sentence": WORDS}
    refusals = [
        visitor.refusal("sphere", "path", **ask, position=99),
        visitor.refusal("sphere", "path", **ask | {"sentence": "to"}, projection="umap"),
        visitor.refusal("drift", "drift", model="one", text=WORDS, position=99),
        visitor.refusal("heads", "word", model="one", word="  "),
        visitor.refusal("heads", "word", model="one", word="nonsense"),
    ]
    monkeypatch.setattr("armillary.geometry.projection.find_spec", lambda name: None)
    refusals.append(visitor.refusal("sphere", "path", **ask, projection="pacmap"))
    with visiting(library({"bare": load(tiny("gpt2"), progress=False)})) as bare:
        refusals.append(bare.refusal("heads", "word", model="bare", word="time"))
    assert "the projection pacmap needs the package" in refusals[-2] and "without a tokenizer" in refusals[-1]
    assert not [text for text in refusals if re.search(r"(^|\s|\()--\w", text)]


def test_no_field_has_the_name_of_something_else_in_the_address():
    """A field called 'token' would take the place of the server's token in the page's address."""
    taken = {"token", "room", "model", "second", "narrow"}
    assert not [(room.name, field.name) for room in ROOMS for field in room.fields if field.name in taken]


def test_no_path_is_shown(tmp_path):
    from armillary.serve.library import Library

    tiny("gpt2").save_pretrained(tmp_path / "mine")
    source = gather([str(tmp_path / "mine")]).models["mine"]
    with visiting(Library(models={"mine": replace(source, live=True)})) as visitor:
        refusal = visitor.refusal("sphere", "path", model="mine", sentence=WORDS)
        assert refusal.startswith("mine came without a tokenizer") and str(tmp_path) not in refusal
        assert str(tmp_path) not in json.dumps(visitor.blocks("heads", "atlas", model="mine"))


def test_fields_are_checked_one_by_one():
    fields = (
        Field("s", "sentence", "S"),
        Field("c", "choice", "C", "a", choices=(("a", "A"),)),
        Field("f", "flag", "F"),
    )
    assert clean(fields, {"s": "x"}) == {"s": "x", "c": "a", "f": ""}
    with pytest.raises(ArmillaryError, match="known: a"):
        clean(fields, {"c": "b"})
    with pytest.raises(ArmillaryError, match="must be true or false"):
        clean(fields, {"f": 1})
    with pytest.raises(ArmillaryError, match="4,001 characters"):
        clean(fields, {"s": "x" * (SENTENCE + 1)})


# ---- what is shown ----------------------------------------------------------------------------------------------


def test_a_click_shows_the_models_own_pattern(visitor, anatomy):
    blocks = visitor.blocks("heads", "pattern", model="one", sentence=WORDS, layer=1, head=1)
    ids = torch.tensor([anatomy.tokenizer(WORDS).input_ids])
    true = watched(anatomy, ids, "L1.pattern")["L1.pattern"][0, 1].numpy()
    rows = list(csv.DictReader(io.StringIO(blocks[0]["csv"])))
    drawn = np.array([float(row["value"]) for row in rows]).reshape(true.shape)
    packed = blocks[0]["figure"]["data"][0]["z"]
    shown = np.frombuffer(base64.b64decode(packed["bdata"]), packed["dtype"]).reshape(true.shape)
    assert np.array_equal(shown, drawn, equal_nan=True), "what is drawn is what is saved"
    seen = np.tri(len(true), dtype=bool)
    assert np.allclose(drawn[seen], true[seen], atol=1e-6)
    assert np.isnan(drawn[~seen]).all()


def test_the_atlas_can_be_coloured_by_any_statistic(visitor):
    first = visitor.blocks("heads", "atlas", model="one", layer=0, head=0)
    names = [value for value, _ in first[0]["choices"]]
    assert {"sigma_1_qk", "participation_vo"} <= set(names)
    assert first[1]["pick"] == {"layer": "row", "head": "column"}
    for name in names[:4]:
        assert name in visitor.blocks("heads", "atlas", model="one", statistic=name)[1]["title"]
    assert "no 'warmth'" in visitor.refusal("heads", "atlas", model="one", statistic="warmth")


PARTS = [(room.name, part.name) for room in ROOMS for part in room.parts if part.by != "library"]


@pytest.mark.parametrize(("room", "part"), PARTS, ids=lambda value: value)
def test_every_part_of_every_room_is_shown(visitor, room, part):
    fields = {"model": "one", "second": "two"}
    known = {field.name for r in ROOMS if r.name == room for field in r.fields}
    given = {"sentence": WORDS, "text": WORDS, "other": "with one stone", "word": "k", "norm": "L1.ln1"}
    fields |= {name: value for name, value in given.items() if name in known}
    for narrow in (False, True):
        blocks = visitor.blocks(room, part, **fields, narrow=narrow)
        assert {block["kind"] for block in blocks} <= {"figure", "html", "travel", "pair", "choices"}
        assert any(block["kind"] != "choices" for block in blocks)


def test_rooms_without_a_model_are_shown(visitor):
    assert len(visitor.blocks("shear", "shear")[0]["figure"]["frames"]) == 21
    assert "armillary survey" in visitor.blocks("ledger", "ledger")[0]["html"]
    assert "armillary lab run" in visitor.blocks("laboratory", "study")[0]["html"]
    steps = visitor.blocks("training", "steps")[0]
    assert len(steps["figure"]["frames"]) > 10
    assert visitor.blocks("training", "curves")[0]["kind"] == "choices"


def test_two_models_do_not_mix(visitor):
    ask = {"sentence": WORDS, "layer": 0, "head": 0}
    z = {}
    for turn in range(2):
        for model in ("one", "two"):
            block = visitor.blocks("heads", "pattern", model=model, **ask)[0]
            z.setdefault(model, []).append(json.dumps(block["figure"]["data"][0]["z"]))
            assert block["caption"].startswith("gpt2" if model == "one" else "llama") or turn >= 0
    assert z["one"][0] == z["one"][1]
    assert z["two"][0] == z["two"][1]
    assert z["one"][0] != z["two"][0]


def test_a_result_is_computed_once(visitor, monkeypatch):
    ask = {"model": "one", "sentence": "birds kill birds", "layer": 0, "head": 1}
    first = visitor.events("heads", "pattern", **ask)
    again = visitor.events("heads", "pattern", **ask)
    assert [kind for kind, _ in again] == ["result"]
    assert first[-1] == again[-1]
    assert len(first) > 1, "the first time it was computed, and said so"


def test_remembered_results_are_bounded(anatomy):
    server = Server(library({"one": anatomy}))
    for number in range(40):
        server.remember((number,), b"x" * (KEPT // 16))
    assert server.remembered((39,)) is not None
    assert server.remembered((0,)) is None
    assert sum(len(value) for value in server._results.values()) <= KEPT


def test_edits_leave_the_model_as_it_was(visitor, anatomy):
    before = watched(anatomy, torch.tensor([[5, 6, 7]]), "L2.resid_post")["L2.resid_post"]
    fields = {"model": "one", "sentence": WORDS, "layer": 1, "head": 0}
    for more in ({"off": True}, {"off": False, "shuffle": "across"}, {"off": False, "freeze": "L1.ln1"},
                 {"off": False, "factor": 2.0}):  # fmt: skip
        title = visitor.blocks("edits", "words", **fields, **more)[0]["title"]
        assert "goes from" in title
    assert "nothing is edited" in visitor.refusal("edits", "words", **fields, off=False)
    after = watched(anatomy, torch.tensor([[5, 6, 7]]), "L2.resid_post")["L2.resid_post"]
    assert torch.equal(before, after)


def test_an_edit_is_named_in_the_title_as_it_is_named_elsewhere(visitor):
    fields = {"model": "one", "sentence": WORDS, "layer": 1, "head": 0, "off": False, "shuffle": "within"}
    assert visitor.blocks("edits", "words", **fields)[0]["title"].startswith("Axes of L1 shuffled within heads: ")


def test_a_stream_that_an_edit_makes_vanish_has_no_path(visitor):
    refusal = visitor.refusal("edits", "paths", model="two", sentence=WORDS, layer=0, off=False, factor=0.0)
    assert "has length zero" in refusal, "no biases: what is zero stays zero"


def test_a_model_that_cannot_be_loaded_says_why(tmp_path):
    from armillary.serve.library import Library
    from armillary.serve.model_process import Source

    with visiting(Library(models={"none": Source(str(tmp_path / "none"), {}, live=True)})) as visitor:
        answer = visitor.post("/api/model", {"model": "none"})
        assert answer.status_code == 200, "the request was right"
        assert "there is no model at" in answer.json()["error"]
        assert "there is no model at" in visitor.refusal("sphere", "path", model="none", sentence=WORDS)
        assert visitor.post("/api/model", {"model": "other"}).status_code == 400


def test_a_vocabulary_that_attacks_is_text(visitor):
    travel = runpy.run_path(str(Path(__file__).parent / "test_travel_view.py"))
    evil = load(tiny("gpt2"), tokenizer=travel["evil_tokenizer"](), progress=False)
    sentence = " ".join(travel["EVIL"])
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.append(tag)
            assert not any(name.startswith("on") for name, _ in attrs)

    def walk(block):
        for inner in block.get("blocks", [block]):
            Tags().feed(inner.get("html", ""))
            drawn = json.dumps(inner.get("figure", {}), ensure_ascii=False)
            assert "<script" not in drawn and "<img" not in drawn

    with visiting(library({"evil": evil})) as visitor:
        for room, part in [("sphere", "path"), ("heads", "pattern"), ("filter", "words"), ("edits", "words"),
                           ("edits", "paths"), ("norms", "lengths"), ("drift", "drift")]:  # fmt: skip
            known = {field.name for r in ROOMS if r.name == room for field in r.fields}
            given = {"sentence": sentence, "text": sentence, "norm": "L0.ln1"}
            fields = {name: value for name, value in given.items() if name in known}
            for block in visitor.blocks(room, part, model="evil", **fields):
                walk(block)
    assert tags and not {"script", "img", "iframe", "object"} & set(tags)


# ---- saving, starting -------------------------------------------------------------------------------------------


def test_a_room_is_saved_as_one_file(visitor):
    answer = visitor.post("/api/export", {"room": "sphere", "fields": {"model": "one", "sentence": WORDS}})
    assert answer.status_code == 200
    assert "attachment" in answer.headers["content-disposition"]
    page = answer.text
    assert "default-src 'none'" in page
    assert "src=" not in page.split("<script")[0]
    assert '"kind":"travel"' in page.replace("\\u003c", "<")
    refused = visitor.post("/api/export", {"room": "sphere", "fields": {"model": "one", "sentence": "x" * 5000}})
    assert refused.status_code == 400


def test_a_blank_field_is_said_in_the_saved_file_and_an_empty_room_is_not_saved(visitor):
    answer = visitor.post(
        "/api/export", {"room": "norms", "fields": {"model": "one", "sentence": " ", "norm": "L0.ln1"}}
    )
    assert "is blank, so there is nothing to show" in answer.text
    assert '"kind":"figure"' in answer.text, "the weights need no words"
    answer = visitor.post("/api/export", {"room": "compare", "fields": {"model": "one", "sentence": WORDS}})
    assert answer.status_code == 400 and "nothing to save" in answer.json()["error"]


def test_a_port_in_use_is_left_and_said():
    messages: list[str] = []
    first = bound("127.0.0.1", 0, messages.append)
    port = first.getsockname()[1]
    second = bound("127.0.0.1", port, messages.append)
    assert second.getsockname()[1] != port
    assert messages == [f"Port {port} is in use; port {second.getsockname()[1]} is taken instead."]
    first.close()
    second.close()


def test_another_host_must_be_allowed():
    assert check_host("127.0.0.1", False) == check_host("::1", False) == ""
    with pytest.raises(ArmillaryError, match="--allow-remote"):
        check_host("0.0.0.0", False)
    assert "Nothing is encrypted" in check_host("0.0.0.0", True)
    with pytest.raises(ArmillaryError, match="not an address of this machine"):
        bound("203.0.113.7", 0, print)


def test_the_command_refuses_what_it_cannot_show(tmp_path):
    result = run("explore", "--no-browser", "--survey", tmp_path)
    assert result.exit_code == 2 and "survey" in result.stderr
    result = run("explore", "--no-browser", "--host", "0.0.0.0")
    assert result.exit_code == 2 and "--allow-remote" in result.stderr
    result = run("explore", "--no-browser", "--training", tmp_path)
    assert result.exit_code == 2 and "log.jsonl" in result.stderr
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "survey.json").write_text('{"schema": 9999}')
    result = run("explore", "--no-browser", "--survey", newer)
    assert result.exit_code == 2 and result.stderr.startswith("armillary: ") and "9999" in result.stderr


def test_built_in_models_are_always_offered_and_paths_are_not_shown(tmp_path):
    (tmp_path / "mine").mkdir()
    gathered = gather([str(tmp_path / "mine")])
    assert list(gathered.models) == ["mine", "builtin:gpt", "builtin:llama"]


def test_a_notebook_gets_the_rooms_in_a_frame(anatomy):
    import httpx2

    import armillary

    page = armillary.explore(anatomy)
    try:
        assert page._repr_html_().startswith(f'<iframe src="{page.address}"')
        base, token = page.address.split("/?token=")
        headers = {"x-armillary-token": token, "content-type": "application/json"}
        name = anatomy.name[-60:]
        body = {"room": "sphere", "part": "path", "fields": {"model": name, "sentence": WORDS}}
        answer = httpx2.post(f"{base}/api/part", content=json.dumps(body), headers=headers, timeout=60)
        assert '"kind":"travel"' in answer.text
        assert "frame-ancestors http://localhost:*" in httpx2.get(base).headers["content-security-policy"]
    finally:
        page.stop()
    assert not page.thread.is_alive()


def test_a_request_that_outlasts_the_server_is_cut_off_without_a_word(capfd):
    """As on a busy machine, where a request for a model that is being loaded does not end within two seconds."""
    import asyncio
    import socket
    import threading

    from armillary.serve.library import Library
    from armillary.serve.start import make_site

    site = make_site(Library({}), port=0)
    begun = threading.Event()

    async def endless(scope, receive, send):
        if scope["type"] == "http":
            begun.set()
            await asyncio.sleep(60)

    site.server.config.app = endless
    site.server.install_signal_handlers = lambda: None
    thread = threading.Thread(target=site.run, daemon=True)
    thread.start()
    with socket.create_connection(site.listener.getsockname()) as visitor:
        visitor.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert begun.wait(10)
        site.server.should_exit = True
        thread.join(20)
    assert not thread.is_alive()
    assert capfd.readouterr().err == ""

"""Is a sentence's trajectory what the model computes, and does its picture show exactly that?"""

import csv
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import transformers as tr
from command import refused, works
from folders import CONTEXT, SPECIAL, model_folder, once, tokenizer
from markup import Page
from PIL import Image
from tiny import tiny
from tokenizers import Tokenizer, models, pre_tokenizers

from armillary import load
from armillary.errors import ArmillaryError, OutputError, TextError
from armillary.geometry.projection import angles
from armillary.readouts.trajectory import MOST, SAMPLE, moves, trajectory
from armillary.views.travel import angle_panel, scene
from armillary.views.travel.captions import plain, title
from armillary.views.travel.formats import check_out
from armillary.views.travel.svg import picture_svg
from armillary.views.travel.trajectory_page import trajectory_page

SENTENCE = "to kill two birds with one stone"
EVIL = [
    "<script>alert(1)</script>",
    "&amp;",
    "&",
    "'\">",
    "‮evil",
    "שלום",
    "a\u0301",
    "\u0301",
    "</script>",
    "{{x}}",
    "$x$",
    "]]>",
]


@pytest.fixture(scope="module")
def anatomy():
    return load(tiny("gpt2"), tokenizer=tokenizer(), progress=False)


@pytest.fixture(scope="module")
def travel(anatomy):
    return trajectory(anatomy, SENTENCE)


def evil_tokenizer() -> tr.PreTrainedTokenizerFast:
    words = [*SPECIAL.values(), *EVIL]
    words += [f"w{i}" for i in range(97 - len(words))]
    tokens = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tr.PreTrainedTokenizerFast(tokenizer_object=tokens, **SPECIAL)


@pytest.fixture(scope="module")
def hostile():
    return trajectory(load(tiny("gpt2"), tokenizer=evil_tokenizer(), progress=False), " ".join(EVIL), top=97)


def degrees(a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
    cosine = torch.nn.functional.cosine_similarity(a.double(), b.double(), dim=-1)
    return np.degrees(np.arccos(cosine.clamp(-1, 1).numpy()))


# ---- the trajectory ----------------------------------------------------------------------------------------


def test_angles_and_readings_are_the_models_own(anatomy, travel):
    """Against Hugging Face's own hidden states and logits."""
    model = tiny("gpt2")
    ids = torch.tensor([tokenizer()(SENTENCE)["input_ids"]])
    with torch.no_grad():
        output = model(ids, output_hidden_states=True)
        stream = [model.transformer.ln_f(h[0]) for h in output.hidden_states[:-1]] + [output.hidden_states[-1][0]]
        words = model.lm_head.weight[ids[0]]
    states = torch.stack(stream, 1)
    assert travel.states == ("L0.resid_pre", "L1.resid_pre", "L2.resid_pre", "L2.resid_post")
    assert travel.moves == ("L0", "L1", "L2")
    np.testing.assert_allclose(travel.own, degrees(states, words[:, None]), atol=1e-3)
    np.testing.assert_allclose(travel.following[:-1], degrees(states[:-1], words[1:, None]), atol=1e-3)
    np.testing.assert_allclose(travel.moved, degrees(states[:, 1:], states[:, :-1]), atol=1e-3)
    probabilities = output.logits[0].softmax(-1)
    np.testing.assert_allclose(
        travel.probability[:-1, -1], probabilities[:-1].gather(1, ids[0, 1:, None])[:, 0], atol=1e-6
    )
    best = probabilities.topk(5)
    for t, states in enumerate(travel.readings):
        assert [r.text for r in states[-1]] == [tokenizer().convert_ids_to_tokens(int(i)) for i in best.indices[t]]
        np.testing.assert_allclose([r.probability for r in states[-1]], best.values[t], atol=1e-6)
    assert travel.next_words[-1] == travel.readings[-1][-1][0].text, (
        "nothing follows the last word but the model's prediction"
    )
    assert travel.next_words[:-1] == travel.words[1:]


def test_the_last_words_choice_counts_in_no_average(travel):
    both, count, start, end = travel.travelled
    assert count == len(travel.words) - 1
    assert (start, end) == pytest.approx(tuple(travel.following[:-1, [0, -1]].mean(0)))
    own, following = travel.own[:-1], travel.following[:-1]
    assert both == sum((own[:, -1] > own[:, 0]) & (following[:, -1] < following[:, 0]))
    assert f"{both} of {count} words" in title(travel)
    np.testing.assert_allclose(angle_panel.bold(travel)[1], travel.following[:-1].mean(0))


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "gemma2", "opt-post", "bert", "bert-decoder"])
@pytest.mark.parametrize("sublayers", [False, True])
def test_every_kind_of_model_can_be_drawn(name, sublayers):
    model = load(tiny(name), tokenizer=tokenizer(), progress=False)
    travel = trajectory(model, "to kill two", sublayers=sublayers)
    count = 3 if not sublayers or model.parallel else 6
    assert len(travel.states) == count + (name != "opt-post" or not sublayers)
    assert len(travel.moves) == len(travel.states) - 1
    np.testing.assert_allclose(np.linalg.norm(travel.points, axis=-1), 1)
    ElementTree.fromstring(picture_svg(travel)[0])
    assert travel.reads == (model.causal and model.W_U is not None)
    if not travel.reads:
        assert np.isnan(travel.following).all()
        assert np.isnan(travel.probability).all()
        assert set(travel.next_words) == {None}
        assert "does not predict a next word" in " ".join(travel.notes)
        assert "On average, words start" in title(travel) and "away from themselves" in title(travel)
        assert all(r.probability is None for states in travel.readings for words in states for r in words)


def test_moves_between_states():
    assert moves(("L0.resid_pre", "L0.resid_mid", "L0.resid_post", "L1.resid_mid")) == ["L0.attn", "L0.mlp", "L1.attn"]


def test_span_shows_true_angles(anatomy):
    travel = trajectory(anatomy, SENTENCE, "span", word=3)
    assert travel.drawn == (2,)
    assert "Drawn: word 3 of" in travel.notes[0]
    start, end, goal = travel.points[0, 0], travel.points[0, -1], travel.targets[0]
    assert np.degrees(np.arccos(goal @ end)) == pytest.approx(travel.following[2, -1], abs=1e-3)
    assert np.degrees(np.arccos(goal @ start)) == pytest.approx(travel.following[2, 0], abs=1e-3)
    lengths = np.linalg.norm(travel.points[0], axis=1)
    np.testing.assert_allclose(lengths, travel.shown[0])
    np.testing.assert_allclose(lengths[[0, -1]], 1)
    for state, p in enumerate(travel.points[0]):
        assert np.degrees(np.arccos(np.clip(p @ goal, -1, 1))) == pytest.approx(travel.following[2, state], abs=1e-3)
    sides = {round(side.degrees, 2) for side in scene.sides(travel)}
    assert {round(travel.following[2, -1], 2), round(travel.following[2, 0], 2)} <= sides
    assert trajectory(anatomy, SENTENCE, "span").word == len(travel.words) - 1, "the last one by default"
    drawn = picture_svg(travel)[0]
    assert f">{travel.following[2, -1]:.0f}°<" in drawn


def test_a_long_sentence_is_sampled_and_measured_whole(anatomy):
    text = " ".join(["the birds"] * 10)
    travel = trajectory(anatomy, text)
    count = len(travel.words)
    assert MOST < count <= CONTEXT
    assert len(travel.drawn) == SAMPLE == len(travel.points)
    assert count - 1 in travel.drawn
    assert travel.own.shape == (count, 4)
    assert f"{SAMPLE} of {count} words, chosen at random (seed 0)" in " ".join(travel.notes)
    assert trajectory(anatomy, text).drawn == travel.drawn
    assert trajectory(anatomy, text, seed=1).drawn != travel.drawn
    assert 6 in trajectory(anatomy, text, word=7).drawn
    assert trajectory_page(travel).count("<button class=") == SAMPLE


def test_a_sentence_beyond_the_context_is_cut_and_it_is_said(anatomy):
    travel = trajectory(anatomy, " ".join(["stone"] * 10_000))
    assert len(travel.words) == CONTEXT
    assert re.search(rf"Only the first {CONTEXT} of [\d,]+ tokens were read", travel.notes[0])
    assert travel.notes[0] in trajectory_page(travel)
    assert len(picture_svg(travel)[0]) < 200_000


def test_one_token_is_enough(anatomy):
    for projection in ("pca", "span"):
        travel = trajectory(anatomy, "e", projection)
        assert len(travel.words) == 1
        assert "in total; it starts" in title(travel)
        assert travel.scores["correlation"] <= 1
        for text in (picture_svg(travel)[0], str(travel), trajectory_page(travel)):
            assert "nan" not in text.replace("nance", "").lower()


def test_what_no_model_could_answer_is_refused(anatomy):
    for text in ("", " \n\t"):
        with pytest.raises(TextError, match="the sentence is empty"):
            trajectory(anatomy, text)
    with pytest.raises(TextError, match="not valid UTF-8"):
        trajectory(anatomy, "half \udce2 a letter")
    with pytest.raises(ArmillaryError, match="no projection 'spam'; did you mean 'span'"):
        trajectory(anatomy, SENTENCE, "spam")
    with pytest.raises(ArmillaryError, match=r"there is no token 99: this model reads the sentence as \d+ tokens"):
        trajectory(anatomy, SENTENCE, word=99)
    with pytest.raises(ArmillaryError, match="there is no token 0; 1 is the first"):
        trajectory(anatomy, SENTENCE, word=0)
    with pytest.raises(ArmillaryError, match="--top 0 leaves no word"):
        trajectory(anatomy, SENTENCE, top=0)
    with pytest.raises(TextError, match="came without a tokenizer"):
        trajectory(load(tiny("gpt2"), progress=False), SENTENCE)
    with pytest.raises(TextError, match=r"beyond the model's 97"):
        trajectory(load(tiny("gpt2"), tokenizer=tokenizer(150), progress=False), "".join(map(chr, range(33, 127))))


# ---- the drawing ----------------------------------------------------------------------------------------


def test_an_arc_inside_the_globe_is_the_true_arcs_shadow():
    random = np.random.default_rng(0)
    a, b = (v / np.linalg.norm(v) for v in random.standard_normal((2, 30)))
    axes = np.linalg.qr(random.standard_normal((30, 3)))[0]
    angle = float(np.arccos(a @ b))
    t = np.linspace(0, 1, scene.PIECES + 1)[:, None]
    true = (np.sin((1 - t) * angle) * a + np.sin(t * angle) * b) / np.sin(angle)
    np.testing.assert_allclose(scene.arc(a @ axes, b @ axes, angle), true @ axes, atol=1e-12)
    on = scene.arc(*np.eye(3)[:2])
    np.testing.assert_allclose(np.linalg.norm(on, axis=1), 1)
    assert np.isfinite(scene.arc(np.eye(3)[0], -np.eye(3)[0])).all()
    assert np.isfinite(scene.arc(np.eye(3)[0], np.eye(3)[0])).all()


def test_arcs_join_their_states(travel):
    for arcs, points in zip(scene.paths(travel), travel.points, strict=True):
        np.testing.assert_allclose(arcs[:, 0], points[:-1], atol=1e-12)
        np.testing.assert_allclose(arcs[:, -1], points[1:], atol=1e-12)


def test_the_view_is_a_turn_and_shows_most(travel):
    turn = scene.view(travel)
    np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(turn) == pytest.approx(1)
    front = (travel.points @ turn.T)[..., 2]
    assert (front > 0).mean() >= 0.5
    moved = ((travel.points[:, -1] - travel.points[:, 0]) @ turn.T).mean(0)
    assert moved[0] >= 0, "words move to the right"


@pytest.mark.parametrize("seed", range(20))
def test_of_one_word_both_the_end_and_the_target_are_seen(travel, seed):
    random = np.random.default_rng(seed)
    points, targets = random.normal(size=(1, 6, 3)), random.normal(size=(1, 3))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    # The worst case but one: the target is almost behind the end.
    targets = -points[:, -1] + 0.1 * targets
    targets /= np.linalg.norm(targets, axis=-1, keepdims=True)
    drawn = replace(travel, points=points, targets=targets, drawn=travel.drawn[:1], word=None)
    turn = scene.view(drawn)
    assert (points[0, -1] @ turn.T)[2] > -0.05, "where labels are drawn"
    assert (targets[0] @ turn.T)[2] > -0.05


def test_labels_cover_no_other():
    random = np.random.default_rng(0)
    wanted = [scene.Label(f"label {i}", x, y, 13, 9, "ink") for i, (x, y) in enumerate(random.uniform(0, 300, (60, 2)))]
    placed = scene.place(wanted, (0, 0, 300, 300), [(100, 100, 200, 200)])
    assert 5 < len(placed) < 60, "where there is no room, a label is left out"
    assert placed[0].label is wanted[0]
    boxes = [(100, 100, 200, 200)]
    for p in placed:
        width = scene.text_width(p.label.text, 13)
        left = {"start": p.x, "end": p.x - width, "middle": p.x - width / 2}[p.anchor]
        box = (left, p.y - 7, left + width, p.y + 7)
        assert box[0] >= 0
        assert box[2] <= 300
        assert not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in boxes)
        boxes.append(box)


def test_the_picture_shows_its_scores(travel):
    drawn, height = picture_svg(travel)
    assert 600 < height < 1000
    tree = ElementTree.fromstring(drawn)
    texts = [node.text for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert f"{travel.scores['correlation']:.2f} rank correlation with true angles" in texts
    assert f"{travel.scores['trustworthiness']:.2f} trustworthiness (near here, near in full dimension)" in texts
    assert {"○", "●", "★"} <= set(texts)
    assert "prefers-color-scheme: dark" in drawn
    assert "prefers-color-scheme" not in picture_svg(travel, both=False)[0]


def test_more_words_than_colours_are_coloured_by_layer(anatomy):
    few, many = trajectory(anatomy, "e e e"), trajectory(anatomy, "e " * 20)
    assert 's-w0"' in picture_svg(few)[0]
    drawn = picture_svg(many)[0]
    assert 'class="s-w0"' not in drawn
    assert 'class="s-l7"' in drawn


def test_the_angle_panel_puts_degrees_where_they_belong(travel):
    assert angle_panel.y_of(travel, 0) == angle_panel.HEIGHT - angle_panel.BOTTOM
    assert angle_panel.y_of(travel, angle_panel.most(travel)) == angle_panel.TOP
    last = angle_panel.x_of(travel, len(travel.states) - 1)
    assert last == angle_panel.WIDTH - angle_panel.RIGHT
    assert f"{last} {angle_panel.y_of(travel, float(travel.own[:, -1].mean()))}" in angle_panel.panel_svg(travel)


# ---- words are data -------------------------------------------------------------------------------------


def payload(page: str) -> dict:
    match = re.search(r'<script type="application/json" id="trajectory">(.*?)</script>', page, re.DOTALL)
    assert match
    return json.loads(match[1])


def test_a_hostile_vocabulary_stays_words(hostile, travel):
    page, clean = trajectory_page(hostile), Page(trajectory_page(travel))
    assert "<script>alert" not in page
    assert "\u202e" not in page
    parsed = Page(page)
    for tag in ("script", "style", "canvas", "svg"):
        assert [t for t, _ in parsed.tags].count(tag) == [t for t, _ in clean.tags].count(tag)
    assert not [name for _, attrs in parsed.tags for name in attrs if name.startswith("on") or name in ("src", "href")]
    assert any("default-src 'none'" in (attrs.get("content") or "") for _, attrs in parsed.tags)
    data = payload(page)
    assert data["words"][0]["text"] == EVIL[0], "in the page's data it is a string"
    assert data["words"][4]["text"] == "⟨202E⟩evil"
    assert data["words"][5]["text"] == "\u2068שלום\u2069", "isolated"
    assert data["words"][7]["text"] == "\u2068◌\u0301\u2069"
    drawn = picture_svg(hostile)[0]
    ElementTree.fromstring(drawn)
    assert "<script" not in drawn
    notebook = hostile._repr_html_()
    assert "<script" not in notebook
    text = str(hostile)
    assert "\u202e" not in text
    assert "script>alert(1)</script" in text
    hover = json.dumps(hostile.plot().to_dict()["data"], default=str)
    assert "<script" not in hover


def test_bytes_that_are_no_letter_are_shown_as_bytes():
    anatomy = load("builtin:gpt", progress=False)
    travel = trajectory(anatomy, "I 🙂 cafe\u0301")
    shown = [plain(word) for word in travel.words]
    assert "⟨F0⟩⟨9F⟩" in "".join(shown)
    assert "�" not in "".join(shown)
    for text in (picture_svg(travel)[0], trajectory_page(travel), str(travel)):
        text.encode("utf-8")


# ---- files ----------------------------------------------------------------------------------------------


def test_every_ending_holds_the_same_numbers(travel, tmp_path):
    rows = list(csv.DictReader(io.StringIO(travel.save(tmp_path / "t.csv").read_text("utf-8"), newline="")))
    assert len(rows) == len(travel.words) * len(travel.states)
    assert float(rows[5]["itself"]) == travel.own[1, 1]
    assert float(rows[5]["moved"]) == travel.moved[1, 0]
    assert rows[4]["moved"] == ""
    record = json.loads(travel.save(tmp_path / "t.json").read_text("utf-8"))
    assert record["scores"] == travel.scores
    assert record["seed"] == 0
    np.testing.assert_array_equal(record["points"], travel.points)
    assert record["readings"][0][-1][0]["text"] == travel.readings[0][-1][0].text
    data = payload(travel.save(tmp_path / "t.html").read_text("utf-8"))
    np.testing.assert_allclose(data["points"], travel.points, atol=1e-4)
    np.testing.assert_allclose(data["own"], travel.own, atol=0.01)
    assert data["csv"].count("\n") == len(rows) + 1
    assert travel.save(tmp_path / "t.svg").read_text("utf-8") == picture_svg(travel)[0]
    assert len(travel.to_frame()) == len(rows)


def test_the_page_is_small_and_whole(travel):
    page = trajectory_page(travel)
    assert len(page) < 300_000, "no drawing library is needed"
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert page.index("class='paper'") < page.index("<canvas"), "a picture stands there before any script runs"


def test_files_that_cannot_be_written_are_refused_at_once(travel, tmp_path, monkeypatch):
    endings = "ends in '.gif'; choose one of .html .svg .pdf .png .csv .json"
    for name, message in (("t.gif", endings), ("t", "has no ending")):
        with pytest.raises(OutputError, match=message):
            check_out(tmp_path / name)
        with pytest.raises(OutputError, match=message):
            travel.save(tmp_path / name)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(OutputError, match=r"is a folder; name a file in it"):
        check_out(tmp_path / "folder.html")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="a file stands where a folder should be"):
        check_out(tmp_path / "file" / "t.html")
    monkeypatch.setattr("armillary.views.travel.formats.find_spec", lambda name: None)
    with pytest.raises(OutputError, match=r"pip install 'armillary\[paper\]', or save as .svg"):
        check_out(tmp_path / "t.png")


def test_the_globe_is_painted_without_a_browser(travel, tmp_path):
    """Its colours and its shading are on the picture; the PDF has the same bytes again."""
    image = Image.open(travel.save(tmp_path / "t.png")).convert("RGB")
    pixels = np.asarray(image, dtype=int)
    assert pixels.shape[1] == 2100
    for colour in ((0x2C, 0x6E, 0x9B), (0xB8, 0x86, 0x2B), (0x1C, 0x23, 0x30)):
        assert (np.abs(pixels - np.array(colour)).sum(-1) < 12).sum() > 100, colour
    globe = (np.abs(pixels - np.array([0xF6, 0xF3, 0xEB])).sum(-1) < 12).mean()
    assert globe > 0.02, "the sphere is shaded"
    first, second = (travel.save(tmp_path / name).read_bytes() for name in ("a.pdf", "b.pdf"))
    assert first.startswith(b"%PDF") and first == second


def test_the_notebooks_figure_plays_every_state(travel):
    figure = travel.plot()
    assert [frame.name for frame in figure.frames] == ["0", "1", "2", "3"]
    assert len(figure.layout.sliders[0].steps) == 4
    play = figure.layout.updatemenus[0].buttons[0].args[1]
    assert play["frame"]["duration"] * 3 == pytest.approx(5000, rel=0.01)
    dots = next(t for t in figure.data if t.type == "scatter3d" and t.hovertext is not None)
    assert len(dots.x) == travel.points.shape[0] * travel.points.shape[1]
    assert "rank correlation" in figure.layout.annotations[0].text


# ---- the command ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return once(tmp_path_factory.getbasetemp().parent, "travel-gpt2", lambda path: model_folder("gpt2", path))


def test_the_command_draws_and_prints(folder, tmp_path):
    out = tmp_path / "new" / "t.html"
    output = works("travel", folder, SENTENCE, "--out", out).stdout
    assert out.exists()
    assert "words end farther from themselves" in output
    assert "how faithful it is (1 is best)" in output
    assert str(out) in output.replace("\n", "")
    works("travel", folder, "-", "--projection", "span", "--word", 2, "--out", tmp_path / "t.svg", input="to kill two")
    assert "Drawn: word 2 of" in (tmp_path / "t.svg").read_text("utf-8")


def test_the_command_answers_bad_input(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused("takes a model and a sentence, or a sentence only; nothing was given", "travel")
    refused("only 'builtin:gpt' was given, which looks like a model", "travel", "builtin:gpt")
    refused("there is an empty word among what was given", "travel", folder, "")
    refused("did you mean 'pca'", "travel", folder, SENTENCE, "--projection", "pac")
    refused("choose one of .html", "travel", folder, SENTENCE, "--out", "t.gif")
    (tmp_path / "file").touch()
    refused("cannot be written", "travel", folder, SENTENCE, "--out", "file/t.html")
    refused("there is no token 40", "travel", folder, SENTENCE, "--word", 40)
    (Path("bare")).mkdir()
    tiny("gpt2").save_pretrained("bare")
    refused("without a tokenizer", "travel", "bare", SENTENCE)
    assert not Path("travel.html").exists()


@pytest.mark.parametrize("args", [("", "pca"), (SENTENCE, "pcaa"), (SENTENCE, "pca", "--out", "t.gif")])
def test_a_mistake_is_answered_before_torch_is_loaded(args, tmp_path):
    import subprocess

    sentence, projection, *more = args
    code = (
        "import sys\nfrom armillary.cli import main\n"
        f"sys.argv = ['armillary', 'travel', 'builtin:gpt', {sentence!r}, '--projection', {projection!r}, *{more!r}]\n"
        "try: main()\nexcept SystemExit as end: assert end.code == 2\nsys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path, capture_output=True).returncode == 0


def test_states_on_the_globe_are_as_far_apart_as_scored(travel):
    """The scores are of what is drawn, not of something before it."""
    from scipy.stats import spearmanr

    points = np.concatenate([travel.points.reshape(-1, 3), travel.targets])
    assert travel.scores["stability"] == 1
    upper = np.triu_indices(len(points), 1)
    model = tiny("gpt2")
    ids = torch.tensor([tokenizer()(SENTENCE)["input_ids"]])
    with torch.no_grad():
        output = model(ids, output_hidden_states=True)
        stream = [model.transformer.ln_f(h[0]) for h in output.hidden_states[:-1]] + [output.hidden_states[-1][0]]
        after = [*ids[0, 1:].tolist(), int(output.logits[0, -1].argmax())]
        stacked = torch.cat([torch.stack(stream, 1).flatten(0, 1), model.lm_head.weight[after]]).double()
    true = angles((stacked / stacked.norm(dim=1, keepdim=True)).numpy())
    correlation = spearmanr(true[upper], angles(points)[upper]).statistic
    assert travel.scores["correlation"] == pytest.approx(correlation, abs=1e-3)


def test_a_narrow_picture_has_the_angles_below_the_globe(travel):
    from armillary.views.travel import globe
    from armillary.views.travel.svg import WIDTH

    (wide, _), (narrow, height) = (picture_svg(travel, narrow=narrow) for narrow in (False, True))
    assert f'viewBox="0 0 {WIDTH} ' in wide
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', narrow)
    assert size is not None and int(size[1]) <= globe.WIDTH + 48 and int(size[2]) == height > globe.HEIGHT + 300

"""E8 to E10: a stream that moves to the next word by known steps, circles through known norms, the paper's sentence."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from naive import UNSEEN, WILD, specimen, tokenizer
from tiny import tiny

from armillary import readouts
from armillary.anatomy import Norm
from armillary.anatomy.folded import fold
from armillary.anatomy.read import read
from armillary.anatomy.space import Vectors
from armillary.flow.capture import run, still
from armillary.flow.documents import Documents
from armillary.flow.tokens import Window, collate
from armillary.lab.required_words import NOUNS
from armillary.readouts.experiments.approach import approach, intervals, means, other_words, windows_of
from armillary.readouts.experiments.paper import SENTENCE
from armillary.readouts.experiments.schematic import CirclePlane, planes_of, schematic_sheet
from armillary.readouts.head_spectra import decompose
from armillary.readouts.settings import Settings
from armillary.readouts.trajectory import trajectory
from armillary.specimens.models.bag import CONTEXT, bag, gaussian
from armillary.specimens.models.streams.word_models import LAYERS, SIZE, mover
from armillary.specimens.models.texts import corpus

PROSE = " ".join(NOUNS[:12])


# E10.


def steady(step: int, documents: int = 12, length: int = 20) -> list[Window]:
    """Documents in which every token is `step` after the one before."""
    return [Window(d, tuple((3 * d + step * t) % SIZE for t in range(length))) for d in range(documents)]


def expected(step: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the mover's states say [layer] of the next word, of the word itself and of any other, in closed form.

    Its stream holds a at the word, b at the next and 3 in its memory. A layer's unit sees the memory, normed, less 2.
    """
    a, b, eps = 1.0, 0.0, 1e-5
    logits = []
    for _ in range(LAYERS + 1):
        mean, power = (a + b + 3) / (2 * SIZE), (a * a + b * b + 9) / (2 * SIZE)
        spread = np.sqrt(power - mean**2 + eps)
        logits.append(((b - mean) / spread, (a - mean) / spread, -mean / spread))
        alive = max((3 - mean) / spread - 2, 0) * step / LAYERS
        a, b = a - 0.5 * alive, b + alive
    following, own, other = np.array(logits).T
    return following, own, other


def test_a_stream_that_moves_to_the_next_word_rises_as_expected():
    following, own, other = expected()
    rows = means(approach(mover(), steady(1)).by_state.sum(0))
    np.testing.assert_allclose(rows[:, 2], following, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(rows[:, 3], own, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(rows[:, 0], following - own, rtol=1e-4, atol=1e-4)
    assert (np.diff(rows[:, 0]) > 0).all()
    # Another word stays where it was, and only the word's own leaving raises the control.
    np.testing.assert_allclose(rows[:, 4], other, rtol=1e-3, atol=1e-4)
    assert np.ptp(rows[:, 4]) < 0.02 * np.ptp(rows[:, 2])
    np.testing.assert_allclose(rows[:, 1], other - own, rtol=1e-3, atol=1e-3)


def test_a_text_that_goes_the_other_way_is_not_approached():
    """The model always moves to t + 1: if t − 1 follows, the true next word is as far as a word that never occurs."""
    rows = means(approach(mover(), steady(-1)).by_state.sum(0))
    np.testing.assert_allclose(rows[:, 2], expected()[2], rtol=1e-3, atol=1e-4)
    # A random word is sometimes the one that the model moves to; the next one never is.
    assert (rows[1:, 4] > rows[1:, 2]).all()


def test_a_stream_that_goes_nowhere_says_the_same_at_every_layer():
    rows = means(approach(bag(gaussian()), corpus(12, 20).windows).by_state.sum(0))
    assert np.ptp(rows[:, 0]) < 1e-4 and rows[0, 0] < -1


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "gpt_neox", "gpt_neox-sequential", "opt"])
def test_at_the_end_it_is_the_difference_of_the_model_s_own_logits(name):
    anatomy = read(tiny(name))
    windows = [
        Window(d, tuple(int(i) for i in row))
        for d, row in enumerate(torch.randint(0, 97, (3, 9), generator=torch.Generator().manual_seed(4)).tolist())
    ]
    sums = approach(anatomy, windows)
    batch = collate(windows, 0)
    with still(anatomy.model):
        logits = run(anatomy, batch.ids, batch.mask, logits=True).double()
    if anatomy.b_U is not None:
        logits = logits - anatomy.b_U.double()
    following, own = (
        logits[:, :-1].gather(-1, ids[..., None])[..., 0] for ids in (batch.ids[:, 1:], batch.ids[:, :-1])
    )
    truth = (following - own).mean(0).numpy()
    np.testing.assert_allclose(means(sums.values.sum(0))[-1, :, 0], truth, rtol=1e-4, atol=1e-4)
    # The mutation: taking a token's own vector for the next one's is another number.
    assert np.abs(truth).mean() > 0.1


def test_the_first_position_counts_in_the_maps_alone():
    sums = approach(mover(), steady(1))
    assert sums.first and sums.values[:, 0, :, 0].sum() - sums.by_state[:, 0, 0].sum() == 12
    behind = [replace(w, prefix=1) for w in steady(1)]
    sums = approach(mover(), behind)
    assert not sums.first and sums.values[:, 0, :, 0].sum() == sums.by_state[:, 0, 0].sum() == 12 * 18


def test_intervals_are_over_documents():
    draw = np.random.default_rng(0)
    truth = draw.normal(1, 2, (200, 30, 1, 1))  # 200 texts of 30 documents, whose own means differ
    sums = np.concatenate([np.full_like(truth, 50), 50 * truth, 0 * truth, np.full_like(truth, 50), 0 * truth], -1)
    within = [low[0, 0] <= 1 <= high[0, 0] for _, low, high in map(intervals, sums)]
    assert 0.9 < np.mean(within) < 0.99
    assert np.isnan(intervals(sums[0][:5])[1:]).all()


def test_the_random_word_is_neither_the_word_nor_its_next():
    draw, ids = np.random.default_rng(1), np.arange(300) % 3
    other, met = other_words(ids, (ids + 1) % 3, np.arange(3), draw)
    assert ((other == (ids + 2) % 3) | (met == 0)).all() and met.mean() > 0.9
    _, met = other_words(ids, (ids + 1) % 2, np.array([0, 1]), draw)
    assert not met[ids == 0].any() and not met[ids == 1].any()


def test_sentences_are_read_by_themselves():
    text = Documents("planted", (f"{PROSE}. Too short. {PROSE}! {PROSE}", "", f"{PROSE} {PROSE}"))
    windows = windows_of(specimen("gpt2", NOUNS[:12]), text)
    assert [w.document for w in windows] == [0, 0, 0, 2]
    assert max(len(w.ids) for w in windows) <= CONTEXT


# E9.


def test_half_axes_and_shifts_are_the_gain_s_and_the_bias_s():
    """γ is 3 and ½ on the plane's two axes; β is (2, −1) in its image and 4 out of it."""
    d = 16
    gain, shift = torch.ones(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    gain[3], gain[5], shift[3], shift[5], shift[9] = 3, 0.5, 2, -1, 4
    axes = torch.eye(d, dtype=torch.float64)[:, [3, 5]]
    seen = torch.eye(d, dtype=torch.float64)[:, [7, 8]] * torch.tensor([2.0, 0.25])
    plane = CirclePlane(Norm("rmsnorm", gain, shift, 0.0), axes, seen, torch.zeros(d, dtype=torch.float64))
    circle, ellipse, moved, image = plane.stages()
    assert circle.axes == pytest.approx((4, 4)) and ellipse.axes == pytest.approx((12, 2))
    np.testing.assert_allclose(ellipse.matrix, np.diag([12, 2]), atol=1e-12)
    assert ellipse.turned == pytest.approx((0, 0), abs=1e-6)
    np.testing.assert_allclose(moved.centre, [2, -1], atol=1e-12)
    assert moved.away == pytest.approx(4) and image.axes == pytest.approx((8, 1))
    assert "β moves it 2.2 in the plane, 4 out of it" in moved.facts and "no bias moves it" in image.facts
    # The control: a gain of one leaves the circle a circle, in its own plane.
    plain = CirclePlane(
        Norm("rmsnorm", torch.ones(d), None, 0.0), axes, seen, torch.zeros(d, dtype=torch.float64)
    ).stages()
    np.testing.assert_allclose(plain[1].matrix, circle.matrix, atol=1e-12)
    assert plain[2].facts == ("this norm has no shift",)


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2", "gemma2", "gpt_neox", "bert", "opt-post"])
def test_what_is_drawn_is_what_norm_and_head_do(name):
    """Points of the circle sent through the norm and the folded head, the long way: the same lengths and scores."""
    anatomy, layer = read(tiny(name)), 1
    (part,), folded = decompose(anatomy, layer, ("qk",)), fold(anatomy, layer)
    norm = folded.norm
    degrees = np.array([0.0, 40.0, 130.0, 275.0])
    at = torch.from_numpy(np.radians(degrees))
    for (_, head, _), plane in planes_of(anatomy, part).items():
        z = anatomy.d**0.5 * torch.stack((at.cos(), at.sin()), 1) @ plane.p.mT
        y = z * norm.gain.double()
        _, ellipse, moved, image = plane.stages()
        np.testing.assert_allclose(np.linalg.norm(ellipse.curve(degrees), axis=1), y.norm(dim=1), rtol=1e-6)
        y = y if norm.shift is None else y + norm.shift.double()
        length = np.hypot(np.linalg.norm(moved.curve(degrees), axis=1), moved.away)
        np.testing.assert_allclose(length, y.norm(dim=1), rtol=1e-6)
        # A score is affine in the key's direction: twice the image is the difference of two opposite keys' scores.
        keys = torch.cat((torch.eye(anatomy.d), -torch.eye(anatomy.d))).double()
        if folded.attention.q_norm is None and folded.attention.softcap is None:
            scores = folded.scores(Vectors(z, folded.reads), Vectors(keys, folded.reads))[head]
            truth = ((scores[:, : anatomy.d] - scores[:, anatomy.d :]) / 2).norm(dim=1)
            length = np.hypot(np.linalg.norm(image.curve(degrees), axis=1), image.away)
            np.testing.assert_allclose(length, truth, rtol=1e-5)


def test_without_a_norm_or_a_plane_there_is_no_schematic():
    anatomy = read(tiny("gpt2"))
    heads = decompose(anatomy, 0, ("vo",))
    assert schematic_sheet(anatomy, heads, Settings(0, "dot", 5), None) is None


# The folder.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    words = [*NOUNS[:12], *WILD, *UNSEEN]
    anatomy = replace(specimen("gpt2"), name="a|b <i>model</i> 50%", tokenizer=tokenizer(words))
    text = [f"{PROSE} <script>alert(1)</script>." for _ in range(9)]
    return readouts.paper(anatomy, "0,2", text=text).save(tmp_path_factory.mktemp("paper"))


def test_pictures_are_saved_without_a_browser(folder):
    for name in ("E8-trajectory", "E9-schematic"):
        text = (folder / "figures" / f"{name}.svg").read_text("utf-8")
        ElementTree.fromstring(text)
        assert "<script" not in text and "<i>" not in text and "a|b" in text
        page = (folder / "figures" / f"{name}.html").read_text("utf-8")
        assert "Content-Security-Policy" in page and "<script>alert" not in page
    assert (folder / "figures" / "E10-approach.html").exists()
    for name in (
        "E8-trajectory",
        "E9-schematic.stages",
        "E9-schematic.points",
        "E10-approach.by-layer",
        "E10-approach.by-position",
    ):
        assert (folder / "tables" / f"{name}.csv").exists()
        body = re.sub("(?m)^%.*$", "", (folder / "tables" / f"{name}.tex").read_text("utf-8"))
        assert "γ" not in body and "\\begin{" in body


def test_a_sheet_s_picture_is_its_drawing(tmp_path):
    sheet = readouts.paper(specimen("llama", NOUNS[:12]), layers="0")["E9"]
    assert "L0H" in sheet.save(tmp_path / "x.svg").read_text("utf-8")
    assert "<svg" in sheet._repr_html_() and sheet.plot().layout.height > 100


# E8, and models that do not read out a next word.


def test_the_sentence_s_sheet_is_its_trajectory():
    anatomy = specimen("gpt2", NOUNS[:12])
    sheet, way = readouts.paper(anatomy, layers="0")["E8"], trajectory(anatomy, SENTENCE)
    frame = sheet.to_frame()
    np.testing.assert_allclose(frame.itself, way.own.ravel())
    assert list(frame.state.unique()) == list(way.states) and SENTENCE in sheet.title


def test_an_encoder_says_what_it_leaves_out():
    paper = readouts.paper(specimen("bert", NOUNS[:12]), layers="0")
    names = [sheet.name for sheet in paper]
    assert "E8-trajectory" in names and "E9-schematic" in names and "E10-approach" not in names
    assert any(
        "E10 was left out: it compares states with the next word, which bert does not predict" in note
        for note in paper.notes
    )


def test_a_text_without_sentences_is_said():
    paper = readouts.paper(specimen("gpt2", NOUNS[:12]), layers="0", text=["time year", "way"])
    assert any("E10 was left out: 2 texts given contains no sentence of 6 tokens" in note for note in paper.notes)

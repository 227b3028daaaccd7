"""Claims of others: planted truths come back, the authors' own formulas agree, and mistakes are caught."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import bench_of, finding_of, name_of, tried, whole
from scipy.optimize import linprog
from tiny import tiny

from armillary.anatomy.folded import fold
from armillary.anatomy.read import read
from armillary.anatomy.space import Vectors
from armillary.flow.passages import watched
from armillary.geometry.clouds.hull import selectable
from armillary.probes import choose
from armillary.probes.instruments.curvatures import CURVATURES
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.instruments.stream_pairs import STREAM_PAIRS, block_states
from armillary.probes.machinery import MODEL, RANDOM
from armillary.probes.machinery.layers import stream_states
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import gather, observe
from armillary.probes.others.anisotropy import Anisotropy, _after_blocks, _cone, _median
from armillary.probes.others.id_peak import by_half, middle, peak
from armillary.probes.others.key_hulls import _keys, _layer, _received
from armillary.probes.others.largest.massive_places import SetOutliers, extremes
from armillary.probes.others.straight import middle_third
from armillary.probes.others.streams.bare_attention import Bare, left
from armillary.probes.others.streams.bare_attention import share as left_share
from armillary.probes.others.streams.block_fits import block_fits, skip, write
from armillary.probes.others.streams.block_fits import whole as linear_share
from armillary.probes.others.streams.cones import contributions, cosines, rogue_share
from armillary.probes.others.streams.more_twins import UNTRAINED, more_twins
from armillary.probes.others.streams.sampled_stream import sampled_streams
from armillary.results import Why
from armillary.specimens.models.assembled import assembled
from armillary.specimens.models.draws import normal
from armillary.specimens.models.streams.others_models import resting, writing
from armillary.specimens.models.texts import chained, corpus
from armillary.specimens.planted.others_cases import CASES

FAMILIES = ("gpt2", "llama", "gemma2", "gpt_neox", "opt-post", "bert")
PARTS = {
    "massive, no head looks": {"heads park attention on the first token": "refuted", "massive values": "supported"},
    "massive, at every token": {"massive values": "supported", "at a few tokens": "refuted"},
    "anisotropy, a mean along all axes": {"a narrow cone": "supported", "by rogue dimensions": "refuted"},
    "linear, small writes of |y|": {"with its skip": "supported", "not by the skip alone": "qualified"},
    "straight, means of all words so far": {"by training": "supported", "from the text": "refuted"},
    "collapse, words that share a mean": {"skips prevent it": "supported"},
    "collapse, writes that drown the skips": {"attention alone collapses": "supported", "skips prevent it": "refuted"},
    "selectable, words of many lengths": {"queries use the normal": "supported"},
    "selectable, words of one length": {
        "every key is selectable": "supported",
        "scaling does it": "refuted",
        "one query attends to all keys alike": "supported",
        "queries use the normal": "refuted",
    },
    "selectable, heads of two axes": {
        "every key is selectable": "refuted",
        "one query attends to all keys alike": "refuted",
    },
}


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_planted_truth_comes_back(case):
    finding = finding_of(name_of(case))
    whole(finding)
    assert finding.verdict == case.planted.verdict, f"{finding.statistic}: {finding.reading}"
    parts = {part.name: part.verdict for part in finding.parts}
    assert PARTS.get(name_of(case), {}).items() <= parts.items()


@pytest.mark.parametrize("family", FAMILIES)
def test_states_of_the_stream_are_what_blocks_give(family):
    """What norms receive or give is `resid_post`, whatever the order of norms."""
    anatomy = read(tiny(family))
    text = chained(3, 12, vocabulary=90)
    gathered = observe(anatomy, text, [SAMPLES])[SAMPLES]
    batch = next(text.batches())
    states = bench_of(gather(anatomy, text, ())).states(batch, [state.name for state in stream_states(anatomy)])
    for state in stream_states(anatomy):
        sample = gathered.rows[state.norm].sample()
        norm = anatomy.norms[state.norm]
        rows = norm(sample.rows) if state.output else sample.rows
        for row, (document, position, *_) in zip(rows, sample.payload.tolist(), strict=True):
            at = batch.documents.tolist().index(document) if document in batch.documents.tolist() else None
            if at is not None:
                torch.testing.assert_close(row, states[state.name][at, position], rtol=1e-4, atol=1e-4)


def test_curvature_is_the_angle_between_steps():
    """Against the definition, token by token."""
    anatomy = read(tiny("gpt2"))
    text = corpus(6, 20, vocabulary=90)
    state = observe(anatomy, text, [CURVATURES])[CURVATURES]
    sums = state.sums()
    ids = torch.tensor([window.ids for window in text.windows])
    for index, name in enumerate(state.states):
        states = watched(anatomy, ids, name)[name].double()[:, 1:]
        steps = states[:, 1:] - states[:, :-1]
        cosines = torch.nn.functional.cosine_similarity(steps[:, 1:], steps[:, :-1], dim=-1)
        degrees = torch.rad2deg(cosines.clamp(-1, 1).acos())
        assert sums[:, index, 0].sum() == degrees.numel()
        np.testing.assert_allclose(sums[:, index, 1], degrees.sum(1).numpy(), rtol=1e-4)


def test_independent_points_turn_by_120_degrees():
    rng = np.random.default_rng(0)
    steps = np.diff(rng.standard_normal((4000, 64)), axis=0)
    cosine = (steps[1:] * steps[:-1]).sum(1) / np.linalg.norm(steps[1:], axis=1) / np.linalg.norm(steps[:-1], axis=1)
    assert np.degrees(np.arccos(cosine)).mean() == pytest.approx(120, abs=1)
    assert [middle_third(n) for n in (4, 5, 8)] == [slice(1, 3), slice(1, 4), slice(2, 6)]


def test_dimensions_add_up_to_the_cosine():
    """Timkey and van Schijndel: the contributions of all dimensions sum to the mean cosine."""
    rng = np.random.default_rng(1)
    unit = rng.standard_normal((12, 5, 8)) + np.array([3.0, *[0] * 7])
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    pairs = [unit[i] @ unit[j].T for i in range(12) for j in range(12) if i != j]
    shares = contributions(unit.sum(1), np.ones((1, 12)))[0]
    assert shares.sum() == pytest.approx(sum(pair.sum() for pair in pairs))
    assert shares[0] / shares.sum() > 0.9
    assert rogue_share(unit.sum(1), np.ones((1, 12)))[0] > 0.9


def test_noise_has_no_rogue_dimensions():
    """Dimensions are found on other documents: noise must not find its own."""
    rng = np.random.default_rng(2)
    sums = rng.standard_normal((20, 200)) + 0.3
    assert rogue_share(sums, np.ones((1, 20)))[0] < 0.1


def test_of_a_cosine_that_may_be_0_no_dimension_has_a_share():
    finding = finding_of("anisotropy, no mean")
    rogue = next(part for part in finding.parts if part.name == "by rogue dimensions")
    assert (rogue.verdict, rogue.why, rogue.statistic) == ("undecided", Why.UNDEFINED, None)
    assert "dimensions make" not in finding.headline + finding.reading
    frame = finding.to_frame()
    steady = frame.cosine_low > 0.5 * frame.cosine.clip(lower=0)
    assert not steady.all() and (frame.rogue.notna() == steady).all()


CONES = {"inside": (0.35, 0.3, 0.4), "outside": (0.15, 0.1, 0.2), "open": (0.26, 0.2, 0.3)}


@pytest.mark.parametrize(
    ("blocks", "median", "verdict"),
    [
        ("inside " * 6 + "open", "inside", "supported"),
        ("outside " * 6 + "open", "outside", "refuted"),
        ("inside " * 5 + "outside " * 2, "inside", "qualified"),
        ("inside outside open open open", "open", "qualified"),
        ("open " * 7, "open", "undecided"),
        ("inside " * 4 + "open " * 3, "open", "undecided"),
    ],
)
def test_the_median_block_decides_about_a_cone_and_a_block_at_the_limit_does_not(blocks, median, verdict):
    """One block whose interval spans the limit had left the whole part open."""
    names = [f"L{layer}" for layer in range(len(blocks.split()))]
    part = _cone(np.array([CONES[block] for block in blocks.split()]), CONES[median], names)
    assert part.verdict == verdict and (part.why is not None) == (verdict == "undecided")
    inside, outside, unclear = (blocks.split().count(kind) for kind in CONES)
    assert f"after {inside} of {len(names)} blocks" in part.reading
    assert ("(not at " in part.reading) == bool(inside and outside)
    assert (f"after {unclear} more" in part.reading) == bool(unclear)


def test_a_small_model_is_compared_with_twenty_untrained_ones():
    anatomy, text = read(tiny("gpt2")), chained(12, 20, vocabulary=90)
    gathered = gather(anatomy, text, (SAMPLES,))
    bench = bench_of(gathered)
    more = list(more_twins(bench))
    assert len(gathered.twins) + len(more) == UNTRAINED == 20
    tables = [twin.W_E for twin in (*gathered.untrained, *(evidence.untrained[0] for evidence in more))]
    assert not any(torch.equal(a, b) for i, a in enumerate(tables) for b in tables[:i]), "no model counts twice"
    finding = judge(Anisotropy(), gathered, bench)
    values = [_median(evidence, cosines(evidence, RANDOM), _after_blocks(anatomy))[0] for evidence in more]
    own = [_median(gathered, cosines(gathered, arm), _after_blocks(anatomy))[0] for arm in gathered.twins]
    control = next(control for control in finding.controls if control.name == RANDOM)
    assert control.value == pytest.approx(np.mean(own + values))
    assert not list(more_twins(replace(bench, quick=True))), "--quick stays with its own"
    assert not list(more_twins(replace(bench, untrained=gathered.untrained[:2]))), "few are few for a reason"
    assert not list(more_twins(replace(bench, corpus=replace(text, tokens=20_000)))), "of a long text they are dear"


def test_the_linear_share_is_that_of_least_squares():
    """With many tokens and no penalty to speak of, the share is the textbook's; the authors' score is at least it."""
    anatomy, text = writing(0.5, 1.0)
    gathered = gather(anatomy, text, (SAMPLES, STREAM_PAIRS))
    fits = block_fits(gathered, MODEL)
    streams = sampled_streams(gathered, MODEL)
    before, after = block_states(anatomy)["L0"]
    x, y = (streams.x[state.name].astype(float) for state in (before, after))
    x1, y1 = np.c_[x, np.ones(len(x))], y
    left = y1 - x1 @ np.linalg.lstsq(x1, y1, rcond=None)[0]
    in_sample = 1 - np.square(left).sum() / np.square(y - y.mean(0)).sum()
    share = linear_share(fits.sums.sum(0))[0]
    assert share <= fits.in_sample[0] <= 1
    assert share == pytest.approx(in_sample, abs=0.03)
    added = np.square((y - x) - (y - x).mean(0)).sum()
    assert skip(fits.sums.sum(0))[0] == pytest.approx(1 - added / np.square(y - y.mean(0)).sum(), abs=0.02)
    assert write(fits.sums.sum(0))[0] < share


def test_a_map_is_not_tried_on_what_it_was_fitted_to():
    """Writes that are a random function of the word: fitted to all words the map would seem good."""
    gathered = gather(writing(1.0, 1.0)[0], corpus(10, 30, seed=5), (SAMPLES, STREAM_PAIRS))
    fits = block_fits(gathered, MODEL)
    assert fits.in_sample[0] > linear_share(fits.sums.sum(0))[0] + 0.03


def test_the_largest_coordinate_is_where_it_was_planted():
    anatomy, text = resting()
    places = extremes(bench_of(gather(anatomy, text, ())))
    assert set(places.position[:, 0]) == {0} and set(places.dimension[:, 0]) == {5}
    assert places.value[:, 0] == pytest.approx(4000)
    assert np.median(places.ratios[:, 0]) > 1000


def test_setting_outliers_touches_nothing_else():
    anatomy, text = resting()
    batch = next(text.batches())
    zeros = torch.zeros(anatomy.d)
    bench = bench_of(gather(anatomy, text, ()))
    plain = bench.states(batch, ["L0.resid_pre", "L1.resid_post"])
    none = bench.states(batch, ["L1.resid_post"], SetOutliers("L0.resid_post", 1e9, zeros))
    assert torch.equal(plain["L1.resid_post"], none["L1.resid_post"])
    moved = {}
    for other in (0, 11):
        edit = SetOutliers("L0.resid_post", 100.0, zeros, others=other)
        changed = bench.states(batch, ["L1.resid_post"], edit)["L1.resid_post"]
        moved[other] = float((changed - plain["L1.resid_post"])[:, 1:].abs().max())
    # Another coordinate of the first token is about one beside 4000: hardly anything of what heads see.
    assert moved[11] < 0.1 < 1 < moved[0]


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "opt-post", "bert"])
def test_every_family_can_be_asked(family):
    probes = choose("H")
    needed = [instrument for probe in probes for instrument in probe.instruments]
    gathered = gather(read(tiny(family)), chained(12, 20, vocabulary=90), needed)
    bench = bench_of(gathered)
    bench.prove()
    for probe in probes:
        finding = judge(probe, gathered, bench)
        whole(finding)
        assert not math.isnan(finding.statistic.value) or finding.verdict == "undecided"


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "gpt_neox", "bert"])
def test_without_its_skip_a_block_gives_its_write(family):
    """What leaves the last block is what its last sublayer wrote; with nothing taken away it is the model's own."""
    anatomy = read(tiny(family))
    bench = bench_of(gather(anatomy, chained(3, 12, vocabulary=90), ()))
    batch, last = bench.batches()[0], anatomy.layers - 1
    block = anatomy.blocks[last]
    writes = ["mlp_out" if block.ln2_post is None else "ln2_post", "attn_out" if block.ln1_post is None else "ln1_post"]
    sites = [f"L{last}.{name}" for name in (*writes, "resid_post", "resid_pre")]
    plain = bench.states(batch, sites)
    for skips, forwards in ((False, True), (False, False), (True, False)):
        states = bench.states(batch, sites, Bare(skips, forwards))
        assert not torch.allclose(states[sites[2]], plain[sites[2]], atol=1e-3)
    assert torch.equal(bench.states(batch, sites)[sites[2]], plain[sites[2]])
    if anatomy.order == "pre" and not anatomy.parallel:
        # The write that is watched has its skip taken off already, so that the sum is the bare write.
        bare = bench.states(batch, sites, Bare(False, False))
        assert float(bare[sites[0]].abs().max()) == 0


def test_the_highest_of_many_noisy_numbers_is_no_peak():
    """Dimensions that differ by chance alone: found and measured on the same documents, they would be too high."""
    rng = np.random.default_rng(3)
    ratios, highest = [], []
    for _ in range(40):
        sums = np.zeros((20, 30, 2, 2))
        sums[..., 0] = 20
        sums[..., 1] = 2 + 0.4 * rng.standard_normal((20, 30, 2))
        ratios.append(float(peak(by_half(sums).sum(0)[None])[0]))
        same = by_half(sums).sum(0)[None].repeat(2, 1)[:, ::2]
        highest.append(float((same[..., 0] / same[..., 1])[:, :, middle(30)].max(-1).mean() / 10))
    # A mean of 200 numbers with a spread of a fifth errs by 1.4 %, and the mean of 80 such ratios by a fifth of that.
    assert abs(np.mean(ratios) - 1) < 0.01 < 0.02 < np.mean(highest) - 1
    sums[:, 15, :, 1] /= 2
    assert float(peak(by_half(sums).sum(0)[None])[0]) > 1.5


def test_a_peak_outside_the_middle_is_none():
    """Six blocks: after the first, 17 % of the depth is over."""
    for at, height in ((1, 0.5), (2, 2.0), (4, 2.0), (5, 0.5)):
        sums = np.ones((20, 7, 2, 2))
        sums[:, at, :, 1] /= 2
        assert float(peak(by_half(sums).sum(0)[None])[0]) == height
    assert [int(middle(blocks + 1).sum()) for blocks in (3, 4, 5, 6, 10)] == [2, 3, 4, 3, 7]


@pytest.mark.parametrize("claim", ["others.idpeak", "others.straight"])
def test_the_middle_of_a_depth_needs_three_blocks(claim):
    probe = choose(claim)[0]
    for layers in (1, 2, 3):
        finding = tried(probe, assembled(normal(90, 32, stream=1), layers=layers), corpus(12, 30, vocabulary=90))
        assert (finding.why is Why.NOT_APPLICABLE) == (layers < 3), finding.reading
        whole(finding)
    assert "fewer than 3 blocks" in probe.claim.rule


def test_what_is_left_beside_the_mean():
    sums = np.array([[[0.0, 4.0], [4.0, 4.0], [1.0, 4.0]]])
    assert left_share(sums)[0].tolist() == [0.0, 1.0, 0.5]
    assert left(sums[:, 1:])[0].tolist() == [1.0, 0.5]


def test_a_mean_that_all_words_share_from_the_start_is_no_collapse():
    """Nearly one vector before the first block: skips keep what there is."""
    finding = finding_of("collapse, words that share a mean")
    start = next(control for control in finding.controls if "before the first block" in control.name)
    skips = next(control for control in finding.controls if control.name == "attention with skips")
    assert start.value < 0.1 < 0.5 < skips.value
    assert finding.to_frame().whole_share[0] == pytest.approx(start.value)


def test_embeddings_of_one_vector_leave_nothing_to_collapse():
    finding = tried(choose("others.collapse")[0], assembled(torch.ones(90, 32)), corpus(12, 30, vocabulary=90))
    assert (finding.verdict, finding.why) == ("undecided", Why.UNDEFINED)
    whole(finding)


def test_a_peak_needs_different_words():
    """Letters are no words: nothing is said of a dimension that could not be told."""
    finding = tried(choose("others.idpeak")[0], read(tiny("gpt2")), corpus(12, 30, vocabulary=40))
    assert (finding.verdict, finding.why) == ("undecided", Why.TOO_LITTLE_TEXT)
    assert "64 different words" in finding.reading
    more = tried(choose("others.idpeak")[0], read(tiny("gpt2")), corpus(12, 30, vocabulary=90))
    assert more.why is not Why.TOO_LITTLE_TEXT


def the_authors_programme(points, row):
    """Brody et al.'s linear programme (after Grivas et al.): the largest ball of queries that select a key, in a box;
    the key is unselectable if there is none of a radius of 1e-8."""
    steps = np.delete(points, row, axis=0) - points[row]
    lengths = np.linalg.norm(steps, axis=1, keepdims=True)
    cost = np.zeros(points.shape[1] + 1)
    cost[-1] = -1
    bounds = [(-100, 100)] * points.shape[1] + [(1e-8, None)]
    tolerance = {"primal_feasibility_tolerance": 1e-9}
    solved = linprog(cost, np.hstack([steps, lengths]), np.zeros(len(steps)), bounds=bounds, options=tolerance)
    return solved.status == 0


@pytest.mark.parametrize(("count", "axes"), [(30, 2), (60, 5), (60, 8), (12, 11), (9, 12)])
def test_selectable_keys_are_those_of_the_authors_programme(count, axes):
    points = np.random.default_rng(count).standard_normal((count, axes))
    points[3] = points[4]
    rows = np.arange(count)
    chosen = selectable(points, rows)
    assert chosen.tolist() == [the_authors_programme(points, row) for row in rows]
    assert chosen.all() == (axes > 8)
    # An affine map moves no key into a hull or out of it; on a sphere every key can be selected.
    assert (selectable(3 * points @ np.random.default_rng(1).standard_normal((axes, axes)) + 7, rows) == chosen).all()
    assert selectable(points / np.linalg.norm(points, axis=1, keepdims=True), rows).all()


def test_a_key_in_the_middle_is_found_however_small_the_cloud():
    corners = 1e-4 * np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    inside, edge, outside = 1e-5 * np.ones((1, 2)), np.array([[1e-4, 0]]), np.array([[1.01e-4, 0]])
    assert selectable(np.vstack([corners, inside]), np.arange(5)).tolist() == [True] * 4 + [False]
    assert not selectable(np.vstack([corners, edge]), np.array([4]))[0]
    assert selectable(np.vstack([corners, outside]), np.array([4]))[0]


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_neox", "qwen3", "bert"])
def test_keys_are_the_models_own(family):
    """Before rotation what `L.k` gives; with rotation, scores with the model's own queries follow."""
    anatomy = read(tiny(family))
    bench = bench_of(gather(anatomy, chained(2, 12, vocabulary=90), ()))
    batch = bench.batches()[0]
    layer = _layer(bench, 1)
    x = _received(bench, batch, [layer.site])[layer.site][0]
    keys = _keys(layer, layer.norm.direction(x))
    folded = fold(anatomy, 1, offsets=12)
    z = Vectors(layer.norm.direction(x), folded.reads)
    queries = folded.queries(z)[torch.from_numpy(layer.rows)]
    last = queries[:, -1:] if folded.rotary is None else queries[:, -1:] @ _position(anatomy, 11)
    scores = (last @ keys.mT)[:, 0] * folded.attention.scale
    for place in range(12):
        expected = folded.scores(z[11:], z[place : place + 1], 11 - place)[torch.from_numpy(layer.rows), 0, 0]
        torch.testing.assert_close(scores[:, place], expected, rtol=1e-4, atol=1e-5)


def _position(anatomy, place):
    """The rotation of one position as a matrix."""
    rotary = anatomy.blocks[1].attention.rotary
    matrices = rotary.matrices(torch.arange(place + 1), anatomy.k, torch.float64)
    return matrices[place]


def test_a_norm_that_does_not_project_is_asked_about_scaling_alone():
    gathered = gather(read(tiny("llama")), chained(12, 20, vocabulary=90), ())
    finding = judge(choose("others.brody")[0], gathered, bench_of(gathered))
    assert [part.name for part in finding.parts] == ["every key is selectable", "scaling does it"]
    assert "RMSNorm projects nothing" in finding.reading


def test_without_projection_the_query_along_the_normal_sees_means():
    finding = finding_of("selectable, words of one length")
    frame = finding.to_frame()
    np.testing.assert_allclose(frame["normal"], 1)
    np.testing.assert_allclose(frame["reached"], 1)
    assert (frame["unprojected"] < 0.5).all() and (frame["random"] < 0.8).all()
    assert (frame["inside"] == 0).all() and (frame["stream"] == 0).all()

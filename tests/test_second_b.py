"""The second reading of the sphere, of positions and of axes: planted truth comes back, controls can void a claim."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import case_of, finding_of, name_of, tried, whole
from tiny import tiny

from armillary.anatomy.read import read
from armillary.flow.controls import random_twin
from armillary.flow.tokens import Corpus
from armillary.probes.grid.privileged import Privileged
from armillary.probes.machinery import MODEL
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.shared_pass import gather
from armillary.probes.sphere.contrast import Contrast
from armillary.probes.sphere.isotropy import POST, Isotropy, headline
from armillary.probes.sphere.shared import Shared
from armillary.probes.sphere.symmetry import cycle_parts
from armillary.probes.sphere.symmetry.cycle import WRITE, X, Y, cycle, sublayers
from armillary.probes.sphere.symmetry.rotations import rotation, sublayer_errors
from armillary.probes.stability.positions import PositionRules
from armillary.results import Why
from armillary.specimens.models import texts
from armillary.specimens.models.assembled import STEEP, WIDE, D, assembled, cycling, gained, one_axis, uneven
from armillary.specimens.models.draws import normal
from armillary.specimens.planted import CASES

# Fused and split projections, grouped heads, soft caps and norms around sublayers, parallel sublayers, post-norm.
FAMILIES = ("gpt2", "llama", "gemma2", "gpt_neox", "phi", "opt-post", "bert")
PROBES = (Isotropy(), Contrast(), Shared(), PositionRules(), Privileged())


def text(documents: int = 20, length: int = 40, words: int = 60) -> Corpus:
    """Documents of independent words."""
    return texts.corpus(documents, length, vocabulary=words)


CLAIMS = [probe.claim.id for probe in PROBES]


@pytest.mark.parametrize("case", [name_of(case) for case in CASES if case.planted.claim in CLAIMS])
def test_planted_truth_comes_back(case):
    finding = finding_of(case)
    whole(finding)
    assert finding.verdict == case_of(case).planted.verdict, f"{finding.statistic}: {finding.reading}"


@pytest.mark.usefixtures("two_twins")
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.claim.id)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_asked(family, probe):
    whole(tried(probe, read(tiny(family)), text(9, 24, words=97)))


# The cycle.


def test_stations_are_what_the_planted_weights_say():
    """Isotropy of y by the eigenvalues of its covariance, and of writes along one axis: 1/d."""
    anatomy, corpus = cycling(lambda layer: STEEP**-0.5, one_axis())
    measured = cycle(gather(anatomy, corpus, Isotropy.instruments), MODEL)
    stations = measured.participation[0]
    assert stations[:, WRITE] == pytest.approx([1 / WIDE] * 4, rel=0.05)
    x = anatomy.W_E
    eigenvalues = torch.linalg.eigvalsh(x.T.cov())
    assert stations[0, X] == pytest.approx(float(eigenvalues.sum() ** 2 / eigenvalues.square().sum() / WIDE), rel=0.15)
    assert (stations[:, Y] > 1.2 * stations[:, X]).all()


def test_the_statistic_counts_what_the_part_counts():
    """Each step happens in two of four sublayers, and never both: qualified apart, refuted together."""
    apart, half = (
        finding_of(f"cycle, {case}")
        for case in (
            "each step in another layer",
            "a projection that evens out and gains that undo it in one layer of two",
        )
    )
    both, norm, sublayer = apart.parts[:3]
    assert (both.verdict, norm.verdict, sublayer.verdict) == ("refuted", "qualified", "qualified")
    assert apart.statistic.value == both.statistic.value == 0
    assert "Both steps happen, beyond untrained models, at" in both.reading
    assert half.statistic.value == half.parts[0].statistic.value == 0.5 and "2 of 4" in half.parts[0].reading


def test_a_gain_that_symmetrises_is_not_the_projection():
    """Both steps happen at every sublayer, but by the gain: the source says it of the projection."""
    gain, bare = (
        finding_of(f"cycle, {case}")
        for case in (
            "gains that even out and a projection that does not",
            "a projection that evens out, writes along one axis",
        )
    )
    verdicts = [{part.name: part.verdict for part in finding.parts} for finding in (gain, bare)]
    assert [each["the norm with its gain symmetrises"] for each in verdicts] == ["supported", "supported"]
    assert [each["both at one sublayer"] for each in verdicts] == ["supported", "supported"]
    assert [each["the projection alone symmetrises"] for each in verdicts] == ["refuted", "supported"]
    assert "The gain symmetrises, not the projection." in gain.reading
    assert "not the projection" not in bare.reading


def test_the_headline_says_where_both_steps_happen():
    """Each of the two steps at two of four sublayers, beyond untrained models at none together."""
    raised = cycle_parts.StationChange(
        np.array([[2.0, 1.5, 2.5]] * 2 + [[0.5, 0.4, 0.6]] * 2), np.full((4, 3), np.nan), 0, True
    )
    lowered = replace(raised, intervals=1 / raised.intervals[:, [0, 2, 1]], rises=False)
    apart = replace(lowered, intervals=lowered.intervals[::-1])
    assert headline(raised, raised, lowered).startswith("At 2 of 4 sublayers")
    assert headline(raised, raised, apart).startswith("At 0 of 4 sublayers")
    assert "the norm at 2, its projection alone at 2, the sublayer at 2" in headline(raised, raised, apart)


@pytest.mark.parametrize(
    ("middle", "verdict"),
    [((0.9, 0.85, 0.95), "refuted"), ((1.4, 1.3, 1.5), "supported"), ((1.1, 0.9, 1.3), "undecided")],
)
def test_the_median_sublayer_decides_about_a_step_that_single_ones_leave_open(middle, verdict):
    """Two of four sublayers are at the limit: they had left the part open whatever the median one did."""
    sure = middle if verdict != "undecided" else (1.1, 0.9, 1.3)
    intervals, usual = np.array([sure, sure, (1.1, 0.9, 1.3), (1.1, 0.9, 1.3)]), np.array([[1.0, 0.9, 1.1]])
    change = cycle_parts.StationChange(intervals, usual.repeat(4, 0), 5, True, np.array([middle]), usual)
    steps = sublayers(read(tiny("gpt2")))[:4]
    assert cycle_parts.change_part("a step", change, steps, "It happens at").verdict == verdict
    above_ends = replace(change, middle_untrained=np.array([[1.0, 0.9, 1.6]]), untrained=np.full((4, 3), 1.6))
    assert cycle_parts.change_part("a step", above_ends, steps, "It happens at").verdict == "refuted"


def test_few_tokens_do_not_look_like_few_axes():
    """Isotropic words: a covariance multiplied with itself would find a third of the axes in so few tokens."""
    from armillary.probes.sphere.spectra.clouds import membership, participation

    points = normal(48, D, stream=5).double().numpy()
    member = membership(torch.arange(48).numpy() % 12, 12)
    ratio = participation(points, member, torch.ones(1, 12).double().numpy())[0] / D
    covariance = torch.from_numpy(points).T.cov()
    assert covariance.trace() ** 2 / covariance.square().sum() / D < 0.65 < 0.8 < ratio < 1.25


def test_the_bare_norm_commutes_with_rotations_and_its_gain_does_not():
    finding = finding_of("cycle, gains that even out and a projection that does not")
    part = next(part for part in finding.parts if part.name == "the bare norm treats all directions alike")
    assert part.verdict == "supported" and part.statistic.value < 1e-14
    rows = {row["map"]: row for row in finding.more_tables["rotations"].records()}
    assert rows["norm with γ, β"]["error"] > 0.3


def test_a_rotation_that_moves_ones_breaks_layer_norm():
    """The mutation that fixing (1, …, 1) guards against."""
    anatomy, _ = cycling(lambda layer: torch.ones(WIDE), one_axis())
    norm, x = anatomy.norms["L0.ln1"], normal(20, WIDE, stream=6).double() + 3
    for fixes, limit in ((True, 1e-12), (False, None)):
        turn = rotation(WIDE, 1, fixes)
        error = float((norm.direction(x @ turn) - norm.direction(x) @ turn).norm() / norm.direction(x).norm())
        assert error < limit if limit else error > 0.05
    assert torch.allclose(rotation(WIDE, 1, True).sum(0), torch.ones(WIDE).double())


def test_sublayers_that_treat_all_directions_alike_are_found():
    """Uniform attention that writes the mean of y commutes with every rotation."""
    zero, identity = torch.zeros(D, D), torch.eye(D)
    anatomy, corpus = (
        assembled(normal(60, D, stream=1), attention=lambda layer: (zero, zero, identity, 0.1 * identity)),
        text(),
    )
    evidence = gather(anatomy, corpus, Isotropy.instruments)
    errors = {MODEL: sublayer_errors(Bench(anatomy, corpus))}
    errors |= {arm: sublayer_errors(Bench(evidence.model(arm), corpus)) for arm in evidence.twins}
    part = cycle_parts.maps_part(evidence, errors)
    assert part.verdict == "refuted" and part.statistic.value < 1e-5
    untrained = evidence.over_twins(lambda arm: cycle_parts.sublayer_error(evidence, errors[arm]))
    assert untrained[0] == pytest.approx(2**0.5, abs=0.1)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_neox", "opt-post", "bert"])
def test_the_rotated_copy_leaves_the_other_alone(family):
    """f(y) of the two-copy pass is what the model writes by itself, and f(yR) is that of a lone edited pass."""
    from armillary.edits.edit import changing
    from armillary.flow.capture import run, still, watching
    from armillary.probes.sphere.symmetry.rotations import _results

    anatomy = read(tiny(family))
    batch = next(iter(text(4, 12, words=97).batches()))
    parts, turn = sublayers(anatomy), rotation(anatomy.d, 0, anatomy.blocks[0].ln1.kind == "layernorm")
    results = _results(anatomy, batch, parts, turn)
    seen = {}
    for part in parts[2:]:
        watch = {part.write: lambda given, value: seen.update(write=value.clone())}
        with still(anatomy.model), watching(anatomy, watch):
            run(anatomy, batch.ids, batch.mask)
            plain = seen["write"].double()
            with changing(anatomy, part.norm, lambda y, x: (y.double() @ turn).to(y.dtype)):
                run(anatomy, batch.ids, batch.mask)
        first, second = results[part.write].chunk(2)
        assert torch.allclose(first, plain, atol=1e-5) and torch.allclose(second, seen["write"].double(), atol=1e-4)


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "opt-post", "bert"])
def test_the_reading_says_where_the_source_speaks_of_another_order(family):
    finding = tried(Isotropy(), read(tiny(family)), text(9, 24, words=97))
    assert (POST in finding.reading) == (family in ("opt-post", "bert"))


def test_nothing_written_has_no_shape():
    finding = tried(Isotropy(), assembled(normal(60, D, stream=1)), text())
    part = next(part for part in finding.parts if part.name == "sublayers structure")
    assert part.verdict == "undecided" and part.why is Why.UNDEFINED


def test_the_drawing_has_one_path_per_sublayer_and_escapes_names():
    from armillary.views.figures.figure import drawn

    quantity = finding_of("cycle, gains that even out and a projection that does not").quantities[0]
    figure = drawn((quantity,), "headline", "subtitle")
    *_, norm, attention, feed_forward, points = figure.data
    values = quantity.values
    assert norm.line.color != attention.line.color != feed_forward.line.color
    # Three stations and a gap for each of four sublayers; two and a gap for each of two writes.
    assert len(norm.x) == 4 * 4 and len(attention.x) == len(feed_forward.x) == 2 * 3
    assert list(points.y) == values.ravel().tolist() and len(set(points.marker.symbol)) == 3
    evil = replace(quantity, coords={**quantity.coords, "sublayer": ["<b>x</b>", *quantity.coords["sublayer"][1:]]})
    assert "<b>x" not in "".join(drawn((evil,), "headline", "subtitle").data[-1].hovertext).replace("<b>&lt;", "")


# Contrast.


def test_contrast_is_0_where_all_are_equally_far_and_1_where_one_coincides():
    from armillary.probes.sphere.locality.neighbours import contrast, neighbours, skewness

    simplex = torch.eye(30).double()
    alike = neighbours(simplex, simplex, torch.arange(30).numpy(), 1)
    assert contrast(alike.contrast[0]) == pytest.approx([0, 0, 0], abs=1e-6)
    twice = torch.cat((simplex, simplex))
    paired = neighbours(twice, twice, torch.arange(60).numpy(), 1)
    assert contrast(paired.contrast[0]) == pytest.approx([1, 1, 1], abs=1e-6)
    # One point in the middle of a sphere is among the nearest of all others, and of no angle.
    star = torch.cat(
        (torch.nn.functional.normalize(normal(60, 8, stream=1), dim=1), 1e-9 * normal(1, 8, stream=2))
    ).double()
    hubs = skewness(neighbours(star, star, torch.arange(61).numpy(), 1).hubs[0])
    assert hubs[2] > hubs[0] + 1


def test_tokens_of_the_same_document_are_not_compared():
    from armillary.probes.sphere.locality.neighbours import contrast, neighbours

    points = normal(30, 8, stream=3).double()
    twice, documents = torch.cat((points, points)), torch.arange(30).repeat(2).numpy()
    assert contrast(neighbours(twice, twice, documents, 1).contrast[0])[0] < 0.9


def test_length_alone_is_no_contrast_of_angles():
    """The control that divides by chance: without it an angle would seem better than a distance in any model."""
    finding = finding_of("contrast, words without pairs")
    row = finding.table.records()[0]
    assert row["contrast_angle"] > 1.03 * row["contrast_chord"]
    more = next(part for part in finding.parts if part.name == "angles keep more than distances")
    assert more.statistic.value == pytest.approx(1, abs=0.1)


# One space, or one for each layer.


def test_layers_of_one_gain_are_exchanged_for_nothing():
    finding = finding_of("shared, one gain for all layers")
    neighbours = [row for row in finding.table.records() if row["distance"] == 1]
    assert all(abs(row["cost"]) < 1e-6 and row["permuted"] > 0.05 for row in neighbours)
    likeness = finding.more_tables["likeness"].records()
    assert [row["gain"] for row in likeness] == pytest.approx([1, 1])


def test_gains_of_1_say_nothing():
    """Without the permuted control, a swap of nothing for nothing would support the claim in every untrained model."""
    finding = finding_of("shared, gains of 1")
    assert finding.why is Why.UNDEFINED and abs(finding.statistic.value) < 1e-6
    assert {row["state"] for row in finding.table.records()} <= {"idle", ""}


def test_an_exchange_is_what_other_weights_would_do():
    """The edit against a model whose gains and shifts were exchanged by hand; the model itself stays as it was."""
    from copy import deepcopy

    from armillary.edits import edited
    from armillary.flow.capture import run, still
    from armillary.probes.sphere.gains.gain_swaps import LayerPair, swapped

    for family in ("gpt2", "llama", "gemma2", "opt-post"):
        anatomy = read(tiny(family))
        by_hand = read(deepcopy(anatomy.model))
        sites = [(site, site.replace("L0.", "L2.")) for site in anatomy.norms if site.startswith("L0.")]
        for site, other in sites:
            a, b = (by_hand.model.get_submodule(by_hand.sites[name].path) for name in (site, other))
            for name, parameter in a.named_parameters():
                theirs = dict(b.named_parameters())[name]
                parameter.data, theirs.data = theirs.data.clone(), parameter.data.clone()
        ids = torch.randint(3, 90, (2, 12), generator=torch.Generator().manual_seed(0))
        with still(anatomy.model), still(by_hand.model):
            before = run(anatomy, ids)
            with edited(anatomy, *swapped(anatomy, LayerPair(0, 2))):
                exchanged = run(anatomy, ids)
            assert torch.allclose(exchanged, run(by_hand, ids), atol=1e-5), family
            assert not torch.allclose(exchanged, before, atol=1e-3) and torch.equal(run(anatomy, ids), before)


def test_what_cannot_be_exchanged_is_undecided_with_its_reason():
    encoder = tried(Shared(), read(tiny("bert")), text(9, 24, words=97))
    assert encoder.why is Why.NOT_APPLICABLE and "predicts no next token" in encoder.reading
    single = tried(Shared(), *gained(lambda layer: uneven(1), layers=1))
    assert single.why is Why.NOT_APPLICABLE and "no neighbour" in single.reading


# Positions.


def test_energy_distance_is_what_theory_says():
    """Two clouds whose means are δ apart: about δ²/4 of the squared radius; 0 for halves of one cloud."""
    from armillary.probes.stability.places.position_bins import distances

    n, shift = 600, 0.2
    points = normal(2 * n, 200, stream=1).double()
    points[n:, 0] += shift * 200**0.5
    document, bins = torch.arange(2 * n).numpy() % 60, torch.arange(2 * n).numpy() // n
    between, halves, pairs = distances(points.numpy(), document, bins, torch.ones(1, 60).double().numpy())
    assert between[0] == pytest.approx(shift**2 / 4, rel=0.1) and pairs[0, 1] == between[0]
    assert abs(halves[0]) < 0.001


def test_tokens_of_one_document_are_not_taken_for_neighbours():
    """Documents that lie far apart: with pairs of their own tokens, ranges would seem closer than they are."""
    from armillary.probes.stability.places.position_bins import distances

    document = torch.arange(400) % 20
    points = (0.01 * normal(400, 8, stream=2) + normal(20, 8, stream=3)[document]).double()
    bins = (torch.arange(400) // 200).numpy()
    between, _, _ = distances(points.numpy(), document.numpy(), bins, torch.ones(1, 20).double().numpy())
    assert abs(between[0]) < 1e-3


def test_the_sample_has_as_many_tokens_of_every_range():
    from armillary.probes.instruments.position_samples import PositionSamples, range_of

    instrument = PositionSamples(each=128)
    evidence = gather(*cycling(lambda layer: torch.ones(WIDE), one_axis()), (instrument,))
    positions = evidence[instrument][MODEL].rows["L0.ln1"].sample().payload[:, 1]
    assert positions.min() == 1
    assert range_of(positions).bincount().tolist() == [128, 128, 128]


def test_positions_beyond_the_trained_length():
    """A rotary model goes on; one that adds something to every token past its length is told apart."""
    rotary = tiny("llama")
    corpus = text(24, 60, words=97)
    finding = tried(PositionRules(), read(rotary), corpus)
    part = finding.parts[2]
    assert part.verdict == "supported" and not part.asserted and "trained length of 64" in part.reading

    def beyond(module, args, output):
        return torch.cat((output[:, :64], output[:, 64:] + 2), 1)

    rotary.model.embed_tokens.register_forward_hook(beyond)
    changed = tried(PositionRules(), read(rotary), corpus)
    assert changed.parts[2].verdict == "refuted" and changed.verdict == finding.verdict
    table = tried(PositionRules(), read(tiny("gpt2")), corpus).parts[2]
    assert table.why is Why.NOT_APPLICABLE and "table of positions ends at 64" in table.reading


def test_what_keeps_positions_beyond_the_trained_length_out_of_reach_is_said():
    from armillary.probes.stability.places.untrained_positions import obstacle

    anatomy = read(tiny("llama"))
    short = tried(PositionRules(), anatomy, text(10, 32, words=97)).parts[2]
    assert short.why is Why.TOO_LITTLE_TEXT and "too short for windows of 80 tokens" in short.reading
    long = obstacle(replace(anatomy, context=4096), 10**6)
    assert long is not None and long.why is Why.NOT_AFFORDED and "windows of 4160 tokens" in long.reason


def test_without_the_earliest_range_nothing_is_compared():
    """Eight documents have 56 tokens at positions 1–7, where 64 are needed; later ranges have enough."""
    few, enough = (tried(PositionRules(), read(tiny("llama")), text(count, 40, words=97)) for count in (8, 10))
    assert few.why is Why.TOO_LITTLE_TEXT and few.reading.startswith("Positions 1–7") and not few.parts
    assert enough.why is not Why.TOO_LITTLE_TEXT and "Between positions 1–7 and 32–127" in enough.reading


def test_windows_too_short_for_two_ranges_decide_nothing():
    finding = tried(PositionRules(), read(tiny("gpt2")), text(30, 8, words=97))
    assert finding.why is Why.TOO_LITTLE_TEXT and "longer documents" in finding.reading


# Axes.


def test_turning_all_axes_takes_the_meaning_from_them():
    """The same tokens and distances: only which directions are axes differs. (Half of the classes are words to come,
    which nothing tells here: the mean of 1 and ½.)"""
    plain, turned = (finding_of(f"axes, {case}") for case in ("one for each frequent word", "the same but turned"))
    assert plain.statistic.low > 0.05 > turned.statistic.value
    own, other = (finding.table.records()[0] for finding in (plain, turned))
    assert own["auc"] > 0.7 and other["auc"] == pytest.approx(own["auc_rotated"], abs=0.1)


def test_an_axis_chosen_and_measured_on_the_same_documents_would_seem_to_tell():
    """Noise alone: the best of many axes tells any class of the tokens it was chosen on."""
    from armillary.probes.grid.axes.axis_meaning import best_axis_aucs

    document = torch.arange(400).numpy() % 40
    points = normal(400, 200, stream=1)
    members = (torch.rand(5, 400, generator=torch.Generator().manual_seed(2)) < 0.1).numpy()
    honest = best_axis_aucs(points, members, document, torch.ones(1, 40).double().numpy())[0]
    twice = torch.cat((points, points))
    # The same tokens in both halves: documents of even and of odd number.
    same = torch.cat((torch.arange(400) % 20 * 2, torch.arange(400) % 20 * 2 + 1)).numpy()
    fooled = best_axis_aucs(
        twice, torch.from_numpy(members).repeat(1, 2).numpy(), same, torch.ones(1, 40).double().numpy()
    )
    assert honest == pytest.approx(0.5, abs=0.06) and fooled[0] > 0.6


def test_classes_are_frequent_tokens_and_kinds_of_them():
    """Ten tokens, twenty times each; a class needs members and others in both halves of the documents."""
    from armillary.probes.grid.axes.axis_meaning import FREQUENT, Cloud, classes

    token, document = torch.arange(200).numpy() % 10, torch.arange(200).numpy() // 10
    following = torch.full((200,), -1).numpy()
    cloud = Cloud(normal(200, 4, stream=1), document, token, following)
    frequent = classes(cloud)
    assert len(frequent) == FREQUENT and all((member == (token == i)).all() for i, member in enumerate(frequent))
    # Tokens 0 to 3 are of one kind and 4 of another, the rest of none; in the second way all are of one kind.
    kinds = (torch.tensor([7, 7, 7, 7, 2, -1, -1, -1, -1, -1]).numpy(), torch.zeros(10).long().numpy())
    *_, small, large = classes(replace(cloud, kinds=kinds))
    assert (large == (token < 4)).all() and (small == (token == 4)).all()
    assert len(classes(replace(cloud, kinds=kinds))) == FREQUENT + 2


def test_likeness_of_axes_is_a_plain_count_of_correlations():
    from armillary.probes.grid.axes.axis_blocks import grouped_ratio, likeness, median_ratio

    shared = normal(300, 4, stream=1).repeat_interleave(3, 1)
    points = (shared + normal(300, 12, stream=2)).double()
    document = torch.arange(300).numpy() % 30
    correlations = likeness(points.numpy(), document, 4, 0)
    table = torch.corrcoef(points.T).abs()
    block = torch.arange(12) // 3
    same = block[:, None] == block[None]
    within = table[same & ~torch.eye(12, dtype=torch.bool)].mean()
    assert correlations.value == pytest.approx(float(within / table[~same].mean()))
    left = points[document % 16 != 3]
    assert correlations.without[3] == pytest.approx(
        likeness(left.numpy(), document[document % 16 != 3], 4, 0).value, rel=1e-6
    )
    value, low, high = median_ratio([correlations])
    assert low < value < high and grouped_ratio([correlations])[2] < low
    assert likeness(points.numpy(), document, 1, 0) is None


def test_kurtosis_is_that_of_the_axes():
    from scipy.stats import kurtosis

    from armillary.probes.grid.axes.axis_meaning import kurtoses

    points = normal(500, 6, stream=3) ** 3
    ours = kurtoses(points, torch.arange(500).numpy() % 20, torch.ones(1, 20).double().numpy())[0]
    assert ours == pytest.approx(kurtosis(points.numpy(), axis=0, fisher=False).mean(), rel=1e-4)


def test_one_head_has_no_axes_across_heads():
    anatomy = assembled(normal(60, D, stream=1), heads=1)
    finding = tried(Privileged(), anatomy, text())
    assert next(part for part in finding.parts if part.name == "related axes share a head").why is Why.NOT_APPLICABLE


@pytest.mark.parametrize(
    "probe", [probe for probe in PROBES if probe.claim.kind == "learned"], ids=lambda p: p.claim.id
)
@pytest.mark.parametrize("seed", [201, 202])
def test_nothing_learned_is_found_in_an_untrained_model(probe, seed):
    untrained = random_twin(assembled(normal(60, D, stream=1), layers=3), seed)
    assert tried(probe, untrained, text(24, 40)).verdict in ("refuted", "undecided")

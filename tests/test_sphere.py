"""The sphere: every claim is supported where its truth is planted and refuted where its opposite is."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from planted import bench_of, conclude, concluded, finding_of, first_reading, name_of, tried
from planted import evidence as gathered_for
from tiny import tiny

from armillary.anatomy.read import read
from armillary.flow.controls import random_twin
from armillary.geometry.clouds.spectrum import participation_ratio
from armillary.geometry.resample import weighted_auc
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence
from armillary.probes.machinery.shared_pass import gather
from armillary.probes.machinery.verdicts import by_share
from armillary.probes.sphere.across_sites import decided
from armillary.probes.sphere.concentration import Concentration, shell_table
from armillary.probes.sphere.concentration import _verdict as shell_verdict
from armillary.probes.sphere.dimension import EffectiveDimension
from armillary.probes.sphere.direction import Direction
from armillary.probes.sphere.directions.direction_parts import Separations, against_distance, against_length
from armillary.probes.sphere.directions.next_token_pairs import Pairs
from armillary.probes.sphere.ellipsoid import Ellipsoid
from armillary.probes.sphere.local import Local
from armillary.probes.sphere.plane import Plane
from armillary.probes.sphere.radius import Radius
from armillary.probes.sphere.spectra.site_spectra import spectra
from armillary.probes.sphere.two_zeros import TwoZeros
from armillary.probes.sphere.two_zeros import _verdict as zeros_verdict
from armillary.results import Finding, Why
from armillary.specimens.models.bag import CONTEXT, D, bag, gaussian
from armillary.specimens.models.draws import generator
from armillary.specimens.models.streams.sphere_models import (
    lengths,
    noisy_gains,
    own_words,
    spheres,
)
from armillary.specimens.models.texts import chained, corpus
from armillary.specimens.planted.case import certain
from armillary.specimens.planted.sphere_cases import CASES

evidence = partial(gathered_for, chapters="A")

TOO_LITTLE = (
    certain("two zeros, few tokens", "spectrum.two-zeros", "undecided", lambda seed: (bag(gaussian()), corpus(10, 6))),
    certain("local, few tokens", "spectrum.local", "undecided", lambda seed: (bag(spheres(4)), corpus(4, 5))),
)


def told_by_direction() -> Finding:
    return finding_of("direction, tokens separated by direction")


@pytest.mark.parametrize("case", [*first_reading(CASES), *TOO_LITTLE], ids=name_of)
def test_planted_truth_comes_back(case):
    finding = conclude(case) if case in TOO_LITTLE else finding_of(name_of(case))
    assert finding.verdict == case.planted.verdict, f"{finding.statistic}: {finding.reading}"
    if case in TOO_LITTLE:
        assert finding.why is Why.TOO_LITTLE_TEXT
    else:
        assert (finding.why is None) == (finding.verdict != "undecided")
    assert finding.headline
    assert finding.reading


@pytest.fixture(scope="module")
def ordinary() -> Evidence:
    return evidence(read(tiny("gpt2")), corpus(vocabulary=97))


# Mutations: a measurement that is wrong in one way must be detected.


def test_a_norm_that_is_not_what_its_weights_say_refutes_the_radius():
    anatomy = bag(gaussian())
    wrong = replace(anatomy, blocks=tuple(replace(b, ln1=replace(b.ln1, eps=0.5)) for b in anatomy.blocks))
    finding = tried(Radius(), wrong, corpus())
    assert finding.verdict == "refuted"
    assert "L0.ln1" in finding.reading
    gaps = finding.to_frame().set_index("site").module_gap
    assert gaps["L0.ln2"] < 1e-5 < 0.01 < gaps["L0.ln1"]


def test_a_gain_taken_for_the_direction_would_not_be_on_the_sphere():
    anatomy = read(tiny("gpt2"))
    norm = anatomy.norms["L1.ln1"]
    x = evidence(anatomy, corpus(vocabulary=97))[SAMPLES][MODEL].rows["L1.ln1"].sample().rows
    z, y = norm.direction(x), norm(x)
    radius = [float((v.norm(dim=-1) / D**0.5 - 1).abs().max()) for v in (z, y)]
    assert radius[0] < 1e-3 < 0.01 < radius[1]


def test_forgetting_the_mean_loses_the_plane():
    anatomy = bag(gaussian())
    wrong = replace(anatomy, blocks=tuple(replace(b, ln1=replace(b.ln1, kind="rmsnorm")) for b in anatomy.blocks))
    finding = tried(Plane(), wrong, corpus())
    assert finding.verdict == "qualified"
    frame = finding.to_frame().set_index("site")
    assert not frame.loc["L0.ln1", "in_plane"]
    assert frame.loc["L0.ln2", "in_plane"]


def test_counting_first_positions_would_move_the_concentration():
    positions = torch.zeros(CONTEXT, D)
    positions[0] = 40.0 * torch.nn.functional.normalize(torch.randn(D, generator=generator(2)), dim=0)
    finding = tried(Concentration(), bag(gaussian(), positions), corpus())
    row = finding.to_frame().iloc[0]
    assert row.cv_length < 0.15 < 0.5 < row.cv_length_all
    assert row.first_length > 35


def test_permuted_labels_lose_the_direction():
    finding = told_by_direction()
    permuted = finding.controls[0]
    assert permuted.name == "permuted labels"
    assert permuted.low < 0 < permuted.high
    assert finding.statistic.low > 0.1 > permuted.high


def test_scaling_after_the_last_block_is_undone_by_the_final_norm(ordinary):
    table = concluded(Direction(), ordinary).more_tables["scaling"].to_frame()
    last = table[table.layer == table.layer.max()]
    assert np.abs(last.delta_nll).max() < 1e-4
    assert np.abs(last.turned).max() > 1e-2
    assert np.abs(table[table.layer == 0].delta_nll).max() > 1e-3


def test_too_few_tokens_would_make_zeros_of_their_own():
    starved = tried(TwoZeros(), bag(gaussian()), corpus(4, 7))
    assert starved.verdict == "undecided"
    assert starved.why is Why.TOO_LITTLE_TEXT
    assert starved.to_frame().zeros_z.min() > 2


def test_null_vectors_are_one_and_one_over_gain():
    frame = tried(TwoZeros(), read(tiny("gpt2")), corpus(vocabulary=97)).to_frame()
    assert (frame.zeros_z == 1).all()
    assert (frame.zeros_y == 1).all()
    assert frame.ones_variance.abs().max() < 1e-6
    assert frame.inverse_gain_variance.abs().max() < 1e-6
    assert frame.radial_variance.min() > 1e-3  # constant length leaves no zero


def test_without_the_norm_the_local_law_is_lost():
    finding = tried(Local(), bag(lengths(0.3)), corpus())
    before = next(control for control in finding.controls if control.name == "before the norm")
    assert before.value < 0.5 < 1.5 < finding.statistic.value


def test_dimension_of_a_covariance_with_itself_would_be_biased():
    """The two halves remove the bias of d/n that few tokens bring to the participation ratio."""
    gathered = evidence(bag(gaussian()), corpus(12, 16))
    naive = participation_ratio(spectra(gathered, MODEL)["L0.ln1"].values)
    unbiased = EffectiveDimension().conclude(gathered).to_frame()[["participation", "participation_all"]].iloc[0]
    assert naive < 28 < unbiased.min() <= unbiased.max() < 35


def test_every_estimator_finds_a_low_dimension():
    frame = tried(EffectiveDimension(), bag(gaussian(4)), corpus()).to_frame()
    for column in ("participation", "entropy_rank", "two_nn", "mle"):
        assert frame[column].between(2.4, 4.6).all(), frame[column]


def test_controls_are_measured_not_assumed(ordinary):
    finding = Ellipsoid().conclude(ordinary)
    assert finding.controls[0].name == RANDOM
    assert finding.controls[0].value == 1.0
    assert finding.statistic.value > 2


def test_monte_carlo_shows_both_readings_of_four_and_a_half_percent():
    rows = {row[0]: row for row in shell_table().rows}
    assert rows[1000][1] == pytest.approx(0.0224, rel=0.06)
    assert rows[1000][3] == pytest.approx(0.0447, rel=0.06)
    assert rows[1000][4] == pytest.approx(0.0447, rel=1e-2)
    assert sorted(rows) == [3, 10, 30, 100, 300, 1000, 3000, 10_000]


def test_long_documents_leave_the_scaling_with_enough_of_them():
    gathered = evidence(bag(gaussian()), corpus(12, 60))
    trials = Direction().experiment(bench_of(gathered))
    assert trials.trials.documents == 12
    table = Direction().conclude(gathered, trials).more_tables["scaling"].to_frame()
    assert table.low.notna().all()


def test_less_text_cannot_support_the_shell():
    """The high end of the interval decides for the law, so that uncertainty never counts as agreement."""
    many, few = (tried(Concentration(), bag(gaussian()), corpus(n, 60)).to_frame() for n in (60, 9))
    assert (few.cv_length_high - few.cv_length_low).mean() > (many.cv_length_high - many.cv_length_low).mean()
    wide = tried(Concentration(), bag(lengths(0.24)), corpus(9, 12))
    row = wide.to_frame().iloc[0]
    assert row.cv_length_low < 2 * row.law_length < row.cv_length_high
    assert wide.verdict != "supported"


def test_a_zero_is_counted_although_a_few_axes_hold_most_of_the_variance():
    """float32 noise on a covariance would hide LayerNorm's null behind axes a hundred times larger."""
    embedding = gaussian()
    embedding[:, :3] *= 60
    finding = tried(TwoZeros(), bag(embedding), corpus(60, 60))
    assert (finding.to_frame().zeros_z == 1).all()


# Rules: what the limits, the twins and the intervals decide.


def test_weighted_pairs_are_pairs_of_drawn_documents():
    draw = np.random.default_rng(0)
    documents = np.sort(draw.integers(0, 6, (400, 2)), axis=1)
    scores = draw.integers(0, 40, (3, 400)).astype(float)
    pairs = Pairs(scores, draw.random(400) < 0.4, documents)
    weights = np.vstack([np.ones(6), draw.multinomial(6, np.full(6, 1 / 6), size=5)])
    heavy = weights[:, documents].prod(-1)
    expected = np.stack([weighted_auc(row, pairs.same, heavy) for row in scores], 1)
    assert pairs.drawn(weights) == pytest.approx(expected, nan_ok=True)
    assert pairs.aucs() == pytest.approx(expected[0])


def around(value: float, width: float = 0.01) -> tuple[float, float, float]:
    return value, value - width, value + width


@pytest.mark.parametrize(
    ("beyond_length", "untrained", "cosine", "verdict"),
    [
        (around(0.2), around(0.0), around(0.7), "supported"),
        (around(0.2), around(0.3), around(0.7), "refuted"),
        (around(0.2), around(0.0), around(0.55), "qualified"),
        (around(0.2, 0.15), around(0.0), around(0.7), "undecided"),
        (around(0.05), around(0.0), around(0.7), "refuted"),
        (around(0.2), (np.nan,) * 3, around(0.7), "undecided"),
    ],
)
def test_the_angle_must_beat_length_and_untrained_models(beyond_length, untrained, cosine, verdict):
    model = Separations(cosine, around(0.7), around(0.5), beyond_length, around(0.0))
    part = against_length(model, untrained, 5, "ln_final")
    assert part.verdict == verdict
    assert (part.why is None) == (verdict != "undecided")


@pytest.mark.parametrize(
    ("cosine", "euclidean", "verdict"),
    [(0.7, 0.72, "supported"), (0.7, 0.85, "refuted"), (0.7, 0.8, "undecided"), (0.5, 0.5, "undecided")],
)
def test_distance_must_not_separate_better(cosine, euclidean, verdict):
    model = Separations(around(cosine), around(euclidean), around(0.5), around(0.1), around(cosine - euclidean))
    part = against_distance(model, "ln_final")
    assert part.verdict == verdict
    assert part.why is ({0.7: Why.SPANS_LIMIT, 0.5: Why.UNDEFINED}[cosine] if verdict == "undecided" else None)


def test_a_turn_that_costs_nothing_gives_no_share():
    """Tokens that predict themselves lose nothing when they are turned: no ratio is printed, and nothing supported."""
    finding = tried(Direction(), own_words(), chained(follows=0.95))
    part = finding.parts[2]
    assert part.why is Why.UNDEFINED
    assert math.isnan(part.statistic.value)
    assert finding.verdict == "undecided"


def test_scaling_costs_nothing_where_blocks_write_nothing():
    finding = told_by_direction()
    assert [part.verdict for part in finding.parts[:3]] == ["supported"] * 3
    table = finding.more_tables["scaling"].to_frame()
    assert table.delta_nll.abs().max() < 1e-4 < 0.05 < table.turned.min()


def test_an_untrained_model_is_not_supported_in_what_is_learned(ordinary):
    untrained, text = random_twin(ordinary.anatomy, 123), corpus(vocabulary=97)
    assert tried(Direction(), untrained, text).verdict in ("refuted", "undecided")
    assert tried(Ellipsoid(), untrained, text).verdict == "refuted"


def test_random_initialisation_is_five_models(ordinary):
    for probe in (Radius(), Plane(), Concentration(), TwoZeros(), Local(), EffectiveDimension()):
        control = next(c for c in probe.conclude(ordinary).controls if c.name == RANDOM)
        assert not math.isnan(control.value)
        assert control.low <= control.value <= control.high
    assert len(ordinary.twins) == 5


def test_extremes_grow_with_noise_and_percentiles_do_not():
    frame = Ellipsoid().conclude(gather(noisy_gains(), None, ())).to_frame()
    assert frame.longest_shortest.min() > 2
    assert frame.axis_ratio.max() < 1.5


def test_own_neighbourhoods_decide_nothing():
    """Tokens of 31 dimensions have wide neighbourhoods, whose slope turns with the sample."""
    finding = tried(Local(), bag(gaussian()), corpus())
    own = finding.parts[2]
    assert not own.asserted
    assert own.statistic.high - own.statistic.low > 1
    assert finding.verdict == "supported"


def test_dimension_has_no_interval_at_three_documents():
    finding = tried(EffectiveDimension(), bag(gaussian()), corpus(3, 60))
    assert all(part.statistic is not None for part in finding.parts)
    ends = [(part.statistic.low, part.statistic.high) for part in finding.parts if part.name != "rank"]
    assert np.isnan(ends).all()
    assert finding.to_frame()[["participation_low", "two_nn_low", "mle_low"]].isna().all(axis=None)


def test_halves_that_disagree_decide_nothing():
    sites, two = np.full(10, 2.0), np.full((10, 2), 2.0)
    assert zeros_verdict(sites, two) == "supported"
    two[:4, 0] = 1
    assert zeros_verdict(sites, two) == "undecided"
    assert zeros_verdict(np.ones(10), np.ones((10, 2))) == "refuted"


def test_norms_that_span_the_limit_decide_only_what_they_cannot_change():
    sure, possible = np.array([True] * 9 + [False]), np.array([True] * 10)
    assert decided(by_share, (sure,), (possible,)) == "supported"
    assert decided(by_share, (~possible,), (possible,)) == "undecided"
    assert decided(by_share, (~possible,), (~sure,)) == "refuted"


def test_norms_around_the_limit_do_not_turn_the_shell():
    """A third of the norms lie just around the limit of a thin shell; the median norm lies clearly above it."""
    spreads = np.array([around(0.15)] * 8 + [around(0.10)] * 4)
    assert shell_verdict(spreads, around(0.15), 0.044) == "refuted"
    assert shell_verdict(spreads, around(0.10), 0.044) == "undecided"
    assert shell_verdict(spreads, around(0.09, 0.005), 0.044) == "qualified"
    assert shell_verdict(np.array([around(0.05)] * 10), around(0.05), 0.044) == "supported"
    assert shell_verdict(np.array([around(0.088)] * 10), around(0.088), 0.044) == "undecided"

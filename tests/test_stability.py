"""Stability: models that leak, drift, stretch or leave the manifold by known amounts, and models that do not."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers as tr
from planted import bench_of, finding_of, first_reading, name_of, tried
from tiny import MAKERS, tiny

from armillary.anatomy.read import read
from armillary.edits import Turn
from armillary.flow.controls import Twins, random_twin
from armillary.flow.tokens import Corpus, Window
from armillary.geometry.resample import auc
from armillary.geometry.sphere import angle
from armillary.probes.machinery import NAN3, over_twins
from armillary.probes.machinery import bench as benches
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import MODEL, Evidence
from armillary.probes.machinery.probe import judge
from armillary.probes.stability.drift import Drift
from armillary.probes.stability.errors.error_parts import decide, loss_limit, predicts_part
from armillary.probes.stability.errors.error_prediction import (
    HEAD_SCORES,
    ErrorPrediction,
    ScoredTokens,
    crossed,
)
from armillary.probes.stability.errors.head_anomalies import anomalies
from armillary.probes.stability.errors.manifold_scores import DOCUMENTS, TOKENS, mahalanobis, neighbour, score_tokens
from armillary.probes.stability.errors.sure_weights import logistic
from armillary.probes.stability.manifold_errors import SCORES, ManifoldErrors
from armillary.probes.stability.nudges import perturbation
from armillary.probes.stability.nudges.growth_parts import in_all
from armillary.probes.stability.prefix import Prefix
from armillary.probes.stability.reprojection import Reprojection
from armillary.probes.stability.sliding.appended_text import relative_change
from armillary.probes.stability.sliding.windows import (
    angles_between,
    even_windows,
    filled,
    frozen,
    stations,
    stream,
    stream_and_powers,
)
from armillary.results import VERDICTS, Why
from armillary.specimens.models.bag import CONTEXT, D, bag, gaussian
from armillary.specimens.models.streams.stability_models import (
    averaging,
    leaky,
    long_first,
    pushed_off,
    rare_words,
    short_sighted,
    squaring,
    still_bag,
    stretching,
    table_bag,
)
from armillary.specimens.models.texts import corpus
from armillary.specimens.planted.stability_cases import CASES

PROBES = (Prefix, Drift, Reprojection, ManifoldErrors)


def words(documents: int = 12, length: int = 60) -> Corpus:
    return corpus(documents, length, vocabulary=97)


def long_gpt2():
    """Three blocks and enough positions for the longest windows."""
    config = tr.GPT2Config(
        n_embd=D, n_layer=3, n_head=2, vocab_size=97, n_positions=128, bos_token_id=0, eos_token_id=0
    )
    return read(tr.GPT2LMHeadModel(config).eval())


@pytest.mark.parametrize("case", first_reading(CASES), ids=name_of)
def test_planted_truth_comes_back(case):
    finding = finding_of(name_of(case))
    assert finding.verdict == case.planted.verdict, f"{finding.statistic}: {finding.reading}"


@pytest.mark.usefixtures("two_twins")
@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("name", list(MAKERS))
def test_every_family_is_survived_and_no_cell_is_nan(name, probe):
    finding = tried(probe(), read(tiny(name)), words(9, 24))
    assert finding.verdict in VERDICTS
    for table in (finding.table, *finding.more_tables.values()):
        assert all(len(column.meaning) > 8 for column in table.columns)
        assert not any(isinstance(c, float) and not math.isfinite(c) for row in table.rows for c in row), table
    assert "nan" not in (finding.reading + finding.headline).lower().split()
    if finding.n:
        assert finding.controls and finding.quantities and finding.table.rows
    assert (finding.why is not None) == (finding.verdict == "undecided")
    if probe is ManifoldErrors and name.startswith("bert"):
        assert finding.why is Why.NOT_APPLICABLE


@pytest.mark.parametrize("probe", PROBES)
def test_half_precision_is_survived(probe):
    # Not bfloat16: some virtual machines die of it.
    finding = tried(probe(), read(tiny("llama").to(torch.float16)), words(9, 24))
    assert finding.verdict in VERDICTS
    assert probe is not Prefix or finding.verdict in ("supported", "undecided")


@pytest.mark.parametrize("probe", PROBES)
def test_one_block_one_head_and_documents_of_all_lengths(probe):
    config = tr.GPT2Config(
        n_embd=D, n_layer=1, n_head=1, vocab_size=97, n_positions=CONTEXT, bos_token_id=0, eos_token_id=0
    )
    windows = tuple(Window(i, w.ids[: 10 + 3 * i]) for i, w in enumerate(words().windows))
    text = Corpus(windows, "planted", len(windows), sum(len(w.ids) for w in windows), ())
    finding = tried(probe(), read(tr.GPT2LMHeadModel(config).eval()), text)
    assert finding.verdict in VERDICTS
    if probe in (Prefix, Drift):
        assert "from 9 documents" in finding.notes[0]


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize(("documents", "length"), [(3, 60), (30, 3), (9, 1)])
def test_too_little_text_decides_nothing(probe, documents, length):
    text = Evidence(bag(gaussian()), corpus(documents, length))
    finding = judge(probe(), text, bench_of(text))
    assert finding.verdict == "undecided"
    assert finding.why in (Why.TOO_LITTLE_TEXT, Why.NO_INTERVAL)
    assert "more text" in finding.reading.lower()


@pytest.mark.parametrize("probe", [Drift, Reprojection])
def test_many_documents_of_which_few_are_long_leave_no_interval(probe):
    """Nine documents, seven of which fit: enough for the survey, and too few for these windows."""
    windows = tuple(Window(i, w.ids[: 4 if i > 6 else 60]) for i, w in enumerate(words(9).windows))
    finding = tried(probe(), read(tiny("gpt2")), Corpus(windows, "planted", 9, 428, ()))
    assert (finding.verdict, finding.why) == ("undecided", Why.NO_INTERVAL)


# Prefix.


def test_a_leak_is_found_where_it_is():
    frame = tried(Prefix(), leaky(1e-3), words()).to_frame().set_index("state")
    assert list(frame.unchanged) == [True, True, False, False]
    assert frame.half["L0.resid_post"] < 16 < 64 < frame.half["L1.resid_post"]


def test_places_compared_one_off_would_give_themselves_away():
    bench = Bench(read(tiny("gpt2")), words())
    batch = bench.batches(even_windows(bench.corpus, 64, 12))[0]
    whole = stream(bench, batch)
    right, wrong = (relative_change(whole[:, :, :20], whole[:, :, k:]) for k in (0, 1))
    assert right.max() == 0
    assert wrong.max() > 0.1


def test_a_cache_read_at_wrong_places_is_found(monkeypatch):
    """Positions that restart for the appended tokens: what a careless cache would do."""
    anatomy = read(tiny("gpt2"))
    forward = anatomy.backbone.forward

    def careless(*args, past_key_values=None, **kwargs):
        places = torch.arange(kwargs["input_ids"].shape[1])[None]
        return forward(*args, past_key_values=past_key_values, position_ids=places, **kwargs)

    monkeypatch.setattr(anatomy.backbone, "forward", careless)
    finding = tried(Prefix(), anatomy, words())
    frame = finding.to_frame()
    assert finding.verdict == "qualified"
    assert frame.half.max() < 16 < 1e4 < frame.through_cache.max()


def test_a_change_that_should_be_seen_is_seen():
    finding = tried(Prefix(), read(tiny("llama")), words())
    floor, changed, twin = finding.controls
    assert floor.value <= 64 and twin.value <= 64
    assert changed.low > 1e5 > finding.statistic.high


# Drift.


def test_the_mean_of_all_that_was_read_drifts_by_the_angle_that_algebra_says():
    anatomy, text = averaging(), words(16)
    frame = tried(Drift(), anatomy, text).to_frame().set_index("state")
    e, norm = anatomy.W_E.double(), anatomy.blocks[0].ln1
    expected = {1: [], 32: []}
    for window in filled(text, even_windows(text, CONTEXT, 10), CONTEXT):
        x = e[list(window.ids)]
        z = norm.direction(x)
        for by in expected:
            for p in range(40, 64):
                states = torch.stack([x[p] + z[start : p + 1].mean(0) for start in (0, by)])
                states = states - states.mean(1, keepdim=True)
                expected[by].append(math.degrees(float(angle(states[0], states[1]))))
    assert frame.angle_one["L0.resid_post"] == pytest.approx(np.mean(expected[1]), rel=1e-4)
    assert frame.angle_half["L0.resid_post"] == pytest.approx(np.mean(expected[32]), rel=1e-4)
    assert frame.angle_half["L0.resid_pre"] == 0


def test_growth_is_near_the_root_of_the_slide_for_a_mean_and_none_for_a_table():
    """n of m + n tokens forgotten move a mean by √(n/(m(m + n))): √n while n is small."""
    mean = tried(Drift(), averaging(), words(16)).to_frame().set_index("state")
    assert 0.5 < mean.exponent["L0.resid_post"] < 0.7
    table = tried(Drift(), table_bag(), corpus(16)).to_frame()
    assert table.exponent.abs().max() < 0.1


def test_slid_by_nothing_moves_nothing_and_rotation_does_not_care_for_places():
    for name in ("llama", "gpt_neox"):
        finding = tried(Drift(), read(tiny(name)), words())
        none, own, *_ = finding.controls
        assert (none.value, none.low, none.high) == (0, 0, 0)
        assert own.value == pytest.approx(finding.statistic.value, rel=1e-4)
    none, own, *_ = tried(Drift(), table_bag(), corpus(12)).controls
    assert none.value == own.value == 0


def test_the_parts_of_drift_differ():
    """Each is one of the two: drift without norms that hold it, a position table alone, and no drift to hold."""
    verdicts = {
        name: [part.verdict for part in tried(Drift(), anatomy, text).parts]
        for name, anatomy, text in (
            ("mean", averaging(), words()),
            ("table", table_bag(), corpus(12)),
            ("still", still_bag(), corpus(12)),
        )
    }
    assert verdicts == {
        "mean": ["supported", "refuted"],
        "table": ["qualified", "refuted"],
        "still": ["refuted", "undecided"],
    }


def test_a_mean_drifts_less_in_longer_windows_and_the_longest_decides():
    finding = tried(Drift(), averaging(), corpus(12, 64, vocabulary=97))
    curve = finding.more_tables["windows"].to_frame()
    assert list(curve.window) == [32, 64]
    assert curve.one.iloc[0] > 1.2 * curve.one.iloc[1]
    assert finding.statistic.value == pytest.approx(curve.half.iloc[-1])


def test_short_documents_stand_at_the_end_of_their_windows():
    windows = tuple(Window(i, tuple(range(10 * i, 10 * i + 10))) for i in range(8))
    text = Corpus(windows, "planted", 8, 80, ())
    full = filled(text, windows[:2], 25)
    assert full[0].ids == (*range(65, 80), *range(10))
    assert full[1].ids == (*range(75, 80), *range(20))
    assert len(filled(text, windows[:1], 500)[0].ids) == 80  # no token twice


def test_only_tokens_far_from_the_beginning_are_compared():
    """Near the beginning even the short-sighted are moved: counting them would turn its verdict."""
    finding = tried(Drift(), short_sighted(), words())
    slides = finding.more_tables["slides"].to_frame()
    assert slides.from_1.min() > 1e-3 > 1e-5 > slides.from_16.max()


def test_tokens_taken_for_their_neighbours_would_drift():
    anatomy = still_bag()
    bench = Bench(anatomy, corpus(12))
    batch = bench.batches(even_windows(bench.corpus, 64, 12))[0]
    x = stream(bench, batch)
    assert angles_between(anatomy, x[:, :, 1:], x[:, :, :-1]).mean() > 1


# Reprojection.


@pytest.mark.parametrize("factor", [0.5, 1.5, 2.0])
def test_a_known_exponent_comes_back(factor):
    finding = tried(Reprojection(), stretching(factor), words())
    assert finding.statistic.value == pytest.approx(math.log(factor), abs=1e-3)
    frame = finding.to_frame()
    for column in ("live", "own", "frozen"):
        assert list(frame[column]) == pytest.approx([1, factor, factor**2], rel=1e-3)
    assert list(frame.later_live)[1:] == pytest.approx([1, factor], rel=1e-3)
    assert "linear" in finding.notes[1] and "not linear" not in finding.notes[1]


def test_norms_frozen_to_each_tokens_own_scale_leave_the_stream_as_it_was():
    """A scale taken from another token, as a forgotten transpose would, does not."""
    bench = Bench(read(tiny("gpt2")), words())
    batch = bench.batches(even_windows(bench.corpus, 24, 12))[0]
    before, powers = stream_and_powers(bench, batch)
    right, wrong = (frozen(bench.anatomy, p) for p in (powers, {s: p.flip(1) for s, p in powers.items()}))
    far = [float((stream(bench, batch, *edits) - before).abs().max() / before.abs().max()) for edits in (right, wrong)]
    assert far[0] < 1e-5 < 1e-3 < far[1]


def test_a_stream_that_overflows_is_reported_and_never_nan():
    finding = tried(Reprojection(), squaring(), words())
    frame = finding.to_frame()
    assert "diverges at L" in finding.reading
    assert frame.diverged.iloc[0] == 0 and frame.diverged.iloc[-1] == 1
    assert frame.live.notna().all() and frame.length_live.notna().all()
    assert math.isnan(frame.frozen.iloc[-1])
    assert frame.live.max() < 10
    assert "up to L" in finding.controls[0].name
    assert all(math.isfinite(v) for control in finding.controls for v in (control.value, control.low, control.high))


def test_first_tokens_are_frozen_apart():
    """One token per window is a thousand times as long: frozen like the others, it dominates what they read."""
    finding = tried(Reprojection(), long_first(), words())
    frame = finding.to_frame()
    assert frame.length_frozen.iloc[-1] > 5 * frame.length_live.iloc[-1]
    assert frame.length_apart.iloc[-1] == pytest.approx(frame.length_live.iloc[-1], rel=0.2)
    assert "Mostly the first tokens" in finding.reading


def test_only_the_first_tokens_are_rotated():
    bench = Bench(read(tiny("llama")), words())
    batch = bench.batches(even_windows(bench.corpus, 64, 12))[0]
    before = stream(bench, batch)
    after = stream(bench, batch, perturbation.FirstTokens(Turn(-1, 0.1, 3), 5))
    moved = angles_between(bench.anatomy, before, after)
    assert (moved[0, :, :5] - 0.1).abs().max() < 1e-5
    assert moved[0, :, 5:].max() == 0
    assert moved[-1, :, 5:].min() > 1e-6
    untouched = stream(bench, batch)
    assert torch.equal(before, untouched)


def test_a_comparison_that_spans_its_limit_is_not_counted_against_the_claim():
    cases = {
        "supported": [True, True, True, True],
        "qualified": [True, False, None, True],
        "undecided": [True, True, None, True],
        "refuted": [False, False, False, False],
    }
    assert {verdict: in_all(held)[0] for verdict, held in cases.items()} == {verdict: verdict for verdict in cases}


def test_in_slid_windows_what_nothing_carries_does_not_arrive():
    table = tried(Reprojection(), short_sighted(), words()).more_tables["windows"].to_frame()
    assert table.live.max() < 1e-3
    table = tried(Reprojection(), averaging(), words()).more_tables["windows"].to_frame()
    assert table.live.min() > 1e-2


# Errors.


def test_losses_are_the_benchs_own_and_first_tokens_are_left_out():
    anatomy, text = read(tiny("gpt2")), words()
    bench = Bench(anatomy, text)
    tokens = score_tokens(bench)[MODEL]
    batches = bench.batches(text.thinned(TOKENS, DOCUMENTS).windows)
    wanted = torch.cat([bench.token_losses(b)[:, 1:-1].flatten() for b in batches])
    assert tokens.loss == pytest.approx(wanted.numpy(), rel=1e-5)
    assert len(tokens.loss) == 12 * 58


def scored(anatomy, text) -> ScoredTokens:
    return score_tokens(Bench(anatomy, text))[MODEL]


@pytest.fixture(scope="module")
def pushed() -> ScoredTokens:
    """Tokens of the model that errs where it is pushed off its manifold."""
    return scored(*pushed_off())


def test_the_confound_is_strong_and_leaving_it_out_would_be_fooled():
    """Distance and rarity are correlated: without rarity in the baseline, distance would seem to add something."""
    tokens, finding = scored(*rare_words()), finding_of("errors, rare words")
    first = finding.to_frame().iloc[0]
    assert first.auc > 0.65 and first.rarity > 0.5
    assert first.adds_high < 0.02
    blind = replace(tokens, rare=np.zeros_like(tokens.rare), rare_before=np.zeros_like(tokens.rare))
    assert ErrorPrediction(blind, 0).adds(tokens.scores[tokens.sites[0], SCORES[0]])[1] > 0.02


def test_errors_of_the_text_itself_are_not_blamed_on_the_manifold():
    finding = tried(ManifoldErrors(), *pushed_off(0))
    assert finding.verdict not in ("supported", "qualified")


def test_scores_of_other_tokens_predict_nothing():
    finding = finding_of("errors, pushed off")
    other = finding.controls[0]
    assert other.name == "scores of other tokens"
    assert abs(other.value) < 0.05 < 0.3 < finding.statistic.low


def test_what_nobody_knows_at_a_place_is_not_in_the_baseline(pushed):
    """The next token decides its own loss: a baseline that knew it would leave nothing for any score to tell."""
    shuffled = replace(pushed, rare_next=np.random.default_rng(0).permutation(pushed.rare_next))
    assert (ErrorPrediction(pushed, 0).known == ErrorPrediction(shuffled, 0).known).all()
    assert ErrorPrediction(pushed, 0).adds(pushed.entropy)[1] > 0.02


def test_untrained_models_that_show_as_much_refute():
    adds, beside = (0.10, 0.08, 0.12), (0.0, -0.01, 0.01)
    verdicts = [decide(adds, beside, control, 5)[0] for control in ((0.0, -0.02, 0.03), (0.1, 0.0, 0.2), (0, 0, 0.1))]
    assert verdicts == ["supported", "refuted", "undecided"]
    assert decide(adds, (-0.1, -0.12, -0.05), (0.0, -0.02, 0.03), 5)[0] == "qualified"
    assert decide(adds, beside, NAN3, 0) == ("undecided", Why.NO_CONTROL)


@pytest.mark.parametrize(
    ("loss", "twins", "verdict", "why"),
    [
        ((4.0, 3.9, 4.1), 5, "supported", None),
        ((9.7, 9.6, 9.8), 5, "refuted", None),
        ((12.0, 11.0, 13.0), 5, "refuted", None),
        ((9.45, 9.3, 9.6), 5, "undecided", Why.SPANS_LIMIT),
        ((4.0, 3.9, 4.1), 0, "undecided", Why.NO_CONTROL),
    ],
)
def test_what_predicts_no_better_than_untrained_models_has_no_errors(loss, twins, verdict, why):
    untrained = (9.7, 9.5, 9.9)
    part = predicts_part(loss, untrained if twins else NAN3, twins)
    assert (part.verdict, part.why) == (verdict, why) and part.asserted
    assert ("no errors to speak of" in part.reading) == (verdict == "refuted")
    limit = loss_limit(part, untrained)
    assert (limit.value, limit.side, limit.part, limit.measured) == (9.5, "below", part.name, part.statistic)


def test_an_untrained_model_has_no_errors_to_tell():
    """Whatever its scores say: twins of a model stand for one that nobody trained."""
    anatomy, text = pushed_off()
    finding = tried(ManifoldErrors(), random_twin(anatomy, 77), text)
    parts = {part.name: part.verdict for part in finding.parts}
    assert parts["the model predicts"] != "supported" and finding.verdict in ("refuted", "undecided")
    planted = {part.name: part.verdict for part in finding_of("errors, pushed off").parts}
    assert planted["the model predicts"] == "supported"


def test_two_twins_alone_do_not_refute():
    """Their interval is wide because they are two: what a model shows above both of them is not what they reach."""
    adds, beside = (0.10, 0.08, 0.12), (0.0, -0.01, 0.01)
    control = tuple(over_twins([(0.04, 0.04, 0.04), (0.06, 0.06, 0.06)]).tolist())
    assert control[2] > adds[2]
    assert decide(adds, beside, control, 2)[0] == "undecided"
    assert decide((0.05, 0.045, 0.055), beside, control, 2)[0] == "refuted"


def test_a_head_that_does_something_else_is_an_anomaly():
    fold = np.arange(400) % 2
    values = np.random.default_rng(0).standard_normal((400, 6))
    values[7, 2] += 9
    ranks = anomalies({HEAD_SCORES[0]: values}, fold)["heads", HEAD_SCORES[0]]
    assert ranks[7] == 1.0 and ranks.mean() == pytest.approx(0.5, abs=0.01)


def test_a_score_with_a_negative_weight_adds_nothing(pushed):
    prediction = ErrorPrediction(pushed, 0)
    score = pushed.scores[pushed.sites[0], SCORES[0]]
    assert prediction.adds(score)[1] > 0.3
    # The weight is clearly negative: there is nothing left that it may add.
    assert prediction.adds(-score) == (0, 0, 0)


def test_a_score_of_unclear_weight_adds_nothing_and_the_interval_says_what_it_may_add():
    """A gain of 0.05 is hidden by noise in a few documents and told in many; in neither does the interval deny it."""
    few, many = (told_by_a_score(documents) for documents in (16, 400))
    assert few.adds(few.tokens.matrix())[:2] == (0, 0)
    assert few.adds(few.tokens.matrix())[2] > 0.05
    value, low, high = many.adds(many.tokens.matrix())
    assert 0.02 < low < value < high
    noise = told_by_a_score(400, weight=0.0)
    value, low, high = noise.adds(noise.tokens.matrix())
    assert value == low == 0 and 0 < high < 0.02


def told_by_a_score(documents, weight=0.5, length=16):
    """Tokens of which rarity tells errors by a weight of 0.5, and one score by the weight given."""
    draw = np.random.default_rng(3)
    rare, score = draw.standard_normal((2, documents * length))
    loss = np.where(draw.random(len(rare)) < 1 / (1 + np.exp(2 - 0.5 * rare - weight * score)), 5.0, 0.1)
    group = np.repeat(np.arange(documents), length)
    blank = np.zeros(len(rare))
    return ErrorPrediction(
        ScoredTokens(("s",), {("s", SCORES[0]): score}, loss, blank, rare, blank, blank, blank, group, group % 2), 0
    )


def test_a_fit_on_the_half_it_predicts_would_overestimate_itself():
    """200 features of noise: crossed, they predict nothing; fitted and tested on the same half, something."""
    tokens = scored(*pushed_off(0))
    noise = np.random.default_rng(0).standard_normal((len(tokens.loss), 200))
    held_out, fitted = crossed(noise, tokens).order, noise @ logistic(noise, tokens.hard)[1:]
    scores = [auc(score[tokens.hard], score[~tokens.hard]) for score in (held_out, fitted)]
    assert abs(scores[0] - 0.5) < 0.05 < 0.1 < scores[1] - 0.5


def test_mahalanobis_is_what_its_name_says_where_tokens_are_many():
    draw = np.random.default_rng(0)
    shape = draw.standard_normal((6, 6))
    fit, other = (draw.standard_normal((n, 6)) @ shape + 3 for n in (20_000, 50))
    exact = np.sqrt((np.linalg.solve(shape.T, (other - 3).T) ** 2).sum(0))
    assert mahalanobis(fit, other) == pytest.approx(exact, rel=0.05)
    # Fewer tokens than axes: still a number, where the plain covariance has no inverse.
    assert np.isfinite(mahalanobis(fit[:4], other)).all()


def test_nearest_neighbours_are_counted():
    fit = np.arange(30.0)[:, None]
    assert neighbour(fit, np.array([[0.0], [-2.0]])) == pytest.approx([9, 11])


def test_windows_are_even_and_without_what_the_tokenizer_added():
    windows = [Window(i, (1, *range(10, 10 + n), 2), 1, 1) for i, n in enumerate((5, 40, 30, 20, 40, 50, 31, 8))]
    even = even_windows(Corpus(tuple(windows), "", 8, 0, ()), 64, 24)
    assert {len(w.ids) for w in even} == {20}
    assert [w.document for w in even] == [1, 2, 3, 4, 5, 6]
    assert all(w.ids[0] == 10 for w in even)
    windows[0], windows[-1] = Window(0, tuple(range(18))), Window(7, tuple(range(16)))
    even = even_windows(Corpus(tuple(windows), "", 8, 0, ()), 64, 24)
    assert [len(w.ids) for w in even] == [16] * 8  # eight documents, which intervals need, for windows a fifth shorter


def test_states_are_named_and_passes_stated():
    assert stations(read(tiny("bert"))) == ("L0.resid_pre", "L0.resid_post", "L1.resid_post", "L2.resid_post")
    anatomy = long_gpt2()
    for probe in PROBES:
        counts = []
        probe().experiment(Bench(anatomy, words(24, 128), Twins(anatomy, 0), tick=counts.append))
        assert sum(counts) <= probe().passes(anatomy) * benches.TOKENS, (probe, sum(counts) / benches.TOKENS)

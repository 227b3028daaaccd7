"""Heads as a grid: axes that can change places or not, and heads with a purpose or without one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import bench_of, case_of, concluded, finding_of, first_reading, name_of, tried, whole
from tiny import tiny

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.edits import Shuffle, across, edited
from armillary.flow.capture import run, still
from armillary.flow.controls import random_twin
from armillary.flow.tokens import Corpus, Window
from armillary.probes import PROBES
from armillary.probes.grid.axes.axis_shuffles import (
    TRIALS,
    DocumentShuffle,
    ShuffleCase,
    ShuffleCosts,
    crossing_share,
    shuffle_cases,
    whole_case,
)
from armillary.probes.grid.gradients import HeadGradients
from armillary.probes.grid.head_axes import HeadAxes, _verdict
from armillary.probes.grid.specialise import HeadSpecialisation, _on_text
from armillary.probes.instruments.head_parts.roles import letters, name_roles
from armillary.probes.instruments.patterns import measure_patterns, repeated, texts
from armillary.probes.machinery.bench import Bench, Trials
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import gather
from armillary.results import Why
from armillary.specimens.models.heads.grid_models import gpt2, purposeful
from armillary.specimens.models.texts import corpus, written
from armillary.specimens.planted.case import draw
from armillary.specimens.planted.grid_cases import CASES

# One of each kind: fused and split projections, grouped heads, q/k-norms, soft caps, windows, encoders.
FAMILIES = ("gpt2", "llama", "mistral", "qwen3", "gemma2", "gpt_neox", "opt-post", "bert")


# Planted flows are in test_grid_flow.py, beside the tests that look at them closely: each is computed once.
@pytest.mark.parametrize("case", [c for c in first_reading(CASES) if c.planted.claim != "flow.coarse"], ids=name_of)
def test_planted_truth_comes_back(case):
    finding = finding_of(name_of(case))
    whole(finding)
    assert finding.verdict == case.planted.verdict, f"{finding.statistic}: {finding.reading}"


@pytest.mark.parametrize("probe", [HeadAxes(), HeadSpecialisation(), HeadGradients()], ids=lambda p: p.claim.id)
def test_one_head_decides_nothing(probe):
    anatomy = gpt2(heads=1)
    finding = tried(probe, anatomy, written(anatomy))
    whole(finding)
    assert (finding.verdict, finding.why) == ("undecided", Why.NOT_APPLICABLE)
    assert "several heads" in finding.reading or probe.claim.id != "heads.axes"


@pytest.mark.parametrize(("name", "probe"), [("axes, interchangeable within heads", HeadAxes()),
                                             ("roles, three purposes", HeadSpecialisation())])  # fmt: skip
def test_without_untrained_models_nothing_is_learned(name, probe):
    gathered = gather(*draw(case_of(name)), probe.instruments)
    finding = concluded(probe, replace(gathered, untrained=()))
    assert finding_of(name).verdict == "supported" and finding.verdict == "undecided"
    assert finding.why is Why.NO_CONTROL and "untrained" in finding.reading


@pytest.mark.usefixtures("two_twins")
@pytest.mark.parametrize("probe", [HeadAxes(), HeadSpecialisation()], ids=lambda probe: probe.claim.id)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_asked(name, probe):
    whole(tried(probe, read(tiny(name)), corpus(9, 18, vocabulary=97)))


def test_half_precision_can_be_asked():
    model = tiny("llama").to(torch.float16)
    for probe in (HeadAxes(), HeadSpecialisation()):
        whole(tried(probe, read(model), corpus(9, 18, vocabulary=97)))


def untrained(seed: int) -> Anatomy:
    """At Hugging Face's own initialisation."""
    return random_twin(gpt2(layers=3), seed)


def ragged() -> Corpus:
    """Documents of every length, some of two tokens."""
    windows = tuple(replace(w, ids=w.ids[: 2 + 3 * i]) for i, w in enumerate(corpus(16, 40, vocabulary=60).windows))
    return Corpus(windows, "planted", 16, sum(len(w.ids) for w in windows), ())


EDGES = {
    "one block": lambda: (gpt2(layers=1), corpus(9, 20, vocabulary=60)),
    "one head": lambda: (gpt2(heads=1), corpus(9, 20, vocabulary=60)),
    "ragged documents": lambda: (gpt2(), ragged()),
    "two words": lambda: (gpt2(), corpus(9, 20, vocabulary=2)),
    "three documents": lambda: (gpt2(), corpus(3, 20, vocabulary=60)),
    "one document": lambda: (gpt2(), corpus(1, 20, vocabulary=60)),
    "one-token documents": lambda: (gpt2(), corpus(9, 1, vocabulary=60)),
}


@pytest.mark.usefixtures("two_twins")
@pytest.mark.parametrize("probe", [probe for probe in PROBES if probe.claim.chapter == "F"], ids=lambda p: p.claim.id)
@pytest.mark.parametrize("edge", list(EDGES))
def test_the_edges_are_survived(edge, probe):
    anatomy, text = EDGES[edge]()
    evidence = gather(anatomy, text, probe.instruments)
    finding = judge(probe, evidence, bench_of(evidence))
    whole(finding)
    if edge in ("one document", "one-token documents"):
        assert finding.why is Why.TOO_LITTLE_TEXT
    if edge == "three documents":
        assert finding.why in (Why.TOO_LITTLE_TEXT, Why.NO_INTERVAL)


# Axes.


def test_interchangeable_axes_cost_nothing_within_their_head():
    finding = finding_of("axes, interchangeable within heads")
    frame = finding.to_frame()
    assert frame.within.abs().max() < 1e-5 < 0.01 < frame.across.min()
    assert finding.statistic.value == pytest.approx(1, abs=1e-3)


def test_q_and_k_alike_are_the_exact_zero():
    finding = finding_of("axes, each with a part of its own")
    alike = next(control for control in finding.controls if "alike" in control.name)
    assert abs(alike.value) < 1e-5 < 0.01 < finding.to_frame().across.min()


def test_fewer_axes_within_than_across_would_support_anything():
    """The mutation that moving the same axes guards against: a quarter of them within, all of them across."""
    anatomy = gpt2()
    trials = HeadAxes().experiment(Bench(anatomy, written(anatomy))).trials
    cases = {case.moved: case for case in shuffle_cases(anatomy) if case.where == "z" and len(case.layers) == 2}
    quarter, full = cases[2], cases[8]

    def cost(case: ShuffleCase, kind: str) -> float:
        return ShuffleCosts(trials, case).cost(kind)[0]

    assert 1 - cost(quarter, "within") / cost(full, "across") > 0.2 > 1 - cost(full, "within") / cost(full, "across")


def invented(costs: dict[ShuffleCase, tuple[float, float]], documents: int = 24) -> list[ShuffleCosts]:
    """Trials that cost so many nats within heads and across, nearly the same in every document."""
    rng = np.random.default_rng(0)
    names = [case.trial(kind, n) for case in costs for kind, n in TRIALS]
    nats = [costs[case][kind == "across"] for case in costs for kind, _ in TRIALS]
    loss = 50 * (4 + np.array([0.0, *nats])[:, None] + 0.001 * rng.standard_normal((1 + len(nats), documents)))
    trials = Trials(tuple(names), loss, np.full(documents, 50.0), 3, 0.95, 0)
    return [ShuffleCosts(trials, case) for case in costs]


def test_the_case_that_destroys_the_model_does_not_rule():
    """Summed costs would give 49 %: the one case of 5 nats against 2.5."""
    gentle = {ShuffleCase("z", (layer,), 8): (0.1, 0.1) for layer in range(4)}
    value, low, high = crossing_share(invented({**gentle, ShuffleCase("z", (0, 1, 2, 3), 8): (2.5, 5.0)}))
    assert abs(value) < 0.05 and low < 0 < high < 0.2


def test_a_share_of_nothing_is_withheld():
    idle, costly = ShuffleCase("z", (0,), 8), ShuffleCase("z", (1,), 8)
    costs = invented({idle: (0.0, 0.0), costly: (0.1, 0.2)})
    assert [cost.has_cost for cost in costs] == [False, True]
    assert np.isnan(crossing_share([])).all()
    finding = tried(HeadAxes(), untrained(3), corpus(20, 40, vocabulary=60))
    assert finding.why is Why.UNDEFINED and np.isnan(finding.statistic.value)
    assert "share" in finding.table.to_frame() and finding.table.to_frame().share.isna().all()


def test_one_layer_above_the_limit_qualifies():
    """Above in one case alone, and below in the median of every place."""
    assert _verdict(["below", "below"], True, True, 24) == ("qualified", None)
    assert _verdict(["below", "below"], False, True, 24) == ("refuted", None)
    assert _verdict(["above", "open"], True, True, 24) == ("undecided", Why.SPANS_LIMIT)
    assert _verdict(["above", "idle"], True, True, 24) == ("qualified", None)
    assert _verdict(["above", "above"], True, False, 24) == ("undecided", Why.UNDEFINED)
    assert _verdict(["below", "below"], False, None, 24) == ("undecided", Why.SPANS_LIMIT)


@pytest.mark.parametrize(
    ("untrained_costs", "why", "says"),
    [
        ((3.0, 3.1, 3.2), Why.UNDEFINED, "no more than in untrained models"),
        # Three twins of standard deviation s reach 3 s; their interval ends at 5 s.
        ((-0.25, 0.0, 0.25), Why.SPANS_LIMIT, "is unclear"),
        ((0.0, 0.0, 0.0), None, "of the cost of a shuffle"),
    ],
    ids=["as dear", "unclear", "free"],
)
def test_a_share_is_withheld_unless_shuffles_cost_more_than_in_untrained_models(untrained_costs, why, says):
    """The same trials beside three kinds of untrained models, whose costs are given as shares of the model's."""
    anatomy = gpt2()
    gathered = gather(anatomy, written(anatomy), ())
    result = HeadAxes().experiment(bench_of(gathered))
    cost = ShuffleCosts(result.trials, whole_case(anatomy)).cost("across")[0]
    finding = HeadAxes().conclude(gathered, replace(result, twins=tuple((cost * c,) * 3 for c in untrained_costs)))
    assert finding.why is why and says in finding.reading
    withheld = [np.isnan(finding.statistic.value), np.isnan(finding.controls[0].value), finding.to_frame().share.isna()]
    assert all(np.all(each) for each in withheld) == (why is not None) == any(np.all(each) for each in withheld)
    assert ("no more than" in finding.reading) == (why is Why.UNDEFINED)


@pytest.mark.parametrize("seed", [101, 102])
@pytest.mark.parametrize(
    "probe", [p for p in PROBES if p.claim.chapter == "F" and p.claim.kind == "learned"], ids=lambda p: p.claim.id
)
def test_nothing_learned_is_found_in_an_untrained_model(probe, seed):
    finding = tried(probe, untrained(seed), corpus(20, 40, vocabulary=60))
    assert finding.verdict in ("refuted", "undecided"), finding.reading


@pytest.mark.parametrize("where", ["z", "q"])
def test_every_document_has_its_own_shuffle(where):
    """The n-th document by the n-th order, across batches too, as the plain edit would shuffle it alone."""
    anatomy, text = gpt2(), torch.randint(0, 60, (5, 12), generator=torch.Generator().manual_seed(0))

    def order(n: int) -> tuple[int, ...]:
        return across(4, 8, n)

    shuffle = DocumentShuffle(0, order, where)
    with still(anatomy.model):
        before = run(anatomy, text)
        with edited(anatomy, shuffle):
            shuffled = torch.cat((run(anatomy, text[:2]), run(anatomy, text[2:])))
        for n in range(5):
            with edited(anatomy, Shuffle(0, order(n), where)):
                assert torch.allclose(shuffled[n], run(anatomy, text[n : n + 1])[0], atol=1e-5)
        assert torch.equal(run(anatomy, text), before)


def test_what_cannot_be_measured_is_undecided_with_its_reason():
    encoder = tried(HeadAxes(), read(tiny("bert")), corpus(9, 12, vocabulary=97))
    assert encoder.why is Why.NOT_APPLICABLE and "causal" in encoder.reading
    short = tried(HeadSpecialisation(), read(tiny("llama")), corpus(9, 12, vocabulary=97))
    assert short.verdict == "undecided" and short.why is Why.TOO_LITTLE_TEXT


# Roles.


def test_a_head_is_called_after_its_purpose():
    frame = finding_of("roles, three purposes").to_frame().set_index("head")
    assert list(frame.role[:3]) == ["previous", "same", "first"]
    assert frame.loc["L0H0", "previous"] > 0.99 and frame.loc["L0H2", "first"] > 0.99
    assert frame.loc["L0H0", "content"] < 0.01 < 0.5 < frame.loc["L0H1", "content"], "only the second depends on words"


def test_an_induction_head_takes_two_layers():
    plan = [["previous", "uniform", "uniform"], ["induction", "uniform", "uniform"]]
    with_it = tried(HeadSpecialisation(), purposeful(plan), corpus(20, 40, vocabulary=40)).to_frame().set_index("head")
    assert with_it.loc["L1H0", "role"] == "induction" and with_it.loc["L1H0", "induction"] > 0.9
    # Without the earlier head, it has nothing to match.
    alone = tried(
        HeadSpecialisation(), purposeful([["uniform"] * 3, plan[1]]), corpus(20, 40, vocabulary=40)
    ).to_frame()
    assert alone.induction.max() < 0.1


def test_random_heads_depend_on_words_and_have_no_role():
    """If content were a kind of token, heads of large random weights would count as specialised."""
    finding = finding_of("roles, random and sharp")
    assert finding.to_frame().content.min() > 0.8 and not any(finding.to_frame().leans)
    assert finding.verdict == "refuted"


def test_what_all_heads_do_is_not_a_speciality():
    finding = finding_of("roles, all alike")
    assert set(finding.to_frame().leans) == {"previous"} and finding.to_frame().differs.max() < 1e-6
    assert finding.statistic.value == 0 and [control.value for control in finding.controls] == [0, 0]


def test_a_token_that_most_heads_attend_to_is_not_a_speciality():
    """Counted as one, a first token that two heads of three attend to would make all of them specialised."""
    finding = finding_of("roles, a sink")
    assert (finding.to_frame().leans != "").all() and finding.statistic.value == pytest.approx(1 / 3)
    assert finding.headline.endswith("first token: 4")


def test_heads_that_rest_on_the_first_token_have_no_speciality():
    """Half of all heads do: a rule that counts what at most half of them lean to would call them specialists."""
    finding = finding_of("roles, half rest on the first token")
    assert list(finding.to_frame().leans).count("first") == 3 and finding.statistic.value == 0


def test_more_specialities_on_disorder_void_the_claim():
    assert _on_text((-0.3, -0.4, -0.2), (0.8, 0.7, 0.9)).verdict == "refuted"
    assert _on_text((-0.02, -0.05, 0.0), (0.5, 0.5, 0.5)).verdict == "supported", (
        "heads that go by position keep theirs"
    )
    assert _on_text((-0.1, -0.2, 0.0), (0.5, 0.5, 0.5)).why is Why.SPANS_LIMIT


def patterns_of(anatomy, text: Corpus) -> dict[int, torch.Tensor]:
    """layer → [text, head, query, key]."""
    from armillary.flow.capture import watching_patterns

    patterns = {}
    with still(anatomy.model), watching_patterns(anatomy, lambda layer, pattern: patterns.update({layer: pattern})):
        run(anatomy, torch.tensor([window.ids for window in text.windows]))
    return patterns


def test_only_heads_that_see_ahead_can_attend_to_the_next_token():
    text = corpus(3, 20, vocabulary=60)
    for name, sees in (("bert", True), ("llama", False)):
        anatomy = read(tiny(name))
        sums = measure_patterns(anatomy, text).of("next")[:, 2]
        pattern = patterns_of(anatomy, text)[2]
        slow = sum(pattern[:, :, t, t + 1] for t in range(8, 19)).double().numpy()
        assert np.allclose(sums[..., 1], slow if sees else 0, atol=1e-5) and (sums[..., 0] == 11 * sees).all()


def test_scores_are_those_of_the_pattern():
    """Against a slow count, query by query, on a model with a window."""
    anatomy, text_corpus = read(tiny("mistral")), corpus(3, 20, vocabulary=9)
    table = np.array([window.ids for window in text_corpus.windows])
    sums = measure_patterns(anatomy, text_corpus)
    pattern = patterns_of(anatomy, text_corpus)[1].double().numpy()
    window = anatomy.blocks[1].attention.window
    for text, head in ((0, 1), (2, 3)):
        total = count = 0.0
        for t in range(8, 20):
            keys = [s for s in range(max(0, t - window + 1), t) if table[text, s] == table[text, t]]
            total += sum(pattern[text, head, t, s] for s in keys)
            count += bool(keys)
        assert sums.of("same")[text, 1, head] == pytest.approx([count, total], abs=1e-5)
        first = pattern[text, head, 8:, 0].sum()
        assert sums.of("first")[text, 1, head] == pytest.approx([12, first], abs=1e-5)


def test_repeated_tokens_are_ordinary_ones_and_each_comes_twice():
    windows = (Window(0, (1, 7, 8, 9, 2), prefix=1, suffix=1), Window(1, (1, 9, 10, 11, 2), prefix=1, suffix=1))
    text = Corpus(windows, "planted", 2, 10, ())
    copies = repeated(text, range(4), 64, 0)
    rows = np.array([window.ids for window in copies.windows])
    assert rows.shape == (4, 11) and (rows[:, 0] == 1).all() and copies.tokens == 44
    assert (rows[:, 1:6] == rows[:, 6:]).all()
    assert all(sorted(row) == [7, 8, 9, 10, 11] for row in rows[:, 1:6].tolist())
    short = repeated(text, range(2), 7, 0).windows
    assert [len(window.ids) for window in short] == [7, 7], "no longer than the context"
    # Counted one place off, a head that attends to the token itself would count as induction.
    words = corpus(6, 40, vocabulary=40)
    sums = measure_patterns(purposeful([["same"] * 3]), words, repeated(words, range(6), 64, 0)).of("induction").sum(0)
    assert (sums[..., 1] / sums[..., 0]).max() < 0.05


def test_texts_are_of_one_length_and_most_of_them():
    lengths = [40, 40, 40, 12, 40, 40, 40, 40, 5, 40, 40, 40]
    windows = [Window(i, tuple(range(n))) for i, n in enumerate(lengths)]
    text = texts(Corpus(tuple(windows), "planted", 12, sum(lengths), ()), 8)
    assert [len(window.ids) for window in text.windows] == [40] * 10 and text.tokens == 400
    assert {window.document for window in text.windows} == set(range(12)) - {3, 8}
    assert not texts(Corpus((), "planted", 0, 0, ()), 8).windows


def test_letters_agree_with_roles():
    scores = {"previous": np.array([[0.38, 0.6, 0.3, 0.1]]), "content": np.array([[0.57, 0.9, 0.2, 0.3]])}
    assert name_roles(scores).tolist() == [["content", "previous", "mixed", "mixed"]]
    assert letters(scores) == ["CPpc"]


def test_few_documents_leave_no_interval():
    few = Corpus(corpus(4, 40, vocabulary=40).windows, "planted", 4, 160, ())
    assert tried(HeadSpecialisation(), purposeful([["previous", "same", "first"]]), few).why is Why.NO_INTERVAL

"""Experiments share a text and a baseline, stop early without being misled, and leave the model as it was."""

import numpy as np
import pytest
import torch
from tiny import tiny

from armillary.anatomy.read import read
from armillary.edits import Scale, across, edited
from armillary.flow.capture import run, still
from armillary.flow.tokens import Corpus, Window
from armillary.probes import PROBES, choose
from armillary.probes.filter.selection.undiscard import Undiscard
from armillary.probes.grid.axes.axis_shuffles import DocumentShuffle
from armillary.probes.machinery.bench import LOOKS, Bench, ModelChangedError, Trials
from armillary.probes.machinery.evidence import RANDOM, SHUFFLED
from armillary.probes.machinery.plan import make_plan
from armillary.probes.machinery.probe import Experimenter
from armillary.specimens.models.texts import corpus


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(read(tiny("llama")), corpus(30, 40, vocabulary=97))


def naive(bench: Bench, *edits) -> tuple[float, int]:
    """The loss window by window, without batches or padding."""
    total, count = 0.0, 0
    for window in bench.text.windows:
        ids = torch.tensor([window.ids])
        with still(bench.anatomy.model), edited(bench.anatomy, *edits):
            logits = run(bench.anatomy, ids, logits=True).double()
        total += float(torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="sum"))
        count += len(window.ids) - 1
    return total, count


def test_losses_are_those_of_the_model_window_by_window(bench):
    for edits in ((), (Scale(0, 2.0),)):
        tokens, loss = bench.losses(bench.batches(), *edits).sum(0)
        total, count = naive(bench, *edits)
        assert tokens == count
        assert loss == pytest.approx(total, rel=1e-5)


def test_all_trials_share_one_baseline(bench):
    passes = []
    ticking = Bench(bench.anatomy, bench.corpus, tick=passes.append)
    trials = ticking.compare({"double": (Scale(0, 2.0),), "nothing": (Scale(0, 1.0),)})
    assert sum(passes) == 3 * ticking.text.tokens
    ticking.compare({"half": (Scale(0, 0.5),)})
    assert sum(passes) == 4 * ticking.text.tokens, "the unedited model was measured again"
    value, low, high = trials.cost("double")
    assert low <= value <= high
    assert trials.cost("nothing") == (0, 0, 0)
    assert trials.beside("double", "nothing") == pytest.approx((value, low, high))
    assert trials.looks == LOOKS and trials.level == 0.95 and trials.documents == 24


def test_trials_that_resume_behind_unchanged_blocks_cost_what_whole_passes_cost(bench):
    a = bench.anatomy
    edits = {
        "scale": lambda: Scale(0, 2.0),
        "shuffle": lambda: DocumentShuffle(1, lambda n: across(a.n_heads, a.k, n), "z"),
        "queries": lambda: DocumentShuffle(1, lambda n: across(a.n_heads, a.k, n), "q"),
        "through": lambda: Undiscard(1),
        "elsewhere": lambda: Undiscard(1, 1.0, (0, 1)),
    }
    trials = Bench(a, bench.corpus).compare({name: (make(),) for name, make in edits.items()})
    for row, make in enumerate(edits.values(), 1):
        fresh, edit = Bench(a, bench.corpus), make()
        whole = np.zeros(fresh.corpus.groups)
        for batch in (batch for part in fresh.instalments for batch in part):
            np.add.at(whole, fresh.groups(batch).numpy(), fresh.token_losses(batch, edit).sum(1).numpy())
        assert np.array_equal(trials.loss[row], whole)


def test_a_trial_runs_no_block_before_the_first_that_it_changes(bench):
    """Nor does the first trial of its kind: the unedited pass has kept what every block gave."""
    a, passed = bench.anatomy, [0, 0]
    handles = [
        a.model.get_submodule(a.sites[f"L{at}.ln1"].path).register_forward_hook(
            lambda module, given, out, at=at: passed.__setitem__(at, passed[at] + 1)
        )
        for at in (0, 1)
    ]
    fresh = Bench(a, bench.corpus)
    fresh.compare({"later": (Undiscard(1),)})
    for handle in handles:
        handle.remove()
    assert passed[1] == 2 * passed[0]


def test_a_rule_that_can_decide_reads_no_further(bench):
    looks = []

    def decided(trials: Trials) -> bool:
        looks.append(trials.documents)
        return len(looks) == 2

    trials = Bench(bench.anatomy, bench.corpus).compare({"double": (Scale(0, 2.0),)}, decided)
    assert looks == [8, 16] and trials.documents == 16 and trials.looks == 2
    assert trials.level == pytest.approx(1 - 0.05 / LOOKS)


def test_three_looks_mislead_no_more_often_than_one():
    """Costs whose true mean is 0: a look that excludes 0 must stay as rare as 5 %. At 95 % per look it would not."""
    rng = np.random.default_rng(0)
    misled = dict.fromkeys((0.95, 1 - 0.05 / LOOKS), 0)
    rounds = 400
    for _ in range(rounds):
        cost = rng.normal(size=24)
        for level in misled:
            for look in range(1, LOOKS + 1):
                count = np.where(np.arange(24) < 8 * look, 1.0, 0.0)
                trials = Trials(("a",), np.stack([np.zeros(24), cost * count]), count, look, level, seed=0)
                _, low, high = trials.cost("a")
                if low > 0 or high < 0:
                    misled[level] += 1
                    break
    strict, loose = misled[1 - 0.05 / LOOKS] / rounds, misled[0.95] / rounds
    assert strict < 0.09 < loose, (strict, loose)


def test_few_documents_give_no_interval():
    trials = Bench(read(tiny("gpt2")), corpus(5, 20, vocabulary=97)).compare({"a": (Scale(0, 2.0),)})
    value, low, high = trials.cost("a")
    assert np.isfinite(value) and np.isnan([low, high]).all()


def test_a_change_of_the_model_is_found():
    bench = Bench(read(tiny("gpt2")), corpus(10, 20, vocabulary=97))
    bench.prove()
    bench.prove()
    with torch.no_grad():
        bench.anatomy.model.transformer.h[1].mlp.c_proj.bias[3] += 1e-3
    with pytest.raises(ModelChangedError):
        bench.prove()


def test_arms_have_their_own_model_or_their_own_text():
    from armillary.flow.controls import Twins

    anatomy = read(tiny("gpt2"))
    bench = Bench(anatomy, corpus(10, 20, vocabulary=97), Twins(anatomy, 0))
    assert bench.arm(RANDOM).anatomy is bench.untrained[0] and bench.arm(RANDOM) is bench.arm(RANDOM)
    other = bench.arm(SHUFFLED)
    assert other.anatomy is anatomy
    assert [sorted(w.ids) for w in other.corpus.windows] == [sorted(w.ids) for w in bench.corpus.windows]
    assert [w.ids for w in other.corpus.windows] != [w.ids for w in bench.corpus.windows]


@pytest.mark.parametrize("name", ["opt", "bert", "gpt_neox"])
def test_states_are_what_passes_the_site_after_the_edits(name):
    anatomy = read(tiny(name))
    bench = Bench(anatomy, corpus(4, 20, vocabulary=97))
    batch = bench.batches()[0]
    sites = ["L0.resid_pre", "L1.mlp_pre", "L1.z", "L1.resid_post"]
    plain, doubled = bench.states(batch, sites), bench.states(batch, sites, Scale(1, 2.0))
    assert {site: state.shape[:2] for site, state in plain.items()} == dict.fromkeys(sites, batch.ids.shape)
    assert torch.equal(doubled["L1.resid_post"], 2 * plain["L1.resid_post"])
    assert torch.equal(doubled["L1.z"], plain["L1.z"])


def test_an_encoder_has_no_next_token_loss():
    assert not Bench(read(tiny("bert")), corpus(4, 20, vocabulary=97)).scored


def test_a_plan_counts_the_passes_of_every_experiment():
    anatomy, text = read(tiny("gpt2")), corpus(30, 40, vocabulary=97)
    everything = make_plan(anatomy, text, PROBES, quick=False)
    experimenters = [probe for probe in PROBES if isinstance(probe, Experimenter)]
    assert everything.experiments == len(experimenters) and everything.claims == len(PROBES)
    assert everything.passes == sum(probe.passes(anatomy) for probe in experimenters)
    assert everything.tokens == text.tokens and everything.evaluation <= 1536
    assert 0 < everything.seconds < 3600
    weights_only = make_plan(anatomy, None, choose("sphere.ellipsoid"), quick=False)
    assert (weights_only.tokens, weights_only.passes) == (0, 0)
    assert make_plan(anatomy, text, PROBES, quick=True).evaluation < everything.evaluation


@pytest.mark.parametrize("name", ["gpt2", pytest.param("llama", marks=pytest.mark.slow)])
def test_no_experiment_makes_more_passes_than_it_says(name):
    """Measured on a plain and on a gated, grouped model; one reading of the evaluation text counts as one pass."""
    anatomy, counts = read(tiny(name)), []
    text = Corpus(
        tuple(Window(i, w.ids) for i, w in enumerate(corpus(24, 64, vocabulary=97).windows)), "", 24, 1536, ()
    )
    from armillary.flow.controls import Twins

    bench = Bench(anatomy, text, Twins(anatomy, 0), tick=counts.append)
    for probe in PROBES:
        if isinstance(probe, Experimenter):
            counts.clear()
            probe.experiment(bench)
            bench.prove()
            assert sum(counts) <= (probe.passes(anatomy) + 1e-6) * bench.text.tokens, probe.claim.id

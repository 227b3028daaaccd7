"""A study's runs are paired, resumable and repeatable, and damage is named."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from command import refused, run
from runs import verse
from scipy import stats

from armillary.errors import ArmillaryError
from armillary.lab import data
from armillary.lab.study import queue
from armillary.lab.study.arm_training import ArmTrainer, StudyCorpus, allow_compiling, build_arm, recipe_of
from armillary.lab.study.arms import GATE, STUDIES, arms_of
from armillary.lab.study.conclusions.outcome import outcome
from armillary.lab.study.conclusions.paired_runs import compare
from armillary.lab.study.design import (
    PRESETS,
    RATES,
    SIZES,
    STABILITY,
    TUNING_SEEDS,
    WIDE_RATES,
    Arm,
    paired_runs,
    size_of,
    tuning_runs,
)
from armillary.lab.study.end_states.robustness import robustness
from armillary.lab.study.queue import Study, best_rate, read_runs
from armillary.lab.study.small_tasks.lookup_task import LookupTask
from armillary.laboratory import SAMPLE
from armillary.views.figures.lab.study import CURVES, FOREST, GAPS, PAIRS, figure_of, save_study
from armillary.views.text.lab.study import study_text

SMOKE = SIZES["smoke"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return data.Text.of(verse(tmp_path_factory.mktemp("text") / "text.txt"))


@pytest.fixture(scope="module")
def corpus(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    data.prepare(recipe_of(SMOKE, 0), text, folder)
    return StudyCorpus(folder, "cpu")


def test_the_order_of_the_text_depends_on_the_seed_alone(corpus):
    first = corpus.batch(SMOKE, 3, 5)
    assert first.equal(corpus.batch(SMOKE, 3, 5))
    assert not first.equal(corpus.batch(SMOKE, 4, 5))
    assert not first.equal(corpus.batch(SMOKE, 3, 6))
    windows = (len(corpus.train) - 1) // SMOKE.context
    steps = windows // SMOKE.batch
    seen = {tuple(row.tolist()) for step in range(steps) for row in corpus.batch(SMOKE, 0, step)[:, :-1]}
    cut = {tuple(corpus.train[i * SMOKE.context : (i + 1) * SMOKE.context].tolist()) for i in range(windows)}
    assert seen <= cut
    assert len(seen) >= 0.8 * len(cut)


def test_the_same_run_twice_gives_the_same_loss_and_another_start_does_not(corpus):
    trainer = ArmTrainer(GATE[0], SMOKE, corpus, "cpu")
    run, *_ = paired_runs("gate", "smoke", GATE[0], 1e-3, 1)
    twin, *_ = paired_runs("gate", "smoke", GATE[1], 1e-3, 1)
    first, other, again = (trainer.run(r) for r in (run, twin, run))
    assert first["loss"] == again["loss"]
    assert first["loss"] != other["loss"]
    assert run.seed == twin.seed
    assert first["loss"] < first["curve"][0][1]


def test_block_heads_train_as_ordinary_ones(corpus):
    run, *_ = paired_runs("gate", "smoke", GATE[0], 1e-3, 1)
    ours, block = (ArmTrainer(arm, SMOKE, corpus, "cpu").run(run)["loss"] for arm in (GATE[0], GATE[2]))
    assert ours == pytest.approx(block, abs=1e-4)


def test_a_rate_that_explodes_is_a_result(corpus):
    run = next(iter(paired_runs("gate", "smoke", GATE[0], 1e9, 1)))
    row = ArmTrainer(GATE[0], SMOKE, corpus, "cpu").run(run)
    assert row["diverged"] == (row["loss"] is None)
    assert json.loads(json.dumps(row, allow_nan=False))["key"] == run.key


@pytest.mark.parametrize("study", [name for name in STUDIES if name != "gate"])
def test_every_arm_trains(study, corpus):
    # Six heads of up to 192 axes need the width of size xs.
    size = size_of(study, "smoke")
    for arm in arms_of(study):
        run, *_ = paired_runs("any", "smoke", arm, 1e-3, 1)
        row = ArmTrainer(arm, size, corpus, "cpu").run(run)
        assert not row["diverged"], arm.name


def test_every_arm_has_the_same_number_of_trials_and_says_what_it_predicts():
    for study, arms in STUDIES.items():
        rates = WIDE_RATES if study == STABILITY else RATES
        for arm in arms:
            same = next((other for other in arms if other.name == arm.tuned_as), arm)
            assert len(list(tuning_runs(study, "xs", same))) == len(rates) * len(TUNING_SEEDS)
            assert not arm.tuned_as or not list(tuning_runs(study, "xs", arm))
            assert arm.prediction
        assert not {run.seed for run in paired_runs(study, "xs", arm, 1e-3, 50)} & set(TUNING_SEEDS)
        assert len({arm.name for arm in arms}) == len(arms)


def test_the_best_rate_is_not_one_that_diverged():
    rows = [
        {"rate": r, "loss": loss, "diverged": loss is None} for r, loss in [(1, 3.0), (1, 3.0), (2, 1.0), (2, None)]
    ]
    assert best_rate(rows) == 1


def test_of_rates_that_are_as_good_the_smallest_is_taken():
    rows = [{"rate": r, "loss": loss, "diverged": False} for r, loss in [(1, 4.5), (4, 4.409), (8, 4.40), (16, 4.7)]]
    assert best_rate(rows) == 4
    # More than the smallest effect must not be given away.
    rows[1]["loss"] = 4.415
    assert best_rate(rows) == 8
    rows[1]["loss"] = 4.409
    assert best_rate([row for row in rows if row["rate"] != 4]) == 8


def test_a_killed_study_goes_on(text, tmp_path, monkeypatch):
    study = Study("gate", "smoke", text, tmp_path, seeds=1, device="cpu")
    monkeypatch.setattr("armillary.lab.study.design.RATES", (1e-3,))
    real, calls = queue.append, []

    def append(path, row):
        real(path, row)
        calls.append(row["key"])
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(queue, "append", append)
    with pytest.raises(KeyboardInterrupt):
        study.run(["layernorm"])
    rows = study.run(["layernorm"])
    assert len(calls) == len(set(calls)) == len(rows) == 3
    assert study.run(["layernorm"]) == rows
    more = Study("gate", "smoke", text, tmp_path, seeds=2, device="cpu").run(["layernorm"])
    assert len(more) == 4


def test_arms_side_by_side_are_the_arms_one_by_one(text, tmp_path, monkeypatch, capfd):
    """Another process gives the same losses, and an arm that takes over a rate waits for it."""
    monkeypatch.setattr("armillary.lab.study.design.RATES", (1e-3, 2e-3))
    names = ["identical twin", "layernorm", "block heads"]
    folders = [tmp_path / str(jobs) for jobs in (1, 2)]
    alone, shared = (Study("gate", "smoke", text, at, 1, "cpu").run(names, jobs) for jobs, at in enumerate(folders, 1))
    assert {row["key"]: row["loss"] for row in alone} == {row["key"]: row["loss"] for row in shared}
    assert len(alone) == 2 * len(TUNING_SEEDS) + len(names)
    assert "block heads" in capfd.readouterr().err
    # Two arms on one device slow each other down, so that the time of a step is not theirs.
    assert all(row["step_seconds"] > 0 for row in alone)
    assert {row["arm"]: row["step_seconds"] is None for row in shared} == {name: name != "layernorm" for name in names}
    with pytest.raises(ArmillaryError, match="whose tuning runs are missing"):
        Study("gate", "smoke", text, tmp_path / "other", 1, "cpu").run(["block heads"])


def test_an_arm_that_always_diverges_has_no_paired_runs_and_costs_no_other_arm(text, tmp_path, monkeypatch):
    reports = []
    study = Study("gate", "smoke", text, tmp_path, 1, "cpu", reports.append)
    monkeypatch.setattr("armillary.lab.study.design.RATES", (1e30,))
    rows = study.run(["layernorm"])
    assert all(row["diverged"] for row in rows)
    assert "every learning rate diverged" in reports[-1]


def test_arms_can_be_added_to_a_study_but_not_changed(text, tmp_path, monkeypatch):
    first, *others = arms_of("metric")
    monkeypatch.setitem(STUDIES, "metric", (first,))
    Study("metric", "smoke", text, tmp_path, 1, "cpu")._claim()
    (tmp_path / "runs.jsonl").touch()
    monkeypatch.setitem(STUDIES, "metric", (first, *others))
    Study("metric", "smoke", text, tmp_path, 1, "cpu")._claim()
    monkeypatch.setitem(STUDIES, "metric", (first, replace(others[0], score="angle"), *others[1:]))
    with pytest.raises(ArmillaryError, match="arm cosine differ"):
        Study("metric", "smoke", text, tmp_path, 1, "cpu")._claim()


def test_a_study_of_an_earlier_version_goes_on(text, tmp_path):
    """Fields that came later have their defaults in manifests that do not have them."""
    study = Study("norms", "smoke", text, tmp_path, 1, "cpu")
    study._claim()
    (tmp_path / "runs.jsonl").touch()
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["size"]["share"], manifest["arms"]["layernorm"]["gain_rate"], manifest["arms"]["slow gain"]
    path.write_text(json.dumps(manifest))
    study._claim()
    manifest["arms"]["layernorm"]["gain_rate"] = 0.5
    path.write_text(json.dumps(manifest))
    with pytest.raises(ArmillaryError, match="arm layernorm differ"):
        study._claim()


def test_the_ninth_arm_of_a_process_is_compiled_too(corpus):
    """PyTorch compiles one method eight times and then goes on without; the arms here differ by the shape of theirs."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    allow_compiling()
    arms = [*arms_of("norms")[:7], *arms_of("softheads")[1:4]]
    for arm in arms:
        trainer = ArmTrainer(arm, SMOKE, corpus, "cpu")
        trainer._loss = torch.compile(trainer._plain_loss, dynamic=False, backend="eager")
        trainer.step(corpus.batch(SMOKE, 0, 0), trainer.optimizer(1e-3))
    assert counters["frames"]["ok"] == counters["frames"]["total"] >= 9
    torch._dynamo.reset()


def test_gains_may_move_slower(corpus):
    """At a rate of 0 for gains and shifts they stay what they were, and everything else moves."""
    arm = replace(GATE[0], gain_rate=0.0)
    trainer = ArmTrainer(arm, SMOKE, corpus, "cpu")
    run, *_ = paired_runs("any", "smoke", arm, 1e-3, 1)
    trainer.run(run)
    start = trainer._build(run.start)
    for (name, now), before in zip(trainer.model.named_parameters(), start.parameters(), strict=True):
        assert torch.equal(now, before) == (".ln_" in name), name


def test_an_arm_of_another_width_has_as_many_parameters(corpus):
    plain, *others = arms_of("rank")
    size = replace(SMOKE, width=192, heads=6, layers=1)
    count = lambda arm: ArmTrainer(arm, size, corpus, "cpu").parameters  # noqa: E731
    whole = count(plain)
    for arm in others:
        # Only biases differ.
        assert abs(count(arm) / whole - 1) < 0.01, arm.name


@pytest.mark.parametrize("size", ["smoke", "xs", "s"])
def test_a_wider_feed_forward_has_fewer_layers_and_as_many_weights(size):
    """Biases and norms differ: a layer has few of them, and there are more layers or fewer."""
    plain, *others = (build_arm(arm, SIZES[size], 0) for arm in arms_of("expansion"))
    weights = [sum(p.numel() for p in model.parameters() if p.dim() > 1) for model in (plain, *others)]
    assert len(set(weights)) == 1
    hidden = [model.base_model.h[0].mlp.c_fc.weight.shape[1] / SIZES[size].width for model in (plain, *others)]
    assert hidden == [arm.expansion for arm in arms_of("expansion")] == [4, 1, 2, 10]


def test_a_feed_forward_that_needs_part_of_a_layer_is_refused():
    with pytest.raises(ArmillaryError, match=r"6 times as wide as the stream would need 1.50 layers in place of 2"):
        Arm("6 ×", expansion=6).layers(SIZES["smoke"])


def test_robustness_costs_nothing_where_nothing_is_lost(corpus):
    trainer = ArmTrainer(GATE[0], SMOKE, corpus, "cpu")
    run, *_ = paired_runs("any", "smoke", GATE[0], 4e-3, 1)
    trainer.run(run)
    attention = trainer.model.base_model.h[1].attn
    width = SMOKE.width // SMOKE.heads
    with torch.no_grad():
        attention.c_proj.weight[width : 2 * width] = 0
    damage = robustness(trainer.model, lambda: trainer.valid_loss(8))
    assert len(damage["heads"]) == SMOKE.layers * SMOKE.heads
    silent = SMOKE.heads + 1
    assert damage["heads"][silent] == pytest.approx(0, abs=1e-6)
    assert max(abs(cost) for i, cost in enumerate(damage["heads"]) if i != silent) > 1e-4
    again = robustness(trainer.model, lambda: trainer.valid_loss(8))
    assert again == damage, "the same axes and the same noise for every arm"


@pytest.mark.parametrize("arm", arms_of("mismatch"), ids=lambda arm: arm.name)
def test_robustness_of_every_arm(arm, corpus):
    run, *_ = paired_runs("mismatch", "smoke", arm, 1e-3, 1)
    row = ArmTrainer(arm, SMOKE, corpus, "cpu").run(run)
    assert {"dropped", "noisy", "heads", "train"} <= row.keys()
    assert json.dumps(row, allow_nan=False)


def test_scarce_text_is_read_more_often(text, tmp_path):
    data.prepare(recipe_of(SMOKE, 0), text, tmp_path)
    whole, scarce = StudyCorpus(tmp_path, "cpu"), StudyCorpus(tmp_path, "cpu", 0.25)
    assert len(scarce.train) == len(whole.train) // 4
    assert len(scarce.valid) == len(whole.valid)


def test_damage_is_named_and_the_rest_kept(tmp_path):
    written(tmp_path, {"layernorm": [3.0, 3.1]}, {"layernorm": {1e-3: 3.0}})
    whole = read_runs(tmp_path)
    path = tmp_path / "runs.jsonl"
    lines = path.read_text().splitlines()
    damages = ('{"k', "[]", "3", '{"key": "a"}', lines[0].replace('"diverged": false', '"diverged": true'), "\ufffd")
    for damage in damages:
        path.write_text("\n".join([lines[0], damage, *lines[1:]]) + "\n")
        reports = []
        assert read_runs(tmp_path, reports.append) == whole
        advice = "is damaged and left out; `lab run` makes its run again if that is missing"
        assert reports == [f"line 2 of {path} {advice}"]
        assert "line 2 of" in study_text(outcome(tmp_path))


def test_a_line_that_a_kill_cut_off_costs_no_other_run(tmp_path):
    path = tmp_path / "runs.jsonl"
    written(tmp_path, {"layernorm": [3.0, 3.1]}, {"layernorm": {1e-3: 3.0}})
    first, *_, last = read_runs(tmp_path)
    path.write_text(path.read_text()[:-20])
    queue.append(path, {**last, "key": "new"})
    assert [row["key"] for row in read_runs(tmp_path)] == [first["key"], "layernorm/p/0", "new"]


def test_another_study_is_refused(text, tmp_path, monkeypatch):
    # Without a run nothing is bound: text that was too short must not block the folder.
    Study("gate", "smoke", replace(text, sha256="0"), tmp_path, 1, "cpu")._claim()
    Study("gate", "smoke", text, tmp_path, 1, "cpu")._claim()
    (tmp_path / "runs.jsonl").touch()
    with pytest.raises(ArmillaryError, match="another study: size"):
        Study("gate", "cpu", text, tmp_path, 1, "cpu")._claim()
    with pytest.raises(ArmillaryError, match=r"another study: device \(cpu, now cuda\) differ"):
        Study("gate", "smoke", text, tmp_path, 1, "cuda:0")._claim()
    with pytest.raises(ArmillaryError, match="another study: text"):
        Study("gate", "smoke", replace(text, sha256="0"), tmp_path, 1, "cpu")._claim()
    with pytest.raises(ArmillaryError, match=r"another study: study \(gate, now stability\) differ"):
        Study("stability", "smoke", text, tmp_path, 1, "cpu")._claim()
    with monkeypatch.context() as changed:
        changed.setattr("armillary.lab.study.arm_training.DECAY", 0.0)
        with pytest.raises(ArmillaryError, match="another study: training"):
            Study("gate", "smoke", text, tmp_path, 1, "cpu")._claim()
    Study("gate", "smoke", text, tmp_path, 1, "cpu")._claim()
    (tmp_path / "manifest.json").write_text('{"study": "ga')
    with pytest.raises(ArmillaryError, match=r"manifest.json is damaged .* restore it, or give another --out"):
        Study("gate", "smoke", text, tmp_path, 1, "cpu")._claim()
    with pytest.raises(ArmillaryError, match="no study 'gates'"):
        arms_of("gates")


def test_a_study_says_how_much_is_left(text, tmp_path, monkeypatch):
    reports = []
    monkeypatch.setattr("armillary.lab.study.design.RATES", (1e-3, 2e-3))
    study = Study("gate", "smoke", text, tmp_path, 2, "cpu", reports.append)
    study.run(["layernorm"])
    assert [line.split("; ")[1].split(", ")[0] for line in reports] == [f"{i} of 6 runs" for i in range(1, 7)]
    assert reports[-1].endswith("about 0 s left")
    assert study._missing(GATE[:1]) == 0
    # The two arms that take over a rate have two paired runs each.
    assert study._missing(GATE) == 4


def test_every_preset_is_a_size_that_every_study_fits():
    for preset in PRESETS.values():
        assert preset.seeds >= 3, "fewer seeds give no interval"
        for name, arms in STUDIES.items():
            size = size_of(name, preset.size)
            assert size.name == preset.size
            widest = max((arm.n_heads or size.heads) * (arm.head_width or size.width // size.heads) for arm in arms)
            assert widest <= 384 and all(arm.feed_forward(size) > 0 for arm in arms)


# ---- verdicts -------------------------------------------------------------------------------------------


def rows(losses: dict[str, list[float | None]]) -> list[dict]:
    return [
        {"arm": arm, "seed": seed, "loss": loss, "tuning": False}
        for arm, values in losses.items()
        for seed, loss in enumerate(values)
    ]


def test_differences_are_paired_t():
    draw = np.random.default_rng(0)
    base, arm = draw.normal(3, 0.1, 8), draw.normal(3.05, 0.1, 8)
    (comparison,) = compare(rows({"base": base.tolist(), "arm": arm.tolist()}), "base")
    test = stats.ttest_rel(arm, base)
    assert comparison.p == pytest.approx(test.pvalue)
    assert (comparison.low, comparison.high) == pytest.approx(tuple(test.confidence_interval()))


def test_equivalence_is_two_one_sided_tests():
    draw = np.random.default_rng(1)
    base = draw.normal(3, 0.1, 10)
    arm = base + draw.normal(0.001, 0.004, 10)
    (comparison,) = compare(rows({"base": base.tolist(), "arm": arm.tolist()}), "base")
    sides = [
        stats.ttest_1samp(arm - base, limit, alternative=side).pvalue
        for limit, side in ((-0.01, "greater"), (0.01, "less"))
    ]
    assert comparison.equivalence_p == pytest.approx(max(sides))
    assert comparison.outcome == "equivalent"


def test_identical_twins_are_not_told_apart():
    """Eight arms without any effect: in at most 5 % of studies, give or take, is one called better or worse."""
    draw, wrong = np.random.default_rng(2), 0
    for _ in range(200):
        base = draw.normal(3, 0.05, 8)
        arms = {f"arm {i}": (base + draw.normal(0, 0.02, 8)).tolist() for i in range(8)}
        outcomes = [c.outcome for c in compare(rows({"base": base.tolist(), **arms}), "base")]
        wrong += any(outcome in ("better", "worse") for outcome in outcomes)
    # Three standard errors above 5 %.
    assert wrong / 200 < 0.097


@pytest.mark.parametrize(("shift", "outcome"), [(-0.05, "better"), (0.05, "worse"), (0.0, "equivalent")])
def test_planted_differences_come_back(shift, outcome):
    draw = np.random.default_rng(3)
    base = draw.normal(3, 0.1, 8)
    arm = base + shift + draw.normal(0, 0.005, 8)
    (comparison,) = compare(rows({"base": base.tolist(), "arm": arm.tolist()}), "base")
    assert comparison.outcome == outcome
    assert comparison.seeds_needed == 0


@pytest.mark.parametrize(("shift", "spread"), [(0.0, 0.02), (0.004, 0.01), (0.03, 0.05)])
def test_noise_says_how_many_seeds_it_needs(shift, spread):
    """With the number it says, about 80 % of studies decide, if what was seen is the truth."""
    draw = np.random.default_rng(4)
    seen = draw.normal(0, 1, 8)
    seen = shift + spread * (seen - seen.mean()) / seen.std(ddof=1)
    (comparison,) = compare(rows({"base": [3.0] * 8, "arm": (3 + seen).tolist()}), "base")
    assert comparison.outcome == "undecided"
    n = comparison.seeds_needed
    assert n > 8
    decided = 0
    for _ in range(300):
        again = rows({"base": [3.0] * n, "arm": (3 + draw.normal(shift, spread, n)).tolist()})
        decided += compare(again, "base")[0].outcome != "undecided"
    # Three standard errors of a share of 300, and the normal approximation; two tests can miss at once at shift 0.
    assert (0.6 if shift == 0 else 0.72) < decided / 300 < 0.93


def test_divergence_is_counted_not_averaged():
    comparison, other = compare(
        rows({"base": [3.0] * 5, "wild": [None] * 5, "once": [3.2, None, 3.2, 3.2, 3.2]}), "base"
    )
    assert (comparison.outcome, comparison.diverged, comparison.seeds) == ("diverged", 5, 0)
    assert (other.outcome, other.diverged, other.seeds) == ("worse", 1, 4)


def test_a_study_from_the_command_line(text, tmp_path):
    asked = ("lab", "run", "gate", "--text", text.source, "--out", tmp_path / "study", "--seeds", 1)
    refused("has no arm 'identical twins'; did you mean 'identical twin'", *asked, "--arms", "identical twins")
    refused("no preset 'gup'; did you mean 'gpu'", *asked, "--preset", "gup")
    refused("no size 'xss'; did you mean", *asked, "--size", "xss")
    refused("--jobs 0 leaves nothing to run", *asked, "--jobs", 0)
    refused("no study 'gat'; did you mean 'gate'", "lab", "run", "gat", "--out", tmp_path / "study")
    refused("--arms chooses arms of one study", "lab", "run", "all", "--arms", "sphere", "--out", tmp_path / "study")
    done = run(*asked, "--arms", "layernorm,identical twin", "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    assert "identical twin" in done.stdout and "undecided" in done.stdout
    assert "no difference of losses means anything" in done.stdout
    assert "of 12 runs, about" in done.stderr


def test_all_studies_go_into_folders_of_their_own(text, tmp_path, monkeypatch):
    monkeypatch.setattr("armillary.lab.study.design.RATES", (1e-3,))
    for name in list(STUDIES):
        monkeypatch.delitem(STUDIES, name)
    monkeypatch.setitem(STUDIES, "gate", GATE[:1])
    monkeypatch.setitem(STUDIES, "implicit", arms_of("gate"))
    done = run("lab", "run", "all", "--out", tmp_path, "--seeds", 1, "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    assert "study 2 of 2: implicit" in done.stderr
    assert "lab.implicit is undecided" in " ".join(done.stdout.split())
    assert [len(read_runs(tmp_path / name)) for name in ("gate", "implicit")] == [3, 3]
    assert json.loads((tmp_path / "gate" / "manifest.json").read_text())["text"] == data.Text.of(SAMPLE).sha256


# ---- what a study found ---------------------------------------------------------------------------------


def written(folder, arms: dict[str, list[float | None]], rates: dict[str, dict[float, float | None]]) -> None:
    """A study's folder with these paired losses and these losses by learning rate."""
    manifest = {
        "study": "norms",
        "size": {"name": "xs", "layers": 4, "width": 192, "tokens": 1000},
        "arms": {arm: {"prediction": f"prediction of {arm} <b>", "norm": arm} for arm in rates},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    common = {"parameters": 7, "seconds": 2.0, "size": "xs", "study": "norms"}
    for arm, by_rate in rates.items():
        for rate, loss in by_rate.items():
            row = {"key": f"{arm}/{rate}", "arm": arm, "rate": rate, "seed": 1000, "tuning": True, "curve": []}
            queue.append(folder / "runs.jsonl", {**common, **row, "loss": loss, "best": loss, "diverged": loss is None})
        best = min(by_rate, key=lambda rate: math.inf if by_rate[rate] is None else by_rate[rate])
        for seed, loss in enumerate(arms.get(arm, [])):
            curve = [[1, None if loss is None else loss + 1], [2, loss]]
            row = {"key": f"{arm}/p/{seed}", "arm": arm, "rate": best, "seed": seed, "tuning": False, "curve": curve}
            queue.append(folder / "runs.jsonl", {**common, **row, "loss": loss, "best": loss, "diverged": loss is None})


def test_a_folder_says_what_its_study_found(tmp_path):
    base = [3.0, 3.1, 3.2, 3.05]
    written(
        tmp_path,
        {"layernorm": base, "dyt": [x + 0.05 + 0.001 * i for i, x in enumerate(base)]},
        {
            "layernorm": {1e-3: 3.3, 2e-3: 3.02, 4e-3: 3.0, 8e-3: 3.05, 1.6e-2: None},
            "dyt": {1e-3: 3.1, 2e-3: 3.4},
            "sphere": {1e-3: None, 2e-3: None},
        },
    )
    study = outcome(tmp_path)
    assert [arm.usable for arm in study.arms] == [(2e-3, 4e-3, 8e-3), (1e-3,), ()]
    assert study.reference.breadth == pytest.approx(4)
    assert study.reference.sensitivity == pytest.approx((0.3 + 0.02 + 0 + 0.05 + math.log(8192) - 3) / 5)
    assert math.isnan(study.arms[2].sensitivity)
    assert study.compared("dyt").outcome == "worse"
    assert study.pairing("dyt") > 0.99
    text = study_text(study, 200)
    assert "reference" in text and "worse" in text and "diverged" in text
    assert "prediction of sphere" in text
    page = save_study(study, tmp_path / "study.html").read_text()
    assert "1 worse" in page and "prediction of sphere <b>" not in page
    assert "lab.norms is supported" in page, "no arm is better"
    assert re.findall(r'<article id="(\w+)"', page) == ["differences", "curves", "rates"]
    assert "armillary lab run norms --size xs --seeds 4" in page
    assert "No arm is found better than layernorm, which ends at 3.087 nats per token" in page
    assert page.count('id="part-') == 3 and "http" not in re.findall(r"<main.*?</main>", page, re.DOTALL)[0]
    assert save_study(study, tmp_path / "study.csv").read_text().count("\n") == 4
    drawn = save_study(study, tmp_path / "study.svg").read_text()
    assert ">dyt</text>" in drawn and "left is better" in drawn


def test_figures_show_every_pair_and_the_interval(tmp_path):
    base = [3.0, 3.1, 3.2, 3.05]
    written(tmp_path, {"layernorm": base, "dyt": [x + 0.02 for x in base], "far": [x + 2 for x in base]},
            {"layernorm": {1e-3: 3.0}, "dyt": {1e-3: 3.0}, "far": {1e-3: 3.0}})  # fmt: skip
    study = outcome(tmp_path)
    assert ">far (+2.00)</text>" in save_study(study, tmp_path / "study.svg").read_text()
    drawn = figure_of(study, (FOREST, PAIRS, CURVES, GAPS), "title", "caption")
    forest, *pairs = (trace for trace in drawn.data if trace.mode in ("markers+text", "markers"))
    assert forest.x[0] == pytest.approx(study.compared("dyt").difference)
    assert forest.text[1] == "+2.00" and forest.marker.symbol[1] == "triangle-right", "beyond the axis, with its number"
    assert [len(trace.x) for trace in pairs] == [4, 4]
    assert list(pairs[0].x) == pytest.approx([0.02] * 4)
    gaps = [trace for trace in drawn.data if trace.mode == "lines+markers" and trace.yaxis == "y4"]
    assert list(gaps[0].y) == pytest.approx([0.02, 0.02])
    assert sum(bool(trace.showlegend) for trace in drawn.data) == 3, "each arm once"


def test_a_study_of_rates_alone_has_a_page(tmp_path):
    written(tmp_path, {}, {"layernorm": {1e-3: 3.0, 2e-3: None}, "dyt": {1e-3: 3.2, 2e-3: 3.3}})
    page = save_study(outcome(tmp_path), tmp_path / "study.html").read_text()
    assert re.findall(r'<article id="(\w+)"', page) == ["rates"]
    assert "tuning runs only" in page and "--seeds" not in page
    assert "learning rate" in save_study(outcome(tmp_path), tmp_path / "study.svg").read_text()


def test_a_folder_without_a_study_is_refused(tmp_path):
    with pytest.raises(ArmillaryError, match="holds no study"):
        outcome(tmp_path)
    (tmp_path / "manifest.json").write_text('{"study": 3}')
    with pytest.raises(ArmillaryError, match="damaged"):
        outcome(tmp_path)
    (tmp_path / "manifest.json").write_text('{"study": "gate", "arms": {"a": {"prediction": ""}}}')
    with pytest.raises(ArmillaryError, match="no finished run"):
        outcome(tmp_path)


# ---- a task that overlap solves -------------------------------------------------------------------------


def test_overlap_solves_what_ordinary_heads_of_the_same_width_do_not():
    """Heads of one axis can only find the largest or the smallest key; heads that share all axes find any."""
    task = LookupTask(heads=8, width=8, keys=16, pairs=8, steps=500)
    ordinary, shared = (task.accuracy(name) for name in ("block", "uniform"))
    assert ordinary < 0.9
    assert shared > 0.95


def test_the_answer_to_a_lookup_is_the_value_of_its_key():
    keys, values, answers = LookupTask().rows(50, torch.Generator().manual_seed(1))
    for row, value, answer in zip(keys.tolist(), values.tolist(), answers.tolist(), strict=True):
        assert len(set(row[:-1])) == len(row) - 1
        assert value[row.index(row[-1])] == answer
        assert value[-1] == LookupTask().values

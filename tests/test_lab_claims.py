"""The laboratory's claims: each is decided both ways on planted runs, and none belongs to a survey."""

import json
import runpy
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from command import refused, works

from armillary.errors import ArmillaryError
from armillary.lab.study.arms import STUDIES, arms_of
from armillary.lab.study.conclusions import outcome as conclusions
from armillary.lab.study.conclusions.decisions import StudyEvidence
from armillary.lab.study.conclusions.lab_claims import LAB_CLAIMS
from armillary.lab.study.conclusions.outcome import ArmOutcome, StudyOutcome, pooled
from armillary.lab.study.conclusions.paired_runs import at_last_rate, compare
from armillary.lab.study.conclusions.stored_verdicts import PATH, stored
from armillary.lab.study.design import EFFECT, Arm
from armillary.lab.study.generalise import GENERALISE, agreement, carries_over
from armillary.probes import PROBES, choose
from armillary.views.text.lab.lab_claims import lab_list_text

CLAIMS = {claim.id: claim for claim in LAB_CLAIMS}
DOCS = Path(__file__).parent.parent / "docs"
# The spread of a paired difference, well below the smallest effect.
SPREAD = 0.004


def planted(
    study: str, effects: dict[str, float | None], seeds: int = 8, spread: float = SPREAD, **more
) -> StudyEvidence:
    """Runs of every arm whose loss differs from the reference's by its effect (0 unless given; None diverges).

    `more` maps further numbers of a run to such effects.
    """
    draw = np.random.default_rng(5)
    reference, *others = (arm.name for arm in arms_of(study))
    assert set(effects) <= {reference, *others}
    base = draw.normal(4, 0.05, seeds)
    rows = []
    for arm in (reference, *others):
        effect = effects.get(arm, 0.0)
        for seed in range(seeds):
            noise = 0.0 if arm == reference else draw.normal(0, spread)
            loss = None if effect is None else base[seed] + effect + noise
            row = {"arm": arm, "seed": seed, "tuning": False, "loss": loss, "train": None if loss is None else loss - 1}
            for name, by_arm in more.items():
                row[name] = 1 + by_arm.get(arm, 0.0) + draw.normal(0, spread)
            if "gap" in row and loss is not None:
                row["train"] = loss - row.pop("gap")
            rows.append(row)
    arms = {arm.name: asdict(arm) for arm in arms_of(study)}
    return StudyEvidence(reference, rows, arms)


WORSE, BETTER = 0.03, -0.03
SYMMETRISER = next(arm.name for arm in arms_of("symmetriser") if arm.norm == "symmetriser")
INVERTIBLE = ("leaky", "leaky 0.1", "wave", "signed root")
# The identity is as bad, so that none brings half of GELU's gain over it.
KEPT = {**dict.fromkeys(INVERTIBLE, WORSE), "identity": WORSE}
FLOOR, NORM, LOUD_NORM = "identity, no norm", "identity, norm", "identity, norm, loud"
LOUD_FLOOR = f"{FLOOR}, loud"
FLOORS = {FLOOR: 1.0, LOUD_FLOOR: 1.0, "gelu, norm, loud": 0.1}
CASES = [
    ("lab.softheads", {"triangular": BETTER}, "supported"),
    ("lab.softheads", {"triangular": BETTER, "random membership": BETTER}, "qualified"),
    ("lab.softheads", {}, "refuted"),
    ("lab.softheads", {"triangular": WORSE, "raised sine": None}, "refuted"),
    ("lab.symmetriser", {}, "supported"),
    ("lab.symmetriser", {SYMMETRISER: WORSE}, "qualified"),
    ("lab.rank", {"6 heads of 4": WORSE, "6 heads of 16": WORSE}, "supported"),
    ("lab.rank", {"6 heads of 4": WORSE}, "qualified"),
    ("lab.rank", {}, "refuted"),
    ("lab.norms", {}, "supported"),
    ("lab.norms", {"dyt": None, "per-head": WORSE}, "supported"),
    ("lab.norms", {"sphere": BETTER}, "refuted"),
    ("lab.implicit", {**FLOORS, NORM: 0.2, LOUD_NORM: 1.0}, "supported"),
    ("lab.implicit", {**FLOORS, NORM: 0.8, LOUD_NORM: 1.0}, "qualified"),
    ("lab.implicit", {**FLOORS, NORM: 1.0, LOUD_NORM: 1.0}, "refuted"),
    ("lab.implicit", {**FLOORS, NORM: 0.5, LOUD_NORM: 0.5}, "undecided"),
    # Every arm has the start that suits it.
    ("lab.implicit", {**FLOORS, NORM: 0.8, LOUD_NORM: 0.2}, "supported"),
    ("lab.implicit", {FLOOR: 1.0, LOUD_FLOOR: 0.2, NORM: 0.2, LOUD_NORM: 0.2}, "refuted"),
    ("lab.implicit", {**FLOORS, NORM: 0.6, LOUD_NORM: 1.0, "gelu, norm, loud": -1.0}, "qualified"),
    ("lab.activations", KEPT, "supported"),
    ("lab.activations", {**KEPT, "relu": WORSE}, "qualified"),
    ("lab.activations", {**KEPT, "wave": None}, "supported"),
    ("lab.activations", {"leaky": WORSE, "wave": WORSE}, "refuted"),
    # One that bends like ReLU and can be inverted is worse, and brings most of the gain.
    ("lab.activations", {**dict.fromkeys(KEPT, 10 * WORSE), "leaky 0.1": WORSE}, "qualified"),
    # Half of the gain, give or take: whether it is the bend or the loss of information is open.
    ("lab.activations", {**dict.fromkeys(KEPT, 2 * WORSE), "leaky 0.1": WORSE}, "undecided"),
    ("lab.metric", {"cosine": BETTER}, "supported"),
    ("lab.metric", {"cosine": BETTER, "distance": BETTER}, "qualified"),
    ("lab.metric", {"cosine": WORSE}, "refuted"),
    # Between equivalent and worse, and surely not better.
    ("lab.metric", {"cosine": EFFECT}, "refuted"),
    ("lab.metric", {"cosine": -EFFECT}, "undecided"),
    ("lab.rank", {"6 heads of 4": WORSE, "6 heads of 16": -EFFECT}, "qualified"),
    ("lab.rank", {"6 heads of 4": WORSE, "6 heads of 16": EFFECT}, "undecided"),
    ("lab.norms", {"rmsnorm": EFFECT}, "supported"),
    ("lab.norms", {"rmsnorm": -EFFECT}, "undecided"),
]


@pytest.mark.parametrize(("claim", "effects", "verdict"), CASES)
def test_planted_runs_are_decided(claim, effects, verdict):
    entry = CLAIMS[claim]
    assert entry.decide(planted(entry.study, effects)).verdict == verdict


def test_the_symmetriser_that_is_layernorm_decides_nothing(monkeypatch):
    """All heads hear each other: equivalent by definition, in any study."""
    whole = Arm("all", "symmetriser", {"messages": "all"})
    monkeypatch.setitem(STUDIES, "symmetriser", (*STUDIES["symmetriser"][:2], whole))
    entry, other = CLAIMS["lab.symmetriser"], STUDIES["symmetriser"][1].name
    assert entry.decide(planted(entry.study, {other: WORSE})).verdict == "refuted"
    assert entry.decide(planted(entry.study, {"all": WORSE})).verdict == "supported"


def test_an_arm_that_is_still_to_be_run_leaves_the_claim_open_and_one_that_diverged_does_not():
    evidence = planted("norms", {})
    rows = [row for row in evidence.rows if row["arm"] != "dyt"]
    decide = CLAIMS["lab.norms"].decide
    assert decide(StudyEvidence("layernorm", rows, evidence.arms)).verdict == "undecided"
    tuned = {"arm": "dyt", "tuning": True, "loss": None, "diverged": True, "seed": 1000}
    closed = decide(StudyEvidence("layernorm", [*rows, tuned], evidence.arms))
    assert closed.verdict == "supported" and "Diverged: dyt" in closed.reading


def test_a_floor_that_was_not_run_with_both_starts_leaves_the_norm_undecided():
    evidence = planted("implicit", {**FLOORS, NORM: 0.2, LOUD_NORM: 1.0})
    rows = [row for row in evidence.rows if row["arm"] != LOUD_FLOOR]
    decision = CLAIMS["lab.implicit"].decide(StudyEvidence(evidence.reference, rows, evidence.arms))
    assert decision.verdict == "undecided"
    assert f"Still to be run: {LOUD_FLOOR}." in decision.reading


def test_a_slower_gain_is_no_other_norm():
    assert CLAIMS["lab.norms"].decide(planted("norms", {"slow gain": BETTER})).verdict == "supported"


def test_all_symmetrisers_worse_refute():
    entry = CLAIMS["lab.symmetriser"]
    arms = [arm.name for arm in arms_of(entry.study) if arm.norm == "symmetriser"]
    assert entry.decide(planted(entry.study, dict.fromkeys(arms, WORSE))).verdict == "refuted"
    assert entry.decide(planted(entry.study, dict.fromkeys(arms))).verdict == "refuted"


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ({"gap": {"blocks": BETTER}}, "supported"),
        ({"noisy": {"blocks": BETTER}}, "supported"),
        ({"noisy": {"blocks": BETTER}, "dropped": {"blocks": WORSE}}, "qualified"),
        ({}, "refuted"),
        ({"dropped": {"blocks": WORSE}}, "refuted"),
    ],
)
def test_the_misfit_is_judged_by_gap_and_robustness(effects, verdict):
    measures = {"gap": {}, "dropped": {}, "noisy": {}} | effects
    assert CLAIMS["lab.mismatch"].decide(planted("mismatch", {}, **measures)).verdict == verdict


@pytest.mark.parametrize("claim", LAB_CLAIMS, ids=lambda claim: claim.id)
def test_noise_decides_nothing_and_says_how_many_seeds_would(claim):
    measures = {"gap": {}, "dropped": {}, "noisy": {}} if claim.study == "mismatch" else {}
    # Well beyond the smallest effect: at five times that, 'not worse' is shown now and then, and rightly.
    decision = claim.decide(planted(claim.study, {}, spread=50 * EFFECT, **measures))
    assert decision.verdict == "undecided"
    assert "seeds would decide" in decision.reading


@pytest.mark.parametrize("claim", LAB_CLAIMS, ids=lambda claim: claim.id)
def test_without_runs_nothing_is_decided(claim):
    evidence = planted(claim.study, {})
    empty = StudyEvidence(evidence.reference, [], evidence.arms)
    assert claim.decide(empty).verdict == "undecided"


def test_arms_without_runs_are_named_after_what_was_seen():
    evidence = planted("metric", {})
    some = StudyEvidence(evidence.reference, [row for row in evidence.rows if row["arm"] != "distance"], evidence.arms)
    reading = CLAIMS["lab.metric"].decide(some).reading
    assert reading.startswith("Equivalent: ") and reading.endswith(" Without paired runs: distance.")


def test_identical_twins_do_not_decide_a_claim_wrongly():
    """No arm differs: 'some arm is better' is refuted or undecided, in all but 5 % of studies, give or take."""
    wrong, draw = 0, np.random.default_rng(6)
    evidence = planted("metric", {})
    for _ in range(200):
        rows = [{**row, "loss": 4 + draw.normal(0, 0.02)} for row in evidence.rows]
        wrong += CLAIMS["lab.metric"].decide(StudyEvidence("dot", rows, {})).verdict in ("supported", "qualified")
    # Three standard errors above 5 %.
    assert wrong / 200 < 0.097


@pytest.mark.parametrize("entry", LAB_CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_is_complete_and_no_part_of_a_survey(entry):
    claim = entry.claim
    assert all((claim.statement, claim.source, claim.question, claim.definition, claim.control, claim.rule))
    assert f"{EFFECT:g} nats" in claim.rule
    assert entry.study in STUDIES
    assert claim.id not in {probe.claim.id for probe in PROBES} | {probe.claim.id for probe in choose("all")}
    with pytest.raises(ArmillaryError, match="decided by training models, not by a survey"):
        choose(claim.id)
    shown = works("claims", claim.id).stdout
    assert "definition" in shown and "rule" in shown and entry.command in " ".join(shown.split())


def _study(name, evidence, size):
    reference = ArmOutcome(evidence.reference, "", {}, None, {}, 0.0, 0.0, 0, (), 0.0)
    manifest = {"size": {"name": size}, "arms": evidence.arms}
    return StudyOutcome(name, manifest, (reference,), (), tuple(evidence.rows))


def test_a_worse_arm_of_another_study_qualifies_a_claim():
    decide = CLAIMS["lab.symmetriser"].decide
    ours = _study("symmetriser", planted("symmetriser", {}), "xs")
    theirs = _study("norms", planted("norms", {"symmetriser ring": WORSE}), "xs")
    assert decide(pooled([ours])).verdict == "supported"
    decision = decide(pooled([ours, theirs]))
    assert decision.verdict == "qualified" and "Worse: symmetriser ring" in decision.reading
    # The reference is an arm of both, and is counted once.
    rows = pooled([ours, theirs]).rows
    assert len({(row["arm"], row["seed"], row["tuning"], row.get("rate")) for row in rows}) == len(rows)


def test_folders_are_judged_together(monkeypatch):
    studies = {
        "own": _study("symmetriser", planted("symmetriser", {}), "xs"),
        "norms": _study("norms", planted("norms", {"symmetriser ring": WORSE}), "xs"),
        "metric": _study("metric", planted("metric", {"angle": BETTER}), "xs"),
        "larger": _study("norms", planted("norms", {}), "s"),
    }
    monkeypatch.setattr(conclusions, "outcome", lambda folder: studies[folder.name])
    judged = {
        names: conclusions.together([Path(name) for name in names]).verdicts().get("lab.symmetriser")
        for names in (("own",), ("own", "norms"), ("norms", "own"))
    }
    assert judged["own",].verdict == "supported"
    assert judged["own", "norms"] == judged["norms", "own"]
    assert judged["own", "norms"].verdict == "qualified"
    assert "Worse: symmetriser ring" in judged["own", "norms"].reading
    with pytest.raises(ArmillaryError, match=r"own has size 'xs' and larger has 's'.* cannot be compared"):
        conclusions.together([Path("own"), Path("larger")])
    with pytest.raises(ArmillaryError, match="reference arm 'layernorm' and metric has 'dot'"):
        conclusions.together([Path("own"), Path("metric")])
    with pytest.raises(ArmillaryError, match="several of the folders hold the study symmetriser"):
        conclusions.together([Path("own"), Path("own")])


@pytest.mark.parametrize(("size", "verdict"), [("smoke", "undecided"), ("xs", "supported")])
def test_a_size_that_tests_the_machinery_decides_nothing(size, verdict):
    evidence = planted("metric", {"angle": BETTER})
    study = _study("metric", evidence, size)
    assert study.verdicts()["lab.metric"].verdict == verdict


def test_claims_are_listed_with_their_verdicts():
    listed = works("claims").stdout
    assert all(claim in listed for claim in CLAIMS)
    assert "no part of a survey" in listed
    for verdict in stored():
        assert verdict.verdict in works("claims", verdict.claim).stdout
    with pytest.raises(ArmillaryError, match=r"chapter G .The laboratory. is decided by training"):
        choose("G")
    refused("did you mean 'lab.norms'", "claims", "lab.norm")


def test_a_claim_without_runs_says_so(monkeypatch):
    listed = lab_list_text(LAB_CLAIMS, width=300)
    assert listed.count("Not run yet.") == len(CLAIMS.keys() - {verdict.claim for verdict in stored()})
    monkeypatch.setattr("armillary.views.text.lab.lab_claims.stored", tuple)
    assert lab_list_text(LAB_CLAIMS, width=300).count("Not run yet.") == len(CLAIMS)


def test_the_shipped_verdicts_follow_from_the_stored_runs():
    studies = runpy.run_path(str(DOCS / "studies.py"))
    assert json.loads(PATH.read_text("utf-8")) == json.loads(studies["stored_json"](studies["stored"]())), (
        "run python docs/studies.py"
    )
    assert {verdict.claim for verdict in stored()} <= {*CLAIMS, GENERALISE.id}


KINDS = ("llama", "bert", "lstm", "mamba2", "vit", "mixer", "convnext")


def surveyed(differs=lambda kind, claim: False, seeds: int = 3, claims: int = 20, holds=lambda claim: claim % 2 == 0):
    """Verdicts of all kinds that are GPT's but where `differs`."""
    rows = []
    for kind in ("gpt", *KINDS):
        for claim in range(claims):
            side = holds(claim) != (kind != "gpt" and differs(kind, claim))
            for seed in range(seeds):
                verdict = ("supported" if seed else "qualified") if side else "refuted"
                rows.append(
                    {"arm": kind, "seed": seed, "claim": f"c{claim}", "claim_kind": "learned", "verdict": verdict}
                )
    return rows


def generalised(rows) -> str:
    return carries_over(StudyEvidence("gpt", rows, {})).verdict


def test_verdicts_carry_over_or_not():
    coin = np.random.default_rng(3).random((len(KINDS), 20)) < 0.5
    assert generalised(surveyed()) == "supported"
    assert generalised(surveyed(lambda kind, claim: kind == "mamba2" and claim < 12)) == "qualified"
    assert generalised(surveyed(lambda kind, claim: coin[KINDS.index(kind), claim])) == "refuted"
    assert generalised(surveyed(lambda kind, claim: claim % 4 == 1)) == "undecided"


def test_what_every_model_shows_tells_nothing():
    """If all claims hold everywhere, verdicts are alike by chance; claims by definition do not count."""
    assert generalised(surveyed(holds=lambda claim: True)) == "undecided"
    certain = [{**row, "claim_kind": "definition"} for row in surveyed()]
    assert agreement(certain).claims == ()
    assert generalised(certain) == "undecided"


def test_one_seed_or_seeds_that_disagree_decide_nothing():
    assert generalised(surveyed(seeds=1)) == "undecided"
    torn = [{**row, "verdict": ("supported", "refuted", "undecided")[row["seed"]]} for row in surveyed()]
    assert generalised(torn) == "undecided"


def test_the_reading_names_what_does_not_carry_over():
    verdict = carries_over(StudyEvidence("gpt", surveyed(lambda kind, claim: claim == 3), {}))
    assert verdict.verdict == "supported" and verdict.reading.endswith("19 of 20 claims carry over; not c3.")
    shown = works("claims", "lab.generalise").stdout
    assert "python bench/generalise.py" in shown and "by chance" not in GENERALISE.claim.rule
    refused("decided by training models", "survey", "builtin:gpt", "--claims", "lab.generalise")


def test_not_better_is_rarely_said_of_an_arm_that_is_better_by_the_smallest_effect():
    """At the limit itself the one-sided test errs most: in 5 % of studies at most, give or take."""
    wrong, draw = 0, np.random.default_rng(8)
    for _ in range(200):
        base = draw.normal(4, 0.05, 8)
        rows = [{"arm": "a", "seed": i, "tuning": False, "loss": base[i]} for i in range(8)]
        losses = base - EFFECT + draw.normal(0, 0.01, 8)
        rows += [{"arm": "b", "seed": i, "tuning": False, "loss": losses[i]} for i in range(8)]
        wrong += compare(rows, "a")[0].not_better
    assert wrong <= 20


def test_an_arm_that_was_paired_at_another_rate_than_its_best_decides_nothing():
    evidence = planted("rank", {"6 heads of 4": WORSE, "6 heads of 16": WORSE})
    for row in evidence.rows:
        row["rate"] = 4e-3
    losses = {4e-3: 4.0, 8e-3: 4.0, 1.6e-2: 4.3}
    tuned = [
        {"arm": arm, "seed": 1000, "tuning": True, "rate": rate, "loss": loss, "diverged": False}
        for arm, best in (("6 heads of 4", 4e-3), ("6 heads of 16", 8e-3))
        for rate, loss in {**losses, best: 3.9}.items()
    ]
    decide = CLAIMS["lab.rank"].decide
    assert decide(StudyEvidence(evidence.reference, [*evidence.rows, *tuned], evidence.arms)).verdict == "undecided"
    for row in evidence.rows:
        row["rate"] = 8e-3 if row["arm"] == "6 heads of 16" else 4e-3
    assert decide(StudyEvidence(evidence.reference, [*evidence.rows, *tuned], evidence.arms)).verdict == "supported"


def test_paired_runs_at_a_rate_that_an_arm_has_no_longer_are_set_aside():
    first = [{"arm": "a", "seed": i, "tuning": False, "rate": 1e-3, "loss": 4.0} for i in range(3)]
    later = [{"arm": "a", "seed": i, "tuning": False, "rate": 2e-3, "loss": 3.0} for i in range(2)]
    other = [{"arm": "b", "seed": 0, "tuning": False, "rate": 1e-3, "loss": 3.5}]
    tuning = [{"arm": "a", "seed": 1000, "tuning": True, "rate": 1e-3, "loss": 4.0}]
    assert at_last_rate([*tuning, *first, *other, *later]) == [*tuning, *other, *later]

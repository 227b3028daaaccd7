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
from armillary.lab.study.claims import LAB_CLAIMS
from armillary.lab.study.decisions import Evidence
from armillary.lab.study.design import EFFECT, Arm
from armillary.lab.study.generalise import GENERALISE, agreement, carries_over
from armillary.lab.study.stored import PATH, stored
from armillary.probes import PROBES, choose
from armillary.views.text.lab_claims import lab_list_text

CLAIMS = {claim.id: claim for claim in LAB_CLAIMS}
DOCS = Path(__file__).parent.parent / "docs"
# The spread of a paired difference, well below the smallest effect.
SPREAD = 0.004


def planted(study: str, effects: dict[str, float | None], seeds: int = 8, spread: float = SPREAD, **more) -> Evidence:
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
    return Evidence(reference, rows, arms)


WORSE, BETTER = 0.03, -0.03
SYMMETRISER = next(arm.name for arm in arms_of("symmetriser") if arm.norm == "symmetriser")
INVERTIBLE = ("leaky", "wave", "signed root")
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
    ("lab.activations", dict.fromkeys(INVERTIBLE, WORSE), "supported"),
    ("lab.activations", {**dict.fromkeys(INVERTIBLE, WORSE), "relu": WORSE}, "qualified"),
    ("lab.activations", {"leaky": WORSE, "wave": WORSE}, "refuted"),
    ("lab.metric", {"cosine": BETTER}, "supported"),
    ("lab.metric", {"cosine": BETTER, "distance": BETTER}, "qualified"),
    ("lab.metric", {"cosine": WORSE}, "refuted"),
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
    assert decide(Evidence("layernorm", rows, evidence.arms)).verdict == "undecided"
    tuned = {"arm": "dyt", "tuning": True, "loss": None, "diverged": True, "seed": 1000}
    closed = decide(Evidence("layernorm", [*rows, tuned], evidence.arms))
    assert closed.verdict == "supported" and "Diverged: dyt" in closed.reading


def test_a_floor_that_was_not_run_with_both_starts_leaves_the_norm_undecided():
    evidence = planted("implicit", {**FLOORS, NORM: 0.2, LOUD_NORM: 1.0})
    rows = [row for row in evidence.rows if row["arm"] != LOUD_FLOOR]
    decision = CLAIMS["lab.implicit"].decide(Evidence(evidence.reference, rows, evidence.arms))
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
    decision = claim.decide(planted(claim.study, {}, spread=5 * EFFECT, **measures))
    assert decision.verdict == "undecided"
    assert "seeds would decide" in decision.reading


@pytest.mark.parametrize("claim", LAB_CLAIMS, ids=lambda claim: claim.id)
def test_without_runs_nothing_is_decided(claim):
    evidence = planted(claim.study, {})
    empty = Evidence(evidence.reference, [], evidence.arms)
    assert claim.decide(empty).verdict == "undecided"


def test_identical_twins_do_not_decide_a_claim_wrongly():
    """No arm differs: 'some arm is better' is refuted or undecided, in all but 5 % of studies, give or take."""
    wrong, draw = 0, np.random.default_rng(6)
    evidence = planted("metric", {})
    for _ in range(200):
        rows = [{**row, "loss": 4 + draw.normal(0, 0.02)} for row in evidence.rows]
        wrong += CLAIMS["lab.metric"].decide(Evidence("dot", rows, {})).verdict in ("supported", "qualified")
    # Three standard errors above 5 %.
    assert wrong / 200 < 0.097


@pytest.mark.parametrize("entry", LAB_CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_is_complete_and_no_part_of_a_survey(entry):
    claim = entry.claim
    assert all((claim.statement, claim.source, claim.definition, claim.control, claim.rule))
    assert f"{EFFECT:g} nats" in claim.rule
    assert entry.study in STUDIES
    assert claim.id not in {probe.claim.id for probe in PROBES} | {probe.claim.id for probe in choose("all")}
    with pytest.raises(ArmillaryError, match="decided by training models, not by a survey"):
        choose(claim.id)
    shown = works("claims", claim.id).stdout
    assert "definition" in shown and "rule" in shown and entry.command in " ".join(shown.split())


def test_claims_are_listed_with_their_verdicts():
    listed = works("claims").stdout
    assert all(claim in listed for claim in CLAIMS)
    assert "no part of a survey" in listed
    for said in stored():
        assert said.verdict in works("claims", said.claim).stdout
    with pytest.raises(ArmillaryError, match=r"chapter G .The laboratory. is decided by training"):
        choose("G")
    refused("did you mean 'lab.norms'", "claims", "lab.norm")


def test_a_claim_without_runs_says_so(monkeypatch):
    listed = lab_list_text(LAB_CLAIMS, width=300)
    assert listed.count("Not run yet.") == len(CLAIMS.keys() - {said.claim for said in stored()})
    monkeypatch.setattr("armillary.views.text.lab_claims.stored", tuple)
    assert lab_list_text(LAB_CLAIMS, width=300).count("Not run yet.") == len(CLAIMS)


def test_the_shipped_verdicts_follow_from_the_stored_runs():
    studies = runpy.run_path(str(DOCS / "studies.py"))
    assert json.loads(PATH.read_text("utf-8")) == json.loads(studies["stored_json"](studies["stored"]())), (
        "run python docs/studies.py"
    )
    assert {said.claim for said in stored()} <= {*CLAIMS, GENERALISE.id}


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
    return carries_over(Evidence("gpt", rows, {})).verdict


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
    said = carries_over(Evidence("gpt", surveyed(lambda kind, claim: claim == 3), {}))
    assert said.verdict == "supported" and said.reading.endswith("19 of 20 claims carry over; not c3.")
    shown = works("claims", "lab.generalise").stdout
    assert "python bench/generalise.py" in shown and "by chance" not in GENERALISE.claim.rule
    refused("decided by training models", "survey", "builtin:gpt", "--claims", "lab.generalise")

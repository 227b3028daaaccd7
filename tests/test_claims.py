"""Every probe: its claim is planted both ways, its finding is complete, and poor text decides nothing."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import pytest
import test_attention_words
from planted import bench_of, concluded, evidence
from tiny import tiny

from armillary.anatomy.read import read
from armillary.flow import controls
from armillary.geometry.projection import installed
from armillary.lab.study.conclusions.lab_claims import LAB_CLAIMS
from armillary.lab.study.generalise import GENERALISE
from armillary.probes import PROBES, claims
from armillary.probes.attention.qk_subjects import QuerySubjects
from armillary.probes.attention.two_views import TwoViews
from armillary.probes.instruments.words import WORDS
from armillary.probes.machinery.evidence import MODEL, Evidence
from armillary.probes.machinery.probe import Experimenter, judge, needs_documents
from armillary.probes.machinery.tables import head_names
from armillary.probes.sphere.direction import Direction
from armillary.results import VERDICTS, Why
from armillary.specimens.models.bag import bag, gaussian
from armillary.specimens.models.texts import corpus
from armillary.specimens.planted import CASES
from armillary.views.text.quoting import show_text

VERDICT_WORDS = ("Supported", "Refuted", "Qualified", "Undecided")


def test_every_claim_is_planted_both_ways():
    planted = {(case.planted.claim, case.planted.verdict) for case in CASES}
    for probe in PROBES:
        assert {(probe.claim.id, "supported"), (probe.claim.id, "refuted")} <= planted


def test_every_case_has_a_name_of_its_own_and_is_tried_where_it_matters():
    cases = [case.planted for case in CASES]
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert {1.0, case.matters} <= set(case.strengths) <= {0.1, 0.25, 0.5, 0.75, 1.0}
        assert list(case.strengths) == sorted(set(case.strengths))


def test_texts_of_claims_are_shown_as_they_are():
    """A letter with a combining mark makes a terminal's text one that is isolated by invisible characters."""
    for claim in (probe.claim for probe in PROBES):
        texts = (claim.statement, claim.source, claim.question, claim.definition, claim.control, claim.rule)
        for line in (line for text in texts for line in text.split("\n")):
            assert line and show_text(line) == line, claim.id


def test_every_rule_says_on_lines_of_their_own_what_decides():
    """One line or more of what is compared, then a line for each verdict: nobody has to look for it in a paragraph."""
    for claim in (*(probe.claim for probe in PROBES), *(entry.claim for entry in (*LAB_CLAIMS, GENERALISE))):
        first, *lines = claim.rule.split("\n")
        starts = [line.split()[0] for line in lines]
        assert first.split()[0] not in VERDICT_WORDS, claim.id
        assert {"Supported", "Refuted"} <= set(starts), claim.id


def test_every_question_has_at_most_two_sentences():
    for claim in (*(probe.claim for probe in PROBES), *(entry.claim for entry in (*LAB_CLAIMS, GENERALISE))):
        assert 1 <= len(re.findall(r"[.?!](?:\s|$)", claim.question)) <= 2, claim.id
        assert "?" in claim.question, claim.id


def test_rules_say_what_refutes():
    rules = {probe.claim.id: probe.claim.rule for probe in PROBES}
    refutes = "Refuted if it lies below what untrained models reach, or below the upper end of random partitions."
    assert refutes in rules["heads.regions"]
    assert "wide interval that must not refute" in rules["ffn.write"]
    assert "There are no untrained twins" in rules["heads.emerge"]


def test_earlier_words_of_a_rule_are_no_words_of_today():
    """A rewording names a digest; one that names today's, or a time after the last change, says nothing."""
    for claim in claims():
        words = [entry.before for entry in claim.rewordings]
        assert len({*words, claim.rule_digest}) == len(words) + 1, claim.id
        for entry in claim.rewordings:
            assert re.fullmatch("[0-9a-f]{12}", entry.before) and entry.changes <= len(claim.changes), claim.id
            assert claim.same_rule(entry.before) == (entry.changes == len(claim.changes)), claim.id
        assert claim.same_rule(claim.rule_digest) and not claim.same_rule("0" * 12)


def test_changes_of_a_rule_are_told_in_order():
    for claim in claims():
        dates = [change.date for change in claim.changes]
        assert dates == sorted(dates), claim.id


def test_every_claim_has_an_id_of_its_own():
    assert len({probe.claim.id for probe in PROBES}) == len(PROBES)


@pytest.fixture(scope="module", autouse=True)
def few_twins() -> Iterator[None]:
    """Two untrained models in place of five: what is asked here is whether a finding is whole, not what it says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controls, "TWINS", ((float("inf"), 2),))
        yield


@pytest.fixture(scope="module")
def ordinary(few_twins: None) -> Evidence:
    return evidence(read(tiny("gpt2")), corpus(vocabulary=97))


# Probes that read words need a tokenizer and are tested in test_attention_words and test_second_a; those that make
# passes of their own are tested beside their planted models.
OWN_PASSES = [probe for probe in PROBES if isinstance(probe, Experimenter) and not isinstance(probe, Direction)]
WITHOUT_WORDS = [
    probe
    for probe in PROBES
    if type(probe) not in (*test_attention_words.PROBES, QuerySubjects) and probe not in OWN_PASSES
]


@pytest.mark.parametrize("probe", WITHOUT_WORDS, ids=lambda probe: probe.claim.id)
def test_findings_are_complete(ordinary, probe):
    finding = concluded(probe, ordinary)
    assert finding.verdict in VERDICTS
    assert (finding.why is None) == (finding.verdict != "undecided")
    assert finding.controls
    assert finding.n > 0
    assert finding.quantities
    assert finding.table.rows
    assert len(finding.to_frame()) == len(finding.table.rows)
    assert all(column.meaning for column in finding.table.columns)
    claim = finding.claim
    assert all((claim.statement, claim.source, claim.question, claim.definition, claim.control, claim.rule))
    first = finding.table.columns[0].name
    rows = {
        "site": ordinary.sites,
        "head": head_names(ordinary.anatomy.layers, ordinary.anatomy.n_heads),
        "layer": ["L0", "L1", "L2"],
        "state": list(ordinary[WORDS][MODEL].names),
        "projection": ["pca", "pca, unrolled", *filter(installed, ("pacmap", "umap"))],
        "part": ["cosine", "length", "bias"],
        "stream": ["L0.resid_pre", *(f"L{layer}.resid_post" for layer in range(ordinary.anatomy.layers))],
        "block": ["L0", "L1", "L2"],
    }
    assert [row[0] for row in finding.table.rows] == rows[first]
    low, value, high = finding.statistic.low, finding.statistic.value, finding.statistic.high
    assert math.isnan(low) or low <= value + 1e-9
    assert math.isnan(high) or value <= high + 1e-9


TEXT_PROBES = [probe for probe in PROBES if probe.instruments]


@cache
def planted_text(documents: int, length: int) -> Evidence:
    return evidence(bag(gaussian()), corpus(documents, length))


@cache
def two_words() -> Evidence:
    return evidence(read(tiny("llama")), corpus(12, 30, vocabulary=2))


@pytest.mark.parametrize("probe", TEXT_PROBES, ids=lambda probe: probe.claim.id)
@pytest.mark.parametrize(
    ("shape", "reasons"),
    [
        ((3, 60), {Why.NO_INTERVAL, Why.TOO_LITTLE_TEXT}),
        ((9, 1), {Why.TOO_LITTLE_TEXT}),
        ((2, 2), {Why.TOO_LITTLE_TEXT}),
    ],
    ids=["three documents", "one-token documents", "two short documents"],
)
def test_too_little_text_decides_nothing(probe, shape, reasons):
    gathered = planted_text(*shape)
    finding = judge(probe, gathered, bench_of(gathered))
    if shape == (3, 60) and not needs_documents(probe):
        assert finding.verdict == "supported" and finding.why is None
        return
    assert finding.verdict == "undecided"
    if probe.claim.id == "cycle.isotropy" and shape == (3, 60):
        # Heads of this model write nothing, so that a factor of their write is undefined whatever the text.
        reasons = {Why.UNDEFINED}
    if probe.claim.id in ("others.straight", "others.idpeak") and shape == (3, 60):
        # This model has two blocks, too few for a middle of the depth whatever the text.
        reasons = {Why.NOT_APPLICABLE}
    assert finding.why in reasons


def test_few_documents_leave_undecided_what_draws_intervals_over_them():
    """Four rules draw none: two are exact, one is over pairs of items, one over heads. The gate is what the flag says,
    and it is on unless a probe says otherwise."""
    exempt = {probe.claim.id for probe in PROBES if not needs_documents(probe)}
    assert exempt == {"attention.two-views", "ffn.store", "heads.language", "heads.emerge"}
    gathered = planted_text(3, 60)

    @dataclass(frozen=True)
    class Gated(TwoViews):
        needs_documents: ClassVar[bool] = True

    plain, gated = judge(TwoViews(), gathered), judge(Gated(), gathered)
    assert plain.verdict == "supported" and "documents" not in plain.reading
    assert gated.why is Why.NO_INTERVAL and gated.reading.startswith("An interval needs 8 documents; the text has 3.")


@pytest.mark.parametrize("probe", TEXT_PROBES, ids=lambda probe: probe.claim.id)
def test_text_of_two_words_is_no_error(probe):
    """Degenerate text: nothing may raise, and no zero for lack of words may pass for a law."""
    finding = judge(probe, two_words(), bench_of(two_words()))
    assert finding.verdict in VERDICTS
    if probe.claim.id == "spectrum.two-zeros":
        assert finding.verdict == "undecided"

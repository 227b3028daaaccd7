"""Models that are read in part: claims that need a missing part do not apply, all others do, and none fails."""

from dataclasses import replace

import folders
import pytest
from tiny_kinds import KINDS

import armillary
from armillary.anatomy.read import read
from armillary.probes import PROBES
from armillary.probes.machinery.limits.applicability import NotApplicable, applicable
from armillary.results import Why
from armillary.specimens.models.perturbed import perturbed
from armillary.views.text.ledger import ledger_text


def _out(name: str) -> set[str]:
    """The claims that do not apply to a kind of model."""
    anatomy = read(perturbed(KINDS[name]))
    return {probe.claim.id for probe in PROBES if isinstance(applicable(probe, anatomy), NotApplicable)}


def _claims(*beginnings: str) -> set[str]:
    return {probe.claim.id for probe in PROBES if probe.claim.id.startswith(beginnings)}


HEADS = ("attention.", "qk.", "rank.", "vo.", "heads.")
SPHERE = ("sphere.", "spectrum.", "words.", "stability.drift", "stability.reprojection", "stability.positions")


def test_a_state_space_has_no_heads_and_no_filter():
    out = _out("mamba")
    assert out >= _claims(*HEADS, "ffn.")
    assert not out & _claims(*SPHERE, "cycle.")


def test_experts_hide_maps_of_dense_layers_and_nothing_else():
    assert _out("mixtral") == _claims("map.")


def test_norms_on_writes_only_leave_heads_and_hidden_values():
    out = _out("olmo2")
    assert {"words.travel", "sphere.shared", "ffn.write"} <= out
    assert not out & (_claims("ffn.discard", "attention.cosine", "attention.two-views", "sphere.radius"))


def test_attention_by_code_of_its_own_cannot_be_edited():
    assert _out("bloom") == {"heads.axes"}


@pytest.mark.parametrize("name", ["gemma3_text", "modernbert", "gptj"])
def test_whole_models_get_all_claims(name):
    out = _out(name)
    assert out <= {"heads.axes"}


CLAIMS = (
    "sphere.radius,sphere.shared,cycle.isotropy,words.travel,words.context,attention.cosine,ffn.write,stability.drift"
)


@pytest.mark.parametrize("name", ["mamba", "mixtral"])
def test_a_survey_of_a_partial_model_says_what_does_not_apply(name):
    anatomy = replace(read(perturbed(KINDS[name])), tokenizer=folders.tokenizer())
    text = [f"the cat number {i} sat on the mat and the dog {i} saw it there" * 2 for i in range(10)]
    survey = armillary.survey(anatomy, text, claims=CLAIMS, quick=True, tokens=600, progress=False)
    findings = {finding.claim.id: finding for finding in survey.findings}
    assert not [finding.claim.id for finding in survey.findings if finding.verdict == "failed"]
    apart = {"mamba": {"attention.cosine", "ffn.write"}, "mixtral": set()}[name]
    assert {id for id, finding in findings.items() if finding.why == Why.NOT_APPLICABLE} == apart
    assert "Read in part: " in ledger_text(survey, 120)

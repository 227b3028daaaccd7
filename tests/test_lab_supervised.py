"""Memberships by token equal their formula, begin as learned ones, and see no future; starts are what they say."""

import math

import pytest
import torch
from tiny import tiny
from torch import Tensor

from armillary.errors import ArmillaryError
from armillary.lab.parts import Membership, MembershipAttention, SupervisedAttention
from armillary.lab.parts.initial_weights import prepare
from armillary.lab.parts.swap import swap

D, H = 24, 4
DOUBLE = torch.float64


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


@pytest.fixture
def attention():
    """No parameter at its neutral value."""
    attention = SupervisedAttention(H, D).double()
    with torch.no_grad():
        attention.logits.add_(0.3 * draw(H, D, seed=1))
        attention.supervisor.add_(0.3 * draw(H, D, seed=2))
    return attention


def test_it_equals_its_formula(attention):
    q, k, v = (draw(2, 6, D, seed=i) for i in range(3))
    out = torch.zeros_like(q)
    for b in range(2):
        for t in range(6):
            shares = (attention.logits + (attention.supervisor @ q[b, t])[:, None]).softmax(0)
            for m in shares:
                score = torch.stack([(m * q[b, t] * k[b, s]).sum() for s in range(t + 1)]) / m.square().sum().sqrt()
                out[b, t] += m * (score.softmax(0) @ v[b, : t + 1])
    torch.testing.assert_close(attention(q, k, v), out, rtol=1e-10, atol=1e-10)


def test_it_begins_as_learned_memberships():
    q, k, v = (draw(2, 6, D, seed=i) for i in range(3))
    soft = MembershipAttention(Membership("learned", H, D)).double()
    torch.testing.assert_close(SupervisedAttention(H, D).double()(q, k, v), soft(q, k, v), rtol=1e-6, atol=1e-6)


def test_shares_sum_to_one_and_follow_the_token(attention):
    shares = attention.memberships(draw(2, 6, D))
    assert shares.shape == (2, H, 6, D)
    torch.testing.assert_close(shares.sum(1), torch.ones(2, 6, D, dtype=DOUBLE))
    assert (shares[:, :, 0] - shares[:, :, 1]).abs().max() > 0.01


def test_gradients_are_right_and_the_future_never_leaks(attention):
    inputs = [draw(1, 4, D, seed=i).requires_grad_() for i in range(3)]
    assert torch.autograd.gradcheck(attention, inputs)
    out = attention(*inputs)
    for t in range(3):
        for gradient in torch.autograd.grad(out[0, t].sum(), inputs, retain_graph=True):
            assert gradient[0, t + 1 :].abs().max() == 0


def test_compiled_and_half_precision_stay_near(attention):
    part = attention.float()
    inputs = [draw(2, 6, D, seed=i).float() for i in range(3)]
    compiled = torch.compile(part, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        whole = part(*inputs)
        torch.testing.assert_close(compiled(*inputs), whole, rtol=1e-5, atol=1e-5)
        torch.compiler.reset()
        with torch.autocast("cpu", torch.bfloat16):
            half = part(*(x.bfloat16() for x in inputs))
    # A product of bfloat16 matrices is rounded to 2^-9 of its largest terms, some ten times over.
    torch.testing.assert_close(half.float(), whole, rtol=0.05, atol=0.05)


def test_it_is_swapped_into_a_gpt2_and_refused_where_positions_rotate():
    model = tiny("gpt2")
    ids = torch.arange(8)[None]
    before = model(ids, use_cache=False).logits
    with swap(model, heads="supervised"):
        assert (model(ids, use_cache=False).logits - before).abs().max() > 1e-4
    assert torch.equal(model(ids, use_cache=False).logits, before)
    for name, parts in (("llama", {}), ("gpt2", {"results": "block"})):
        with pytest.raises(ArmillaryError, match="no results, and swap it into a model without rotary"):
            swap(tiny(name), heads="supervised", **parts)


def test_impossible_ones_are_refused(attention):
    with pytest.raises(ArmillaryError, match="at least 2 heads, got 1"):
        SupervisedAttention(1, D)
    with pytest.raises(ArmillaryError, match="do not divide"):
        SupervisedAttention(5, D)
    with pytest.raises(ValueError, match="one shape"):
        attention(draw(1, 4, D), draw(1, 4, D), draw(1, 4, D + 1))


@pytest.mark.parametrize("scale", [0.25, 8.0])
def test_the_products_of_attention_start_at_their_scale(scale):
    plain, scaled = tiny("gpt2"), tiny("gpt2")
    prepare(scaled, attention_scale=scale)
    for ours, theirs in zip(plain.base_model.h, scaled.base_model.h, strict=True):
        d = ours.attn.c_proj.weight.shape[0]
        before, after = (block.attn.c_attn.weight.split(d, 1) for block in (ours, theirs))
        torch.testing.assert_close(after[0] @ after[1].mT, scale * before[0] @ before[1].mT, rtol=1e-4, atol=1e-6)
        written = [value[2] @ block.attn.c_proj.weight for value, block in ((before, ours), (after, theirs))]
        torch.testing.assert_close(written[1], scale * written[0], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(theirs.mlp.c_fc.weight, ours.mlp.c_fc.weight)
    assert math.isclose(float(plain.lm_head.weight.detach().norm()), float(scaled.lm_head.weight.detach().norm()))

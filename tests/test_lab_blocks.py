"""nGPT, post-norm, gates and heads of rotary models equal their formulas, compiled too, and can be undone."""

import math

import pytest
import torch
from tiny import tiny
from torch import nn

from armillary.anatomy.read import read
from armillary.errors import ArmillaryError, ModelError
from armillary.lab.parts import (
    ACTIVATIONS,
    MEMBERSHIPS,
    MESSAGES,
    NORMS,
    SCORES,
    Activation,
    GatedFeedForward,
    Membership,
    MembershipAttention,
    ScoredAttention,
    Symmetriser,
    WideAttention,
    new_norm,
)
from armillary.lab.parts.gated_layers import matched_gate
from armillary.lab.parts.initial_weights import prepare
from armillary.lab.parts.reordered_blocks import NGPTBlock, renormalise
from armillary.lab.parts.swap import swap

D, H = 32, 4
DOUBLE = torch.float64
IDS = torch.randint(3, 97, (2, 12), generator=torch.Generator().manual_seed(3))
ROTARY = ["llama", "llama-biased-untied", "llama-yarn", "mistral", "qwen2", "qwen3"]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def logits(model, **more) -> torch.Tensor:
    return model(input_ids=IDS, use_cache=False, **more).logits


def block_of(model) -> NGPTBlock:
    return model.base_model.h[0]


@pytest.fixture
def ngpt():
    model = tiny("gpt2").double().eval()
    swap(model, layout="ngpt")
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.add_(0.1 * parameter.abs().mean() * draw(*parameter.shape, seed=index + 1))
    return model


# ---- nGPT -----------------------------------------------------------------------------------------------


def unit(x):
    return x / x.norm()


def by_hand(block: NGPTBlock, x: torch.Tensor) -> torch.Tensor:
    """The paper's equations, token by token and head by head."""
    k = D // H
    columns = lambda w: torch.stack([unit(c) for c in w.T]).T  # noqa: E731
    rows = lambda w: torch.stack([unit(r) for r in w])  # noqa: E731
    h = torch.stack([unit(row) for row in x])
    q, key, v = (h @ columns(block.read)).split(D, 1)
    scale, mixed = block.query_scale(), []
    for head in range(H):
        cut = slice(head * k, (head + 1) * k)
        qs = torch.stack([unit(row) * scale[cut] for row in q[:, cut]])
        ks = torch.stack([unit(row) * scale[cut] for row in key[:, cut]])
        score = (math.sqrt(k) * qs @ ks.T).masked_fill(torch.ones(len(x), len(x)).tril() == 0, -math.inf)
        mixed.append(score.softmax(-1) @ v[:, cut])
    answer = torch.cat(mixed, 1) @ rows(block.write)
    alpha = block.towards_attention().abs()
    h = torch.stack([unit(a + alpha * (unit(b) - a)) for a, b in zip(h, answer, strict=True)])
    hidden = block.act(h @ columns(block.up) * block.hidden_scale() * math.sqrt(D))
    answer, alpha = hidden @ rows(block.down), block.towards_mlp().abs()
    return torch.stack([unit(a + alpha * (unit(b) - a)) for a, b in zip(h, answer, strict=True)])


def test_ngpt_equals_its_equations(ngpt):
    block, x = block_of(ngpt), draw(7, D)
    torch.testing.assert_close(block(x[None])[0], by_hand(block, x), rtol=1e-10, atol=1e-10)


def test_ngpt_lives_on_the_sphere_and_ignores_the_length_of_its_weights(ngpt):
    before = logits(ngpt).detach()
    state = ngpt.base_model(input_ids=IDS, use_cache=False).last_hidden_state.detach()
    torch.testing.assert_close(state.norm(dim=-1), torch.ones(2, 12, dtype=DOUBLE))
    with torch.no_grad():
        for block in ngpt.base_model.h:
            for weight in (block.read, block.write, block.up, block.down):
                weight.mul_(3.0)
    torch.testing.assert_close(logits(ngpt).detach(), before)
    # Logits are cosines times a scale that begins at 1.
    assert float(before.abs().max()) <= float(ngpt.lm_head.scale().detach().abs().max())


def test_renormalising_keeps_the_function(ngpt):
    before = logits(ngpt).detach()
    renormalise(ngpt)
    torch.testing.assert_close(logits(ngpt).detach(), before)
    torch.testing.assert_close(block_of(ngpt).read.norm(dim=0).detach(), torch.ones(3 * D, dtype=DOUBLE))
    torch.testing.assert_close(block_of(ngpt).down.norm(dim=1).detach(), torch.ones(4 * D, dtype=DOUBLE))
    torch.testing.assert_close(ngpt.base_model.wte.weight.norm(dim=1).detach(), torch.ones(97, dtype=DOUBLE))
    assert ngpt.lm_head.weight is ngpt.base_model.wte.weight


def test_the_first_steps_are_the_paper_s():
    model = tiny("gpt2").double()
    swap(model, layout="ngpt")
    block = block_of(model)
    torch.testing.assert_close(block.towards_mlp().detach(), torch.full((D,), 0.05, dtype=DOUBLE), rtol=1e-6, atol=0)
    for scale in (block.query_scale, block.hidden_scale, model.lm_head.scale):
        torch.testing.assert_close(scale().detach(), torch.ones_like(scale().detach()), rtol=1e-6, atol=0)


@pytest.mark.parametrize("layout", ["ngpt", "post-norm"])
def test_a_layout_has_right_gradients_sees_no_future_and_is_undone(layout):
    model = tiny("gpt2").double().eval()
    before = logits(model).detach()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    swapped = swap(model, layout=layout)
    assert (logits(model) - before).abs().max() > 1e-3
    embeds = draw(1, 5, D).requires_grad_()
    run = lambda x: model(inputs_embeds=x, use_cache=False).logits  # noqa: E731
    assert torch.autograd.gradcheck(lambda x: run(x)[..., :3], (embeds[:, :3].detach().requires_grad_(),))
    out = run(embeds)
    for t in range(4):
        (gradient,) = torch.autograd.grad(out[0, t].sum(), embeds, retain_graph=True)
        assert gradient[0, t + 1 :].abs().max() == 0
        assert gradient[0, : t + 1].abs().max() > 0
    renormalise(model)
    swapped.undo()
    assert torch.equal(logits(model), before)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_post_norm_equals_its_formula():
    model = tiny("gpt2").double().eval()
    old = model.base_model.h[0]
    x = draw(1, 6, D)
    with torch.no_grad():
        middle = old.ln_1(x + old.attn(x)[0])
        expected = old.ln_2(middle + old.mlp(middle))
        with swap(model, layout="post-norm"):
            torch.testing.assert_close(model.base_model.h[0](x), expected)
            assert isinstance(model.base_model.ln_f, nn.Identity)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"layout": "ngpts"}, "ngpt"),
        ({"layout": "ngpt", "norm": "sphere"}, "activation alone"),
        ({"layout": "ngpt", "gate": True}, "activation alone"),
    ],
)
def test_impossible_layouts_are_refused(parts, message):
    with pytest.raises(ArmillaryError, match=message):
        swap(tiny("gpt2"), **parts)
    with pytest.raises(ModelError, match="GPT-2 models so far"):
        swap(tiny("llama"), layout="ngpt")


# ---- gates and starts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_gate_equals_its_formula(name):
    gate = GatedFeedForward(6, 5, 2, Activation(name)).double()
    x = (draw(3, 6) + 0.01).requires_grad_()
    by_gate = gate.act(x @ gate.gate.weight.T + gate.gate.bias) * (x @ gate.up.weight.T + gate.up.bias)
    torch.testing.assert_close(gate(x), by_gate @ gate.out.weight.T + gate.out.bias)
    assert torch.autograd.gradcheck(gate, (x,))


def test_a_gate_keeps_the_parameters_and_takes_over_the_activation():
    model = tiny("gpt2").double().eval()
    before, whole = logits(model).detach(), sum(p.numel() for p in model.parameters())
    with swap(model, gate=True, activation="relu2"):
        assert model.base_model.h[0].mlp.act.activation_name == "relu2"
        assert abs(sum(p.numel() for p in model.parameters()) / whole - 1) < 0.01
        assert (logits(model) - before).abs().max() > 1e-3
    assert torch.equal(logits(model), before)
    assert 3 * matched_gate(768) == 2 * 768
    with pytest.raises(ArmillaryError, match="positive sizes"):
        GatedFeedForward(6, 0, 2, nn.Identity())


def test_a_start_may_be_untied_and_scaled():
    model, plain = tiny("gpt2"), tiny("gpt2")
    prepare(model, untied=True, scale=2.0)
    assert model.lm_head.weight is not model.base_model.wte.weight
    torch.testing.assert_close(model.lm_head.weight, 2 * plain.lm_head.weight)
    torch.testing.assert_close(model.base_model.h[0].mlp.c_fc.weight, 2 * plain.base_model.h[0].mlp.c_fc.weight)
    torch.testing.assert_close(model.base_model.h[0].ln_1.weight, plain.base_model.h[0].ln_1.weight)
    tied = tiny("gpt2")
    prepare(tied, scale=2.0)
    torch.testing.assert_close(tied.base_model.wte.weight, 2 * plain.base_model.wte.weight)
    with pytest.raises(ArmillaryError, match="above 0"):
        prepare(tiny("gpt2"), scale=0.0)


# ---- heads of rotary models -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", ROTARY)
@pytest.mark.parametrize("part", [{"heads": "block"}, {"heads": "free"}, {"heads": "mixing"}, {"score": "dot"}])
def test_block_heads_are_the_model_s_own_in_rotary_models(family, part):
    model = tiny(family).double().eval()
    loss = logits(model).logsumexp(-1).sum()
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    with swap(model, **part):
        swapped = logits(model).logsumexp(-1).sum()
        # Hugging Face's RMSNorm and rotations compute in float32, whatever the model is.
        torch.testing.assert_close(swapped, loss, rtol=1e-6, atol=1e-6)
        swapped.backward()
        largest = max(float(value.abs().max()) for value in gradients.values())
        for name, parameter in model.named_parameters():
            if name in gradients:
                torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral"])
@pytest.mark.parametrize("part", [{"heads": "block"}, {"score": "dot"}, {"score": "distance"}])
def test_padding_is_not_attended_to(family, part):
    """Swapped heads follow the model's mask: what lies under padding changes nothing."""
    model = tiny(family).double().eval()
    mask = torch.ones_like(IDS)
    mask[:, :3] = 0
    other = IDS.clone()
    other[:, :3] = 5
    with torch.no_grad(), swap(model, **part):
        logits = [model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, 3:] for ids in (IDS, other)]
    torch.testing.assert_close(*logits, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("heads", [name for name in MEMBERSHIPS if name not in ("block", "uniform")])
def test_soft_heads_of_rotary_models_know_offsets_alone(heads):
    """M is equal on both axes of a pair, so a shift of all positions changes nothing; otherwise it would."""
    model = tiny("llama").double().eval()
    positions = torch.arange(12)[None].expand(2, -1)
    with torch.no_grad(), swap(model, heads=heads):
        here, there = (logits(model, position_ids=positions + shift) for shift in (0, 17))
        torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-4)
        if heads == "random":
            for layer in model.model.layers:
                layer.self_attn.heads.scores.pairs = False
            here, there = (logits(model, position_ids=positions + shift) for shift in (0, 17))
            assert (here - there).abs().max() > 1e-3


@pytest.mark.parametrize("part", [{"heads": "triangular"}, {"heads": "learned"}, {"score": "angle"}])
def test_swapped_heads_of_a_llama_see_no_future(part):
    model = tiny("llama").double().eval()
    embeds = draw(1, 6, D).requires_grad_()
    with swap(model, **part):
        out = model(inputs_embeds=embeds, use_cache=False).logits
    for t in range(5):
        (gradient,) = torch.autograd.grad(out[0, t].sum(), embeds, retain_graph=True)
        assert gradient[0, t + 1 :].abs().max() == 0


def test_heads_that_are_scaled_by_layer_are_refused():
    with pytest.raises(ModelError, match="by layer"):
        swap(tiny("gpt2-layer-scaled"), heads="block")


# ---- compiled -------------------------------------------------------------------------------------------


def compiled_parts() -> dict[str, tuple[nn.Module, int]]:
    """Parts, and how many inputs each takes."""
    parts = {name: (new_norm(name, D), 1) for name in NORMS}
    parts |= {f"symmetriser {m}": (Symmetriser(D, H, m, rounds=2, aligned=m != "ring"), 1) for m in MESSAGES}
    parts |= {f"heads {name}": (MembershipAttention(Membership(name, H, D)), 3) for name in MEMBERSHIPS}
    parts |= {f"score {name}": (ScoredAttention(name, H, D), 3) for name in SCORES}
    parts |= {"gate": (GatedFeedForward(D, 20, 2, Activation("wave")), 1), "wide": (WideAttention(D, H, 5, 2), 1)}
    model = tiny("gpt2")
    swap(model, layout="ngpt")
    return parts | {"ngpt": (block_of(model), 1)}


@pytest.mark.parametrize("name", compiled_parts())
def test_compiled_and_eager_agree_forward_and_backward(name):
    part, n = compiled_parts()[name]
    inputs = [draw(2, 6, D, seed=i).float().requires_grad_() for i in range(n)]
    compiled = torch.compile(part, backend="aot_eager", fullgraph=True)
    results = []
    for module in (part, compiled):
        out = module(*inputs)
        out = out[0] if isinstance(out, tuple) else out
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs, allow_unused=True)])
    torch.compiler.reset()
    for eager, other in zip(*results, strict=True):
        assert (eager is None) == (other is None)
        if eager is not None:
            torch.testing.assert_close(eager, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["ngpt", "gate", "symmetriser ring", "symmetriser learned"])
def test_half_precision_stays_near(name):
    part, _ = compiled_parts()[name]
    x = draw(2, 6, D).bfloat16()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        half = part(x)
    with torch.no_grad():
        whole = part(x.float())
    assert torch.isfinite(half).all()
    # A product of bfloat16 matrices is rounded to 2^-9 of its largest terms, some ten times over.
    torch.testing.assert_close(half.float(), whole, rtol=0.05, atol=0.03)


def test_anatomy_of_each_family_still_reads():
    for family in ("gpt2", "llama"):
        with swap(model := tiny(family), heads="triangular"):
            assert read(model).n_heads == H

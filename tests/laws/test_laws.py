"""Every law holds on every family, and every law can fail: each has a mutation that must break it."""

from dataclasses import replace

import pytest
import torch
from tiny import MAKERS, tiny
from tiny_senses import DECODERS

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.errors import LawError
from armillary.flow.attention import rotation, scores_of
from armillary.flow.laws import LAWS, check
from armillary.specimens.models.perturbed import perturbed

NAMES = list(MAKERS)


@pytest.fixture(scope="module")
def models() -> dict[str, Anatomy]:
    return {**{name: read(tiny(name)) for name in NAMES}, "bart.decoder": read(perturbed(DECODERS["bart.decoder"]))}


@pytest.mark.parametrize("name", NAMES)
def test_every_law_holds_to_rounding(models, name):
    checks = check(models[name])
    assert [law.name for law in checks] == list(LAWS)
    assert all(law.error <= 5e-6 for law in checks), checks
    applied = {law.name for law in checks if law.where != "not applicable"}
    assert applied >= set(LAWS) - {"logits", "windows", "cross attention"}
    assert ("windows" in applied) == any(block.attention.window for block in models[name].blocks)
    assert ("logits" in applied) == (not name.startswith("bert"))


@pytest.mark.parametrize("name", NAMES)
def test_canonical_shapes(models, name):
    a = models[name]
    for block in a.blocks:
        attention = block.attention
        assert attention.W_Q.shape == (a.n_heads, a.d, a.k)
        assert attention.W_K.shape == attention.W_V.shape == (a.n_kv_heads, a.d, a.k)
        assert attention.W_O.shape == (a.n_heads, a.k, a.d)
        assert block.feed_forward.W_in.shape == (a.d, a.m)
        assert block.feed_forward.W_out.shape == (a.m, a.d)
    head = a.blocks[0].attention.head(a.n_heads - 1)
    assert head.W_Q.shape == head.W_K.shape == head.W_V.shape == (a.d, a.k)


def _block(a: Anatomy, layer: int, **changes) -> Anatomy:
    blocks = list(a.blocks)
    blocks[layer] = replace(blocks[layer], **changes)
    return replace(a, blocks=tuple(blocks))


def _attention(a: Anatomy, **changes) -> Anatomy:
    return _block(a, 1, mixer=replace(a.blocks[1].attention, **changes))


def _ffn(a: Anatomy, **changes) -> Anatomy:
    return _block(a, 1, channels=replace(a.blocks[1].feed_forward, **changes))


def _site(a: Anatomy, name: str, **changes) -> Anatomy:
    return replace(a, sites={**a.sites, name: replace(a.sites[name], **changes)})


# (law, model, what is wrong): the mistakes that converters really make.
MUTATIONS = {
    "cross attention read as the decoder's own": (
        "cross attention",
        "bart.decoder",
        lambda a: _block(a, 1, cross=a.blocks[1].attention),
    ),
    "gate and up not cut apart": ("shapes", "phi3", lambda a: _site(a, "L1.mlp_pre", cut=None)),
    "key heads counted as query heads": (
        "shapes",
        "phi3",
        lambda a: _site(a, "L1.k", cut=a.sites["L1.q"].cut),
    ),
    "head results not split into heads": ("shapes", "bert", lambda a: _site(a, "L0.z", k=0)),
    "the gate's product taken for what it multiplies": (
        "hidden values",
        "phi3",
        lambda a: _site(a, "L1.mlp_pre", cut=a.sites["L1.mlp_up"].cut),
    ),
    "a path that leads to the other projection": (
        "hidden values",
        "llama",
        lambda a: _site(a, "L1.mlp_pre", path=a.sites["L1.mlp_up"].path),
    ),
    "the first norm read where the block has a second": (
        "hidden values",
        "gpt_neox",
        lambda a: _block(a, 1, ln2=a.blocks[1].ln1),
    ),
    "k and v cut in the wrong order": (
        "attention",
        "phi3",
        lambda a: _attention(a, W_K=a.blocks[1].attention.W_V, W_V=a.blocks[1].attention.W_K),
    ),
    "gain not folded": (
        "two views",
        "qwen3",
        lambda a: _block(a, 1, ln1=replace(a.blocks[1].ln1, gain=torch.ones_like(a.blocks[1].ln1.gain))),
    ),
    "shift not folded": ("two views", "gpt2", lambda a: _block(a, 1, ln1=replace(a.blocks[1].ln1, shift=None))),
    "the block's own norm folded where the one before it is read": (
        "two views",
        "bert",
        lambda a: _block(a, 0, ln2=a.blocks[0].ln1),
    ),
    "key bias forgotten": ("two views", "opt", lambda a: _attention(a, b_K=None)),
    "key heads given to query heads in turn": (
        "two views",
        "llama",
        lambda a: _attention(a, W_V=a.blocks[1].attention.W_V.flip(0)),
    ),
    "cap forgotten": ("two views", "gemma2", lambda a: _attention(a, softcap=None)),
    "shift forgotten": ("norm", "gpt2", lambda a: _block(a, 1, ln1=replace(a.blocks[1].ln1, shift=None))),
    "gain without Gemma's one": (
        "norm",
        "gemma2",
        lambda a: _block(a, 1, ln2=replace(a.blocks[1].ln2, gain=a.blocks[1].ln2.gain - 1)),
    ),
    "RMSNorm taken for LayerNorm": (
        "norm",
        "llama",
        lambda a: _block(a, 1, ln1=replace(a.blocks[1].ln1, kind="layernorm")),
    ),
    "epsilon wrong": ("norm", "bert", lambda a: _block(a, 0, ln1=replace(a.blocks[0].ln1, eps=1e-2))),
    "embedding not scaled": ("embedding", "gemma2", lambda a: replace(a, embed_scale=1.0)),
    "position offset forgotten": (
        "embedding",
        "opt",
        lambda a: replace(a, positions=replace(a.positions, table=a.positions.table.roll(2, 0))),
    ),
    "token type forgotten": ("embedding", "bert", lambda a: replace(a, token_type=None)),
    "q and k swapped": (
        "attention",
        "gpt2",
        lambda a: _attention(a, W_Q=a.blocks[1].attention.W_K, W_K=a.blocks[1].attention.W_Q),
    ),
    "v bias forgotten": ("attention", "qwen2", lambda a: _attention(a, b_V=None)),
    "key heads in another order": (
        "attention",
        "llama",
        lambda a: _attention(a, W_K=a.blocks[1].attention.W_K.flip(0)),
    ),
    "interleaving ignored": (
        "attention",
        "gpt_neox",
        lambda a: _attention(a, W_Q=a.blocks[1].attention.W_Q.roll(1, 0)),
    ),
    "q-norm forgotten": ("attention", "qwen3", lambda a: _attention(a, q_norm=None)),
    "soft cap forgotten": ("attention", "gemma2", lambda a: _attention(a, softcap=None)),
    "window forgotten in a long text": ("windows", "mistral", lambda a: _attention(a, window=None)),
    "window forgotten": ("attention", "mistral", lambda a: _attention(a, window=None)),
    "scale of another head width": ("attention", "gemma2", lambda a: _attention(a, scale=a.k**-0.5)),
    "heads permuted": ("heads", "gpt2", lambda a: _attention(a, W_O=a.blocks[1].attention.W_O.flip(0))),
    "output bias forgotten": ("heads", "opt", lambda a: _attention(a, b_O=None)),
    "gate and up swapped": (
        "feed-forward",
        "llama",
        lambda a: _ffn(a, W_in=a.blocks[1].feed_forward.W_gate, W_gate=a.blocks[1].feed_forward.W_in),
    ),
    "another activation": ("feed-forward", "gpt2", lambda a: _ffn(a, activation=torch.relu)),
    "parallel taken for sequential": ("stream", "gpt_neox", lambda a: replace(a, parallel=False)),
    "post-norm taken for pre-norm": ("stream", "opt-post", lambda a: replace(a, order="pre")),
    "logit cap forgotten": ("logits", "gemma2", lambda a: replace(a, logit_softcap=None)),
    "final norm's gain forgotten": (
        "logits",
        "llama",
        lambda a: replace(a, ln_final=replace(a.ln_final, gain=torch.ones_like(a.ln_final.gain))),
    ),
    "an encoder taken for causal": ("edits", "bert", lambda a: replace(a, causal=True)),
}


@pytest.mark.parametrize("mistake", list(MUTATIONS))
def test_every_mistake_breaks_its_law(models, mistake):
    law, name, mutate = MUTATIONS[mistake]
    broken = mutate(models[name])
    with torch.no_grad():
        from armillary.flow.law_passes import look
        from armillary.flow.laws import _measure

        seen = look(broken)
        measured = _measure(broken, seen, law, *LAWS[law])
    assert measured.error > measured.tolerance, f"{mistake} went unnoticed: {measured}"
    with pytest.raises(LawError, match="law '"):
        check(broken)


def test_every_law_has_a_mutation():
    assert {law for law, _, _ in MUTATIONS.values()} == set(LAWS)


def test_a_failure_names_law_layer_and_size(models):
    uncut = _site(models["phi3"], "L1.mlp_pre", cut=None)
    with pytest.raises(LawError, match=r"law 'shapes' .* fails at L1\.mlp_pre \[2, 12, 96\], not \[2, 12, 48\] by"):
        check(uncut)
    broken = _attention(models["gpt2"], W_O=models["gpt2"].blocks[1].attention.W_O.flip(0))
    with pytest.raises(LawError, match=r"law 'heads' .* fails at L1\.attn_out by \d\.\d\de[+-]\d\d"):
        check(broken)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_half_precision_models_are_lawful(name):
    checks = check(read(tiny(name).to(torch.float16)))
    assert max(law.error for law in checks) > 1e-5  # it is float16, and the laws can tell


def test_training_mode_and_weights_are_left_alone():
    model = tiny("gpt2").train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    check(read(model))
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_write_of_zero_is_lawful_in_half_precision():
    from armillary.specimens.models.bag import bag, gaussian

    assert check(read(bag(gaussian()).model.half()))


def test_overflow_says_so():
    model = tiny("gpt2").to(torch.float16)
    with torch.no_grad():
        model.transformer.wte.weight.mul_(60000)
    with pytest.raises(LawError, match="overflow in float16"):
        check(read(model))


def test_a_wrong_gain_is_seen_in_bfloat16_sized_rounding():
    model = tiny("llama").to(torch.float16)
    anatomy = read(model)
    with pytest.raises(LawError, match="law 'norm'"):
        check(_block(anatomy, 1, ln1=replace(anatomy.blocks[1].ln1, gain=anatomy.blocks[1].ln1.gain * 1.1)))


def _with_large_scores(name: str) -> Anatomy:
    """A tiny model whose queries are 60 times as long, so that scores are far above 1."""
    model = perturbed(MAKERS[name])
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.mul_(60)
    return read(model)


@pytest.mark.parametrize("side", ["W_Q", "W_K", "W_V"])
def test_one_per_cent_in_one_head_is_seen_where_scores_are_large(side):
    a = _with_large_scores("llama")
    check(a)
    y, turn = torch.randn(1, 12, a.d, generator=torch.Generator().manual_seed(0)), rotation(a, 1, 12)
    assert scores_of(a.blocks[1].attention, y, turn).abs().max() > 10
    weight = getattr(a.blocks[1].attention, side).clone()
    weight[0] *= 1.01
    mixer = replace(a.blocks[1].attention, **{side: weight})
    wrong = replace(a, blocks=(a.blocks[0], replace(a.blocks[1], mixer=mixer), *a.blocks[2:]))
    with pytest.raises(LawError, match=r"law 'attention'.*L1"):
        check(wrong)


def test_softmax_moves_by_no_more_than_its_bound():
    """Of scores that differ by η at most, patterns differ by η/2 at most and results by η times the largest value."""
    draw = torch.Generator().manual_seed(4)
    for size in (1.0, 30.0, 300.0):
        scores = size * torch.randn(64, 20, generator=draw, dtype=torch.float64)
        away = 1e-4 * (2 * torch.rand(64, 20, generator=draw, dtype=torch.float64) - 1)
        apart = (scores + away).softmax(-1) - scores.softmax(-1)
        # Terms of second order are a share of η² beside η.
        assert apart.abs().max() <= 0.5 * 1e-4 * (1 + 1e-3)
        assert apart.abs().sum(-1).max() <= 1e-4 * (1 + 1e-3)
    both = torch.tensor([[0.0, 0.0]], dtype=torch.float64)
    reached = (both + torch.tensor([1e-4, -1e-4])).softmax(-1) - both.softmax(-1)
    assert reached[0, 0] == pytest.approx(0.5e-4, rel=1e-6)

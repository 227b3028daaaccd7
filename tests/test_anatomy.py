"""What is read from a model, what is refused, and by which name."""

import pytest
import torch
import transformers as tr
from tiny import MAKERS, tiny

from armillary.anatomy.norm import Norm
from armillary.anatomy.read import fingerprint, read
from armillary.errors import ModelError


def test_a_changed_attribute_that_no_table_knows_is_refused_by_name():
    config = tr.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=50, add_cross_attention=True)
    with pytest.raises(ModelError, match="config attribute add_cross_attention=True changes what a gpt2 model"):
        read(tr.GPT2LMHeadModel(config))


def test_an_embedding_of_another_width_is_refused_by_name():
    settings = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 32, "vocab_size": 50}
    with pytest.raises(ModelError, match="word_embed_proj_dim=16"):
        read(tr.OPTForCausalLM(tr.OPTConfig(**settings, word_embed_proj_dim=16)))


def test_keys_that_the_class_ignores_are_named_not_obeyed():
    model = tiny("llama")
    model.config.some_trainers_note = "v2"
    assert read(model).config_ignored == ("some_trainers_note",)


def test_an_unknown_architecture_says_which_are_known():
    config = tr.T5Config(d_model=16, num_layers=1, num_heads=2, d_ff=16, vocab_size=20)
    with pytest.raises(ModelError, match=r"'t5' is not one Armillary knows \(gpt2, llama"):
        read(tr.T5Model(config))


def test_a_module_without_config_is_refused():
    with pytest.raises(ModelError, match="Linear is not a transformers model"):
        read(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("name", list(MAKERS))
def test_sites_point_at_modules(name):
    model = tiny(name)
    anatomy = read(model)
    for site in anatomy.sites.values():
        assert model.get_submodule(site.path) is not None
    assert set(anatomy.norms) <= set(anatomy.sites)


def test_canonical_weights_are_views_not_copies():
    model = tiny("gpt2")
    anatomy = read(model)
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight[3, 5] = 42.0
    assert anatomy.blocks[0].attention.W_Q[0, 3, 5] == 42.0


def test_base_models_without_head_are_read():
    base = tiny("llama").model
    anatomy = read(base)
    assert anatomy.W_U is None
    assert anatomy.sites["ln_final"].path == "norm"


def test_fingerprint_tells_models_apart_and_finds_nan():
    model = tiny("gpt2")
    print_, broken = fingerprint(model)
    assert broken == ""
    assert fingerprint(tiny("gpt2", seed=1))[0] != print_ == fingerprint(tiny("gpt2"))[0]
    with torch.no_grad():
        model.transformer.ln_f.weight[3] = float("nan")
    assert fingerprint(model)[1] == "transformer.ln_f.weight"


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
def test_norm_direction_is_on_the_sphere(kind):
    norm = Norm(kind, torch.ones(64), None, 1e-6)
    z = norm.direction(torch.randn(10, 64) * 5 + 1)
    assert torch.allclose(z.norm(dim=-1), torch.full((10,), 8.0), rtol=1e-5)
    assert (z.mean(-1).abs().max() < 1e-6) == (kind == "layernorm")


def test_fingerprint_sees_a_permutation():
    """Sums would not: the same weights in another order are another model."""
    model = tiny("gpt2")
    before = fingerprint(model)[0]
    with torch.no_grad():
        model.transformer.wte.weight.copy_(model.transformer.wte.weight.flip(0))
    assert fingerprint(model)[0] != before


def test_a_live_model_is_not_cast_unasked():
    import armillary

    model = tiny("gpt2").to(torch.float64)
    armillary.load(model, device="cpu", progress=False)
    assert model.transformer.wte.weight.dtype == torch.float64

"""What is read from a model, what is refused, and by which name."""

from dataclasses import replace

import pytest
import torch
import transformers as tr
from tiny import MAKERS, tiny
from tiny_kinds import tiny_of

from armillary.anatomy import families
from armillary.anatomy.folded import mlp_norm
from armillary.anatomy.loading.identity import fingerprint
from armillary.anatomy.norm import Norm
from armillary.anatomy.read import read
from armillary.errors import ModelError
from armillary.flow.attention import rotation
from armillary.flow.capture import run, still, watching
from armillary.flow.laws import check
from armillary.specimens.models.perturbed import perturbed


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
    config = tr.CTRLConfig(n_embd=16, n_layer=1, n_head=2, dff=16, vocab_size=20, n_positions=16)
    with pytest.raises(ModelError, match=r"'ctrl' is not one Armillary knows \(gpt2, llama"):
        read(tr.CTRLModel(config))


def test_a_known_architecture_that_cannot_be_read_says_what_is_missing():
    config = tr.FunnelConfig(d_model=16, n_head=2, d_head=8, d_inner=16, block_sizes=[1], vocab_size=20)
    with pytest.raises(ModelError, match=r"'funnel' cannot be read: it needs a stream that changes its length"):
        read(tr.FunnelModel(config))


def test_a_model_of_several_parts_says_which_are_read():
    config = tr.T5Config(d_model=16, num_layers=1, num_heads=2, d_ff=16, vocab_size=20)
    with pytest.raises(
        ModelError, match=r"'t5' models have several parts, .* \(encoder, decoder\); add # and its name"
    ):
        families.family_of("t5")
    assert read(tr.T5Model(config)).family == "t5.decoder"
    assert read(tr.T5EncoderModel(config).encoder).family == "t5.encoder"


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
    model = tiny("phi3")
    anatomy = read(model)
    with torch.no_grad():
        # 4 query heads and 2 key/value heads of width 8: the first value column is 32 + 16.
        model.model.layers[0].self_attn.qkv_proj.weight[48, 3] = 42.0
        model.model.layers[0].mlp.gate_up_proj.weight[48, 3] = 43.0
    assert anatomy.blocks[0].attention.W_V[0, 3, 0] == 42.0
    assert anatomy.blocks[0].feed_forward.W_in[3, 0] == 43.0


@pytest.mark.parametrize("name", ["gpt2", "llama", "phi3", "bert"])
def test_a_pattern_is_a_site(name):
    anatomy, patterns = read(tiny(name)), {}
    before = anatomy.model.config._attn_implementation
    with still(anatomy.model), watching(anatomy, {"L1.pattern": lambda given, value: patterns.update(p=value)}):
        run(anatomy, torch.randint(3, 97, (2, 9)))
    assert patterns["p"].shape == (2, 4, 9, 9)
    assert torch.allclose(patterns["p"].sum(-1), torch.ones(2, 4, 9), atol=1e-6)
    assert anatomy.model.config._attn_implementation == before


def test_an_unknown_site_lists_the_known_ones():
    anatomy = read(tiny("gpt2"))
    with (
        pytest.raises(ModelError, match=r"no site 'L0\.ln3' .* L0\.ln1, L0\.q, .* ln_final \(L0 stands for L0 to L2\)"),
        watching(anatomy, {"L0.ln3": lambda given, value: None}),
    ):
        pass


def test_one_norm_for_both_sublayers_is_one_site():
    anatomy = read(tiny("phi"))
    assert anatomy.parallel
    assert all(block.ln2 is block.ln1 for block in anatomy.blocks)
    assert list(anatomy.norms) == ["L0.ln1", "L1.ln1", "L2.ln1", "ln_final"]
    assert not any(site.endswith("ln2") for site in anatomy.sites)
    assert mlp_norm(anatomy, 1) == ("L1.ln1", anatomy.blocks[1].ln1)


def test_a_longrope_of_some_layers_limits_the_context_too():
    """Behind its original context one offset has two rotations: by the length of the text."""
    rope = {"rope_theta": 1e4, "rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 16}
    rope |= {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [4.0] * 4}
    ropes = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": rope}
    layers = ["sliding_attention", "full_attention", "sliding_attention"]
    make = tiny_of("Gemma3ForCausalLM", head_dim=8, sliding_window=8, layer_types=layers, rope_parameters=ropes)
    anatomy = read(perturbed(make))
    assert anatomy.context == 16
    within, behind = (rotation(anatomy, 1, length).cos[0, :16] for length in (16, 17))
    assert not torch.allclose(within, behind)


def test_longrope_is_read_up_to_its_original_context():
    """Beyond it every position is rotated by other frequencies."""
    anatomy = read(tiny("phi3-longrope"))
    assert anatomy.config["max_position_embeddings"] == 64
    assert anatomy.context == 16
    assert read(tiny("phi3")).context == 64


def test_windows_are_read_where_a_family_keeps_them():
    windows = {name: [b.attention.window for b in read(tiny(name)).blocks] for name in ("phi3", "mistral", "qwen2")}
    assert windows == {"phi3": [5, 5, 5], "mistral": [5, 5, 5], "qwen2": [None, None, 4]}


WRONG_TABLES = {
    "a path of another family": (
        {"fused": "attn.c_attn"},
        r"the phi3 table names 'attn\.c_attn', and Phi3DecoderLayer has no such module; it has self_attn, .*qkv_proj",
    ),
    "a projection of one side for all three": (
        {"fused": "self_attn.o_proj"},
        r"o_proj gives 32 columns, and 4 query heads and 2 key/value heads of width 8 need 64",
    ),
    "gate alone where both are": (
        {"gate_up": "mlp.down_proj"},
        r"down_proj gives 32 columns, and a gate and a factor of 48 hidden values each need 96",
    ),
    "no norm": ({"ln2": "mlp.activation_fn"}, r"mlp\.activation_fn \(SiLUActivation\) is not a norm that can be read"),
    "a module where the config's attribute is asked for": (
        {"activation": "activation_fn"},
        r"names the activation 'activation_fn', which is neither .* attributes that name one: hidden_act\.",
    ),
    "no attention": ({"attention": "mlp"}, r"mlp \(Phi3MLP\) has no head width"),
    "no blocks": ({"blocks": "h"}, r"names 'h', and Phi3Model has no such module; it has embed_tokens, layers"),
    "a final norm of another name": ({"ln_final": "ln_f"}, r"names 'ln_f', and Phi3Model has no such module"),
}


@pytest.mark.parametrize("mistake", list(WRONG_TABLES))
def test_a_wrong_table_says_what_is_wrong(monkeypatch, mistake):
    changes, message = WRONG_TABLES[mistake]
    table = replace(families.family_of("phi3"), **changes)
    monkeypatch.setattr(families, "FAMILIES", (table,))
    with pytest.raises(ModelError, match=message):
        read(tiny("phi3"))


class _Point:
    """An entry point of an installed package."""

    def __init__(self, name, loaded):
        self.name, self.value, self._loaded = name, f"some_package:{name}", loaded

    def load(self):
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


@pytest.fixture
def installed(monkeypatch):
    def install(**points):
        listed = [_Point(name, loaded) for name, loaded in points.items()]
        monkeypatch.setattr(families, "entry_points", lambda group: listed if group == families.GROUP else [])
        families._installed.cache_clear()

    yield install
    families._installed.cache_clear()


def test_installed_packages_add_families(installed):
    llama = families.family_of("llama")
    two = tuple(replace(llama, model_type=name) for name in ("alpha", "beta"))
    installed(gamma=replace(llama, model_type="gamma"), several=two, llama=replace(two[0], model_type="llama"))
    assert families.family_of("gamma").model_type == "gamma"
    assert (families.family_of("alpha"), families.family_of("beta")) == two
    assert families.family_of("llama") is llama, "a built-in table comes first"
    with pytest.raises(ModelError, match=r"'delta' is not one Armillary knows \(gpt2, .*, gamma, alpha, beta"):
        families.family_of("delta")


def test_a_broken_entry_point_is_named_when_it_matters_and_only_then(installed, recwarn):
    installed(gamma=ImportError("no module named gamma_lib"), wrong="a string")
    assert families.family_of("gpt2").model_type == "gpt2"
    with pytest.raises(
        ModelError, match=r"'gamma' is announced .* some_package:gamma: ImportError: no module named gamma"
    ):
        families.family_of("gamma")
    message = r"'delta' is not one .* 'gamma' cannot be loaded .* 'wrong' .* is neither a Family nor a tuple"
    with pytest.raises(ModelError, match=message):
        families.family_of("delta")
    assert not recwarn.list


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
    assert fingerprint(model)[1] == "transformer.ln_f.weight contains NaN or infinity"


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


def test_a_model_whose_own_pass_fails_is_refused_in_a_sentence():
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16}
    rotary = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.5}
    model = tr.GPTNeoXForCausalLM(tr.GPTNeoXConfig(vocab_size=20, rope_parameters=rotary, **sizes))
    with pytest.raises(ModelError, match=r"own forward pass fails .* its config does not fit its weights"):
        check(read(model))

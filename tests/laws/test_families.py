"""Every family's tiny model is lawful, attends as Hugging Face's model does at sixty tokens, and every concept of the
tables has a mistake that the laws see."""

from dataclasses import replace

import pytest
import torch
from tiny import MAKERS
from tiny_kinds import ENCODERS, KINDS, MIXERS, tiny_of
from tiny_senses import SENSES

from armillary.anatomy import Anatomy, Attention
from armillary.anatomy.families import FAMILIES, family_of
from armillary.anatomy.positions.score_bias import Slopes
from armillary.anatomy.read import read
from armillary.errors import LawError
from armillary.flow.attention import attend, rotation
from armillary.flow.capture import run, still, watching
from armillary.flow.laws import LAWS, check
from armillary.specimens.models.perturbed import perturbed

TOKENS = 60
STREAM_LAWS = {"shapes", "embedding", "norm", "stream", "edits"}


@pytest.fixture(scope="module")
def models() -> dict[str, Anatomy]:
    anatomies: dict[str, Anatomy] = {}

    class Made(dict[str, Anatomy]):
        def __missing__(self, name: str) -> Anatomy:
            self[name] = read(perturbed(KINDS[name]))
            return self[name]

    return Made(anatomies)


def _patterns_apart(a: Anatomy) -> float:
    """The largest difference between our patterns and the model's own, in a text longer than any window here."""
    layers = [i for i, block in enumerate(a.blocks) if isinstance(block.mixer, Attention)]
    own = {i: f"L{i}.ln1" if a.order == "pre" and a.blocks[i].ln1 is not None else f"L{i}.resid_pre" for i in layers}
    seen: dict[str, torch.Tensor] = {}

    def keep(name):
        return lambda given, value: seen.update({name: value.detach().clone()})

    sites = [*own.values(), *(f"L{i}.pattern" for i in layers)]
    ids = torch.randint(3, a.vocabulary, (1, TOKENS), generator=torch.Generator().manual_seed(5))
    worst = 0.0
    with still(a.model), watching(a, {site: keep(site) for site in sites}):
        run(a, ids)
        for i in layers:
            pattern, _ = attend(a.blocks[i].attention, seen[own[i]], rotation(a, i, TOKENS), a.causal)
            worst = max(worst, float((pattern - seen[f"L{i}.pattern"]).abs().max()))
    return worst


@pytest.mark.parametrize("name", list(KINDS))
def test_a_family_is_lawful_and_attends_as_the_library_does(models, name):
    a = models[name]
    assert min(a.context, TOKENS) == TOKENS
    checks = check(a)
    assert [law.name for law in checks] == list(LAWS)
    assert all(law.error <= 5e-6 for law in checks), checks
    applied = {law.name for law in checks if law.where != "not applicable"}
    assert applied >= STREAM_LAWS
    heads = {"attention", "two views", "heads"}
    assert applied >= heads if "heads" not in a.opaque else name in MIXERS or not applied & heads
    assert ("feed-forward" in applied) == ("feed_forward" not in a.opaque)
    assert ("hidden values" in applied) == any(f"L{i}.mlp_pre" in a.sites for i in range(a.layers))
    assert ("logits" in applied) == (a.W_U is not None)
    windowed = any(isinstance(block.mixer, Attention) and block.attention.window for block in a.blocks)
    assert "windows" in applied or not windowed
    assert _patterns_apart(a) <= 2e-6


def test_every_table_has_a_tiny_model():
    kinds = {*KINDS, *SENSES}
    tested = {name.partition("-")[0] for name in MAKERS} | kinds | {name.rpartition("-")[0] for name in kinds}
    assert {family.model_type for family in FAMILIES} <= tested
    assert len({family.model_type for family in FAMILIES}) == len(FAMILIES)


def test_encoders_are_not_causal(models):
    assert not any(models[name].causal for name in ENCODERS if "decoder" not in name)


def _mixer(a: Anatomy, layer: int, **changes) -> Anatomy:
    blocks = list(a.blocks)
    blocks[layer] = replace(blocks[layer], mixer=replace(blocks[layer].attention, **changes))
    return replace(a, blocks=tuple(blocks))


def _channels(a: Anatomy, layer: int, **changes) -> Anatomy:
    blocks = list(a.blocks)
    blocks[layer] = replace(blocks[layer], channels=replace(blocks[layer].channels, **changes))
    return replace(a, blocks=tuple(blocks))


def _router(a: Anatomy, layer: int, **changes) -> Anatomy:
    return _channels(a, layer, router=replace(a.blocks[layer].channels.router, **changes))


def _sites(a: Anatomy, part: str, **changes) -> Anatomy:
    return replace(a, sites={n: replace(s, **changes) if n.endswith(part) else s for n, s in a.sites.items()})


# What is wrong: (model, mutation). Each is a fact of one concept, read as if the model had it not, or otherwise.
MISTAKES = {
    "a window of 16 read as none": ("starcoder2", lambda a: _mixer(a, 1, window=None)),
    "a window that is one too long": ("gemma3_text", lambda a: _mixer(a, 0, window=17)),
    "a window where there is none": ("olmo3", lambda a: _mixer(a, 1, window=16)),
    "a relative's window read as none": ("cwm", lambda a: _mixer(a, 2, window=None)),
    "a mixture's window where there is none": ("dots1", lambda a: _mixer(a, 1, window=16)),
    "logits divided where they are multiplied": ("hyperclovax", lambda a: replace(a, logit_scale=1 / a.logit_scale)),
    "another activation's parameters": (
        "apertus",
        lambda a: _channels(a, 1, activation=a.blocks[0].channels.activation),
    ),
    "rotation by neighbours where halves turn": (
        "jais2",
        lambda a: _mixer(a, 1, rotary=replace(a.blocks[1].attention.rotary, pairs="neighbours")),
    ),
    "a built-in window read as none": ("gpt_neo", lambda a: _mixer(a, 1, window=None)),
    "an encoder's window one too short": ("modernbert", lambda a: _mixer(a, 1, window=12)),
    "the other layers' rotation": ("gemma3_text", lambda a: _mixer(a, 1, rotary=a.blocks[0].attention.rotary)),
    "rotation where there is none": ("smollm3", lambda a: _mixer(a, 1, rotary=a.blocks[0].attention.rotary)),
    "no rotation": ("cohere2", lambda a: _mixer(a, 0, rotary=None)),
    "halves turned where neighbours are": (
        "gptj",
        lambda a: _mixer(a, 1, rotary=replace(a.blocks[1].attention.rotary, pairs="halves")),
    ),
    "q-norm per head where it spans the layer": ("olmo2", lambda a: _mixer(a, 1, qk_span="head")),
    "q-norm of all heads alike": (
        "cohere",
        lambda a: _mixer(a, 1, q_norm=replace(a.blocks[1].attention.q_norm, gain=a.blocks[1].attention.q_norm.gain[0])),
    ),
    "key norms given to the wrong heads": (
        "stablelm",
        lambda a: _mixer(
            a, 1, k_norm=replace(a.blocks[1].attention.k_norm, gain=a.blocks[1].attention.k_norm.gain.flip(0))
        ),
    ),
    "ALiBi forgotten": ("bloom", lambda a: _mixer(a, 1, bias=None)),
    "ALiBi's slopes in another order": (
        "mpt",
        lambda a: _mixer(a, 1, bias=Slopes(a.blocks[1].attention.bias.slopes.flip(0))),
    ),
    "relative positions mirrored": ("mpnet", lambda a: _mixer(a, 1, bias=lambda o: a.blocks[1].attention.bias(-o))),
    "relative positions forgotten": ("mpnet", lambda a: _mixer(a, 1, bias=None)),
    "sinks forgotten": ("gpt_oss", lambda a: _mixer(a, 1, sinks=None)),
    "k and v swapped in a fused projection": (
        "codegen",
        lambda a: _mixer(a, 1, W_K=a.blocks[1].attention.W_V, W_V=a.blocks[1].attention.W_K),
    ),
    "writes not multiplied": ("granite", lambda a: _sites(a, ".attn_out", scale=1.0)),
    "W_O not multiplied": ("granite", lambda a: _mixer(a, 1, W_O=a.blocks[1].attention.W_O / 0.3)),
    "logits not divided": ("granite", lambda a: replace(a, logit_scale=1.0)),
    "embeddings not multiplied": ("granite", lambda a: replace(a, embed_scale=1.0)),
    "a weightless norm with another ε": (
        "olmo",
        lambda a: replace(a, ln_final=replace(a.ln_final, eps=1e-2)),
    ),
    "parallel taken for sequential": ("falcon", lambda a: replace(a, parallel=False)),
    "experts weighed without renormalising": ("mixtral", lambda a: _router(a, 1, renormalised=False)),
    "one expert too few": ("qwen3_moe", lambda a: _router(a, 1, top=1)),
    "shared experts forgotten": ("qwen2_moe", lambda a: _channels(a, 1, shared=None)),
    "shared experts not gated": ("qwen2_moe", lambda a: _channels(a, 1, shared_gate=None)),
    "groups of experts forgotten": ("deepseek_v2", lambda a: _router(a, 1, groups=1)),
    "the router's correction forgotten": ("deepseek_v3", lambda a: _router(a, 1, correction=None)),
    "the router's scale forgotten": ("deepseek_v3", lambda a: _router(a, 1, scale=1.0)),
    "gate and factor not clamped": (
        "gpt_oss",
        lambda a: _channels(
            a, 1, experts=tuple(replace(expert, factor=None) for expert in a.blocks[1].channels.experts)
        ),
    ),
    "a stream that starts before its norm": (
        "rwkv",
        lambda a: replace(a, sites={**a.sites, "L0.resid_pre": replace(a.sites["L0.resid_pre"], side="input")}),
    ),
    "a recurrence's norm without its one": (
        "recurrent_gemma",
        lambda a: replace(a, ln_final=replace(a.ln_final, gain=a.ln_final.gain - 1)),
    ),
    "a state space's write at the wrong place": (
        "mamba",
        lambda a: replace(a, sites={**a.sites, "L1.attn_out": replace(a.sites["L1.attn_out"], side="input")}),
    ),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_law_sees_the_mistake(models, mistake):
    name, mutate = MISTAKES[mistake]
    with pytest.raises(LawError, match="law '"):
        check(mutate(models[name]))


def test_queries_that_are_multiplied_by_their_place_are_read_up_to_it():
    """Llama 4's scaling multiplies queries behind the original context; a text that reaches there breaks a law."""
    rope = {"rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": 0.5}
    make = tiny_of(
        "Ministral3ForCausalLM", head_dim=16, rope_parameters={**rope, "original_max_position_embeddings": 8}
    )
    a = read(perturbed(make))
    assert a.context == 8
    check(a)
    with pytest.raises(LawError, match="law '"):
        check(replace(a, context=64))


def test_shrinking_windows_leaves_the_config_as_it_was(models):
    a = models["gemma3_text"]
    before = a.model.config.to_dict()
    check(a)
    assert a.model.config.to_dict() == before
    assert family_of("gemma3_text").window_setting == "sliding_window"

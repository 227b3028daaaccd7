"""What a recipe promises: its rates in closed form, the steps that are kept, shapes that can be built, and models."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from runs import small

from armillary.errors import ArmillaryError
from armillary.lab.model import build
from armillary.lab.recipe import ARCHITECTURES, PRESETS, Recipe, recipe


def test_the_rate_rises_in_a_line_and_falls_along_a_cosine():
    plan = recipe("smoke", steps=100, warmup=10, rate=2.0, floor=0.1)
    rates = [plan.rate_at(step) for step in range(101)]
    assert rates[:10] == pytest.approx([0.2 * (i + 1) for i in range(10)])
    assert max(rates) == rates[9] == rates[10] == 2.0
    assert rates[55] == pytest.approx(2.0 * (0.1 + 1.0) / 2), "half-way down, half-way between top and floor"
    assert rates[100] == pytest.approx(0.2)
    # A cosine: its second difference is minus itself, about the mean.
    middle = np.array(rates[10:]) - 1.1
    bend = -2 * (1 - math.cos(math.pi / 90))
    assert np.diff(middle, 2) == pytest.approx(bend * middle[1:-1])


@given(steps=st.integers(1, 10_000), warmup=st.integers(0, 200), floor=st.floats(0, 1), rate=st.floats(1e-6, 1.0))
def test_the_rate_is_never_above_its_height_nor_zero_nor_below_the_floor(steps, warmup, floor, rate):
    plan = recipe("smoke", steps=steps, warmup=warmup, floor=floor, rate=rate)
    rates = [plan.rate_at(step) for step in sorted({0, *range(0, steps, max(1, steps // 50)), steps - 1})]
    assert all(0 <= r <= rate * (1 + 1e-12) for r in rates)
    fallen = [plan.rate_at(step) for step in range(warmup, steps, max(1, steps // 50))]
    assert all(r >= floor * rate * (1 - 1e-12) for r in fallen)
    assert fallen == sorted(fallen, reverse=True)


@given(steps=st.integers(1, 100_000), keep=st.integers(2, 40))
def test_the_kept_steps_grow_by_one_factor_from_the_first_to_the_last(steps, keep):
    chosen = recipe("smoke", steps=steps, keep=keep).kept_steps
    assert chosen[0] == 0 and chosen[-1] == steps
    assert list(chosen) == sorted(set(chosen))
    assert len(chosen) <= keep
    if steps >= 2**keep:  # room for all of them, each at least twice as old as the one before
        assert len(chosen) == keep
        if keep > 3:
            ratios = np.diff(np.log(chosen[1:]))
            # Rounding moves a step by half at most.
            slack = np.array([0.5 / step for step in chosen[1:-1]]) + [0.5 / step for step in chosen[2:]]
            assert (np.abs(ratios - ratios.mean()) <= slack + 1e-9).all()


def test_a_shorter_run_warms_up_for_the_same_share():
    assert recipe("smoke").warmup == 20
    assert recipe("smoke", steps=50).warmup == 5
    assert recipe("smoke", steps=50, warmup=7).warmup == 7
    plan = recipe("smoke", steps=6)
    assert max(plan.rate_at(step) for step in range(6)) == plan.rate


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"preset": "smok"}, r"there is no preset 'smok'; did you mean 'smoke'\?"),
        ({"preset": "zzz"}, r"there is no preset 'zzz'; known: builtin, smoke\."),
        ({"architecture": "lama"}, r"there is no architecture 'lama'; did you mean 'llama'\?"),
        ({"stepz": 3}, r"there is no setting 'stepz'; did you mean 'steps'"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"steps": -1}, "steps must be at least 1, got -1"),
        ({"steps": 10**40}, "steps must be at most 2,147,483,647"),
        ({"kv_heads": 0}, "kv_heads must be at least 1, got 0"),
        ({"context": 1}, "context must be at least 2, got 1"),
        ({"keep": 1}, "keep must be at least 2, got 1"),
        ({"warmup": -1}, "warmup must be at least 0, got -1"),
        ({"vocabulary": 256}, "vocabulary must lie between 257 and 65536, got 256"),
        ({"vocabulary": 65537}, "vocabulary must lie between 257 and 65536, got 65537"),
        ({"rate": 0.0}, "rate must lie between 1e-12 and 1000.0, got 0.0"),
        ({"rate": float("nan")}, "rate must lie between 1e-12 and 1000.0, got nan"),
        ({"seed": -1}, "seed must lie between 0 and .*, got -1"),
        ({"dropout": 1.0}, "dropout must lie between 0 and 0.99, got 1.0"),
        ({"heads": 3}, "3 heads must divide the width 64.*; change one"),
        (
            {"kv_heads": 2},
            "a GPT has as many key/value heads as heads, and 2 and 4 .*; set both to the same number, or choose llama",
        ),
        ({"architecture": "llama", "kv_heads": 3}, "3 key/value heads must divide the heads; change one"),
        ({"architecture": "llama", "heads": 64}, "heads of width 1 have an odd number; choose another"),
    ],
    ids=str,
)
def test_what_cannot_be_trained_is_refused(asked, message):
    with pytest.raises(ArmillaryError, match=message):
        recipe(**{"preset": "smoke", **asked})


def test_an_architecture_is_checked_in_a_recipe_made_by_hand():
    with pytest.raises(ArmillaryError, match="did you mean 'llama'"):
        Recipe(**{**recipe("smoke").to_dict(), "architecture": "llamma"})


# Models.


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_seed_is_a_model_and_the_caller_keeps_his_random_state(architecture, monkeypatch):
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("a GPU of the caller's was seeded"))
    torch.default_generator.manual_seed(5)
    before = torch.get_rng_state()
    first, other = build(small(architecture)), build(small(architecture, seed=1))
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again = build(small(architecture))
    assert all(torch.equal(a, b) for a, b in zip(weights(first).values(), weights(again).values(), strict=True))
    embeddings = [model.get_input_embeddings().weight for model in (first, other)]
    assert not torch.equal(*embeddings), "control: another seed is another model"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_built_in_models_fit_into_sixteen_megabytes_of_float16(architecture):
    with torch.device("meta"):
        model = build(PRESETS["builtin"][architecture])
    count = sum(parameter.numel() for parameter in model.parameters())
    assert 7_500_000 < count <= 8_000_000
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert model.config.tie_word_embeddings


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_model_has_the_recipes_shape(architecture):
    plan = small(architecture, layers=3, width=24, heads=4, kv_heads=4 if architecture == "gpt" else 2)
    config = build(plan, end=7).config
    shape = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.vocab_size)
    assert shape == (3, 24, 4, 280)
    assert config.max_position_embeddings == 16
    assert (config.bos_token_id, config.eos_token_id) == (7, 7)
    if architecture == "llama":
        assert (config.num_key_value_heads, config.intermediate_size) == (2, 32)
    else:
        dropped = build(small(dropout=0.3)).config
        assert (dropped.n_inner, dropped.embd_pdrop, dropped.resid_pdrop, dropped.attn_pdrop) == (32, 0.3, 0.3, 0.0)


def test_a_llama_drops_what_is_written_to_the_stream_and_nothing_else():
    """At a share of one half every coordinate that is written is zero or its double."""
    model = build(small("llama", layers=2, dropout=0.5)).train()
    plain = build(small("llama", layers=2)).train()
    seen: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        module.register_forward_hook(lambda module, args, out, name=name: seen.__setitem__(name, out))
    ids = torch.arange(32).reshape(2, 16)
    torch.default_generator.manual_seed(0)
    first = model(input_ids=ids).logits
    embedded = seen["model.embed_tokens"]
    written = plain.model.embed_tokens(ids)
    assert ((embedded == 0) | torch.isclose(embedded, 2 * written)).all()
    writers = [f"model.layers.{i}.{part}" for i in range(2) for part in ("self_attn.o_proj", "mlp.down_proj")]
    for name in ("model.embed_tokens", *writers):
        assert 0.4 < float((seen[name] == 0).float().mean()) < 0.6, name
    others = [name for name in seen if name.endswith(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head"))]
    assert len(others) == 11
    assert not any((seen[name] == 0).any() for name in others)
    torch.default_generator.manual_seed(1)
    assert not torch.equal(model(input_ids=ids).logits, first)
    torch.default_generator.manual_seed(0)
    assert torch.equal(model(input_ids=ids).logits, first)


def test_a_llamas_dropout_is_gone_when_it_is_read_and_leaves_no_trace_in_what_is_saved():
    model, plain = build(small("llama", dropout=0.5)).eval(), build(small("llama")).eval()
    ids = torch.arange(16)[None]
    before = torch.get_rng_state()
    assert torch.equal(model(input_ids=ids).logits, plain(input_ids=ids).logits)
    assert torch.equal(torch.get_rng_state(), before), "nothing was drawn"
    assert model.config.to_dict() == plain.config.to_dict()
    assert type(model) is type(plain)
    ours, theirs = weights(model), weights(plain)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
def test_the_preset_is_what_was_shipped_to_the_step(architecture):
    import json
    from importlib.resources import files

    stored = json.loads((files("armillary") / "builtin" / architecture / "recipe.json").read_text())
    assert stored["recipe"] == recipe("builtin", architecture).to_dict()

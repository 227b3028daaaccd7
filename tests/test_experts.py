"""Claims about feed-forward layers, expert by expert: a mixture that discards is found, one that does not is not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tr
from tiny_kinds import KINDS

import armillary
from armillary.anatomy.anatomy import Routed
from armillary.anatomy.entries.signal import random_ids
from armillary.anatomy.folded import mlp_norm
from armillary.anatomy.parts import SHARED
from armillary.anatomy.read import read
from armillary.edits import edited
from armillary.flow.capture import run, still, watching
from armillary.flow.tokens import Corpus
from armillary.probes.filter.activations.mixtures import expand
from armillary.probes.filter.expert_parts import parts_of, units_of
from armillary.probes.filter.selection.expert_edits import ChangeExperts
from armillary.probes.machinery import T
from armillary.probes.machinery.limits.applicability import NotApplicable, applicable
from armillary.results import Finding, Why
from armillary.results.calibration import Planted
from armillary.specimens.models.bag import CONTEXT, VOCABULARY
from armillary.specimens.models.draws import normal
from armillary.specimens.models.perturbed import perturbed
from armillary.specimens.models.texts import chained, corpus, documents_of
from armillary.specimens.models.units.filter_units import WIDTH, WORDS, finders, frame, nexts
from armillary.specimens.models.units.unit_writes import copying, misread, summarising
from armillary.specimens.planted.case import Case, conclude, probe_of
from armillary.specimens.untrained import tokenizer

EXPERTS, TOP = 4, 2


def planted(discards: bool) -> tr.PreTrainedModel:
    """Every token's direction is one axis and a little noise; nine of ten gates of every expert point against it."""
    torch.manual_seed(1)
    config = tr.MixtralConfig(
        vocab_size=8192, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=EXPERTS, num_experts_per_tok=TOP, max_position_embeddings=512,
        bos_token_id=0, eos_token_id=0, pad_token_id=0, sliding_window=None,
    )  # fmt: skip
    model = tr.MixtralForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 1.0
        for layer in model.model.layers:
            layer.mlp.experts.down_proj.mul_(0.01)
            gate = layer.mlp.experts.gate_up_proj[:, :40]
            gate.normal_(0, 0.5)
            if discards:
                against = torch.where(torch.arange(40) % 10 == 0, 4.0, -4.0)
                gate[:, :, 0] = against
    return model.eval()


@pytest.mark.parametrize(("discards", "verdict"), [(True, "supported"), (False, "refuted")])
def test_a_mixture_that_discards_is_told_from_one_that_does_not(discards, verdict):
    model = armillary.load(planted(discards), tokenizer=tokenizer("gpt"), progress=False)
    survey = armillary.survey(model, claims="ffn.discard,map.nonlinear", tokens=1500, progress=False)
    finding = survey["ffn.discard"]
    assert finding.verdict == verdict, finding.reading
    table = finding.more_tables["experts"]
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    assert [row["expert"] for row in rows[: EXPERTS + 1]] == [*(f"E{e}" for e in range(EXPERTS)), "routed sum"]
    for layer in range(3):
        mine = [row for row in rows if row["layer"] == f"L{layer}"]
        # Every token has TOP experts, and is one row of the routed sum.
        assert sum(row["tokens"] for row in mine[:-1]) == TOP * mine[-1]["tokens"]
        assert all((row["below"] > 2 / 3) == discards for row in mine if row["tokens"] > 50)
    assert survey["map.nonlinear"].why is Why.NOT_APPLICABLE


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe", "deepseek_v3", "gpt_oss"])
def test_coordinates_of_all_experts_give_the_write(name):
    """Side by side and weighed, the experts' coordinates through all W_out are what the layer writes."""
    a = read(perturbed(KINDS[name]))
    layer = next(i for i, block in enumerate(a.blocks) if isinstance(block.channels, Routed))
    mixture, seen = a.blocks[layer].channels, {}
    sites = (mlp_norm(a, layer)[0], f"L{layer}.mlp_out")
    with still(a.model), watching(a, {s: lambda given, y, s=s: seen.update({s: y.clone()}) for s in sites}):
        run(a, random_ids(a, 2, 10, seed=3))
    y = seen[sites[0]].flatten(0, 1)
    units = expand(mixture, y)
    pre, post, present = units.pre, units.post, units.present
    assert pre.shape[1] == post.shape[1] == present.shape[1] == units_of(mixture)
    parts = parts_of(mixture)
    assert (SHARED in parts) == (mixture.shared is not None)
    write = post @ torch.cat([part.W_out for part in parts.values()])
    weights = mixture.router(y)
    for number, expert in enumerate(mixture.experts):
        if expert.b_out is not None:
            write = write + weights[:, number, None] * expert.b_out
    theirs = seen[sites[1]].flatten(0, 1)
    np.testing.assert_allclose(write.numpy(), theirs.numpy(), atol=5e-6 * float(theirs.abs().max()))
    assert (post[~present] == 0).all()


# Mixtures of planted feed-forwards. Words are orthonormal, or Gaussian, beside one axis that all words share: the gate
# reads it for its shift, and the other branch reads it alone, so that its factor is 1.
D, AXIS = 72, 71
Layer = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def mixture(words: torch.Tensor, layers: list[list[Layer]], gains: bool = True) -> armillary.anatomy.Anatomy:
    """Every layer has one dense layer (W_in, b_in, W_out) per expert; words read W_in in units of their own length."""
    torch.manual_seed(3)
    m = max(W_in.shape[1] for experts in layers for W_in, _, _ in experts)
    config = tr.MixtralConfig(
        vocab_size=len(words), hidden_size=D, intermediate_size=m, num_hidden_layers=len(layers), head_dim=8,
        num_attention_heads=2, num_key_value_heads=1, num_local_experts=len(layers[0]), num_experts_per_tok=TOP,
        max_position_embeddings=CONTEXT, hidden_act="relu", tie_word_embeddings=True, sliding_window=None,
        bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    model = tr.MixtralForCausalLM(config).eval()
    size = float(words.square().sum(1).mean().sqrt())
    # The shared axis is as long as a word, so that a state's rows come out of the norm √(d/2) long on either side.
    back = (2 / D) ** 0.5
    with torch.no_grad():
        embedding = model.model.embed_tokens.weight.zero_()
        embedding[:, : words.shape[1]], embedding[:, AXIS] = words / size, 1.0
        for block, experts in zip(model.model.layers, layers, strict=True):
            block.self_attn.o_proj.weight.zero_()
            block.mlp.experts.gate_up_proj.zero_()
            block.mlp.experts.down_proj.zero_()
            # What all words share must not choose an expert.
            block.mlp.gate.weight.normal_()[:, AXIS] = 0.0
            gain = 0.5 + torch.rand(D) if gains else torch.ones(D)
            block.post_attention_layernorm.weight.copy_(gain)
            block.mlp.gate.weight.div_(gain)
            for e, (W_in, b_in, W_out) in enumerate(experts):
                gate_up = block.mlp.experts.gate_up_proj[e]
                gate_up[: W_in.shape[1], : len(W_in)] = back * W_in.T * size
                gate_up[: W_in.shape[1], AXIS] = back * b_in
                gate_up[m:, AXIS] = back
                gate_up.div_(gain)
                block.mlp.experts.down_proj[e, : W_out.shape[1], : len(W_out)] = W_out.T
    return read(model, "planted")


def concluded(claim: str, anatomy: armillary.anatomy.Anatomy, text: Corpus, seed: int = 0) -> Finding:
    return conclude(Case(Planted("a mixture", claim, "supported", (1.0,)), lambda strength, seed: (anatomy, text)))


def filtered() -> Layer:
    """One unit per word predicts the next and is a little below zero for others; 120 are far below zero; 60 are on."""
    found_in, found_b = finders(4, -0.2)
    W_in = torch.cat((found_in * WIDTH**0.5, torch.zeros(WIDTH, 3 * WORDS)), 1)
    b_in = torch.cat((found_b, torch.full((2 * WORDS,), -5.0), torch.ones(WORDS)))
    return W_in, b_in, torch.cat((nexts(2), torch.zeros(3 * WORDS, WIDTH)))


def always() -> Layer:
    """Every word is detected by a unit that is always on; as many are always off and say as much."""
    (on_in, on_b), (off_in, off_b) = finders(9, 5), finders(-5, -9)
    W_out = torch.cat((nexts(2), 0 * frame()))
    return torch.cat((on_in, off_in), 1) * WIDTH**0.5, torch.cat((on_b, off_b)), W_out


def word_units() -> Layer:
    """One unit per word, which alone is on and writes the next word."""
    W_in, b_in = finders(4, -4)
    return W_in * WIDTH**0.5, b_in, nexts(2)


def at_random(seed: int = 0) -> Layer:
    W_in = normal(WIDTH, 2 * WIDTH, stream=4, seed=seed) / WIDTH**0.5
    return W_in, torch.zeros(2 * WIDTH), normal(2 * WIDTH, WIDTH, stream=7, seed=seed) / 10


def skewed_words() -> torch.Tensor:
    """Coordinates that are mostly a little below zero and rarely far above."""
    rng = np.random.default_rng(5)
    near, far = -rng.uniform(0, 2, (VOCABULARY, 32)), rng.uniform(3, 6, (VOCABULARY, 32))
    return torch.from_numpy(np.where(rng.random(near.shape) < 0.1, far, near)).float()


def coordinates() -> Layer:
    """A unit reads one coordinate."""
    return torch.eye(32), torch.zeros(32), torch.zeros(32, 32)


def turned(seed: int) -> Layer:
    """A unit reads a random direction."""
    return torch.linalg.qr(normal(32, 32, stream=9, seed=seed))[0], torch.zeros(32), torch.zeros(32, 32)


def words_of(kind: str) -> torch.Tensor:
    return {"frame": frame, "skewed": skewed_words, "normal": lambda: normal(VOCABULARY, WIDTH, stream=5)}[kind]()


PLANTED: dict[str, tuple[str, str, Layer, str]] = {
    "compress, rare and far above": ("ffn.compress", "skewed", coordinates(), "supported"),
    "compress, random directions": ("ffn.compress", "normal", at_random(), "refuted"),
    "select, chosen in context": ("ffn.select", "frame", filtered(), "supported"),
    "select, the same units always": ("ffn.select", "frame", always(), "refuted"),
    "store, one unit a word": ("ffn.store", "frame", word_units(), "supported"),
    "store, random units": ("ffn.store", "normal", at_random(), "refuted"),
    "write, few directions": ("ffn.write", "normal", summarising(), "supported"),
    "write, a copy of the input": ("ffn.write", "normal", copying(), "refuted"),
}


def expert_rows(finding: Finding) -> list[dict[str, Any]]:
    table = finding.more_tables["experts"]
    return [dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows]


@pytest.mark.parametrize("name", PLANTED)
def test_a_mixture_of_planted_layers_is_told_as_the_layer_is(name):
    """All experts are one planted layer, and the router's weights add up to 1: the routed sum is that layer."""
    claim, words, layer, verdict = PLANTED[name]
    text = chained(16, 32) if claim == "ffn.select" else chained(24, 40) if words == "frame" else corpus(24, 40)
    finding = concluded(claim, mixture(words_of(words), [[layer] * EXPERTS] * 2), text)
    # The store is one by definition; that a token matches few keys is its second part.
    decided = finding.parts[1].verdict if claim == "ffn.store" else finding.verdict
    assert decided == verdict, finding.reading
    rows = expert_rows(finding)
    assert {row["expert"] for row in rows} == {f"E{e}" for e in range(EXPERTS)}
    assert all(row["tokens"] >= 0 for row in rows)


OTHERS: dict[str, tuple[str, str, Layer, Layer, Callable[[dict[str, Any]], bool]]] = {
    "compress": ("ffn.compress", "skewed", coordinates(), turned(1), lambda row: row["more"] > T.compress_margin),
    "store": ("ffn.store", "frame", word_units(), at_random(), lambda row: row["ratio"] > T.store_ratio),
    "write": ("ffn.write", "normal", summarising(), copying(), lambda row: row["saved"] > T.write_saved),
    "select": (
        *("ffn.select", "frame", filtered(), always()),
        lambda row: row["next_discarded"] < T.select_half * row["next_kept"],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_one_expert_that_differs_is_seen(name):
    claim, words, layer, other, holds = OTHERS[name]
    text = chained(16, 32) if words == "frame" else corpus(24, 40)
    anatomy = mixture(words_of(words), [[layer] * (EXPERTS - 1) + [other]])
    rows = {row["expert"]: row for row in expert_rows(concluded(claim, anatomy, text))}
    assert len(rows) == EXPERTS
    assert [holds(row) for row in rows.values()] == [True] * (EXPERTS - 1) + [False], rows


def test_a_misread_gain_refutes_the_store():
    anatomy = mixture(words_of("normal"), [[at_random()] * EXPERTS] * 2)
    assert concluded("ffn.store", anatomy, corpus(24, 40)).verdict == "supported"
    assert concluded("ffn.store", misread(anatomy, 0.1), corpus(24, 40)).verdict == "refuted"


def test_changing_nothing_changes_nothing_and_zeroing_all_silences_the_layer():
    anatomy = mixture(words_of("frame"), [[word_units()] * EXPERTS] * 2)
    batch = next(iter(chained(4, 20).batches(64)))
    with still(anatomy.model):
        plain = run(anatomy, batch.ids, batch.mask)
        with edited(anatomy, ChangeExperts(0, lambda units: units.post)):
            same = run(anatomy, batch.ids, batch.mask)
        with edited(anatomy, *(ChangeExperts(i, lambda units: 0 * units.post) for i in (0, 1))):
            silent = run(anatomy, batch.ids, batch.mask)
        assert torch.equal(run(anatomy, batch.ids, batch.mask), plain)
    torch.testing.assert_close(same, plain)
    embedded = anatomy.W_E[batch.ids]
    torch.testing.assert_close(silent, anatomy.ln_final(embedded), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", "qwen2_moe qwen3_moe olmoe gpt_oss deepseek_v2 deepseek_v3".split())
def test_every_family_of_experts_is_measured_or_says_why_not(name):
    model = armillary.load(perturbed(KINDS[name]), progress=False)
    text = documents_of(random_ids(model, 6, 20, seed=1))
    for claim in ("ffn.discard", "ffn.compress", "ffn.select", "ffn.store", "ffn.write"):
        probe = applicable(probe_of(claim), model)
        if isinstance(probe, NotApplicable):
            assert claim == "ffn.store" and "multi-latent attention" in probe.reading
            continue
        finding = concluded(claim, model, text)
        assert finding.more_tables["experts"].rows, claim
        assert np.isfinite(finding.statistic.value), (claim, finding.reading)

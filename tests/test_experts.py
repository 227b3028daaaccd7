"""Claims about feed-forward layers, expert by expert: a mixture that discards is found, one that does not is not."""

import numpy as np
import pytest
import torch
import transformers as tr
from tiny_kinds import KINDS

import armillary
from armillary.anatomy.anatomy import Routed
from armillary.anatomy.entries.signal import random_ids
from armillary.anatomy.folded import mlp_norm
from armillary.anatomy.read import read
from armillary.flow.capture import run, still, watching
from armillary.probes.filter.activations.mixtures import SHARED, expand, parts_of, units_of
from armillary.results import Why
from armillary.specimens.models.perturbed import perturbed
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
    survey = armillary.survey(model, claims="ffn.discard,ffn.compress", tokens=1500, progress=False)
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
    assert survey["ffn.compress"].why is Why.NOT_APPLICABLE


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
    pre, post, present = expand(mixture, y)
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

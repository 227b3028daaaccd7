"""Models of images and sound are lawful, attend as the library's models do, and their mistakes are seen."""

from dataclasses import replace

import pytest
import torch
import transformers as tr
from tiny_senses import LONG_CLIPS, SENSES

from armillary.anatomy import Anatomy, Attention
from armillary.anatomy.encoder import Encoder
from armillary.anatomy.entries.signal import random_ids, with_table
from armillary.anatomy.read import read
from armillary.errors import LawError
from armillary.flow.attention import attend, cross_attend, rotation, scores_of, visible
from armillary.flow.capture import run, still, watching
from armillary.flow.law_passes import QUERIES, look
from armillary.flow.laws import LAWS, _size, check
from armillary.specimens.models.perturbed import perturbed

# What is read in patches or frames, not in words.
OF_SIGNALS = (
    "vit vit-plain deit dinov2 dinov2-swiglu dinov2_with_registers dinov3_vit "
    "dinov3_vit-gated clip_vision_model convnext convnext-isotropic armillary_mixer whisper.encoder"
).split()
STREAM_LAWS = {"shapes", "embedding", "norm", "stream", "edits"}


def _model(name: str) -> Anatomy:
    return read(perturbed(SENSES[name]))


def _patterns_apart(a: Anatomy) -> float:
    seen: dict[str, torch.Tensor] = {}
    layers = [i for i, block in enumerate(a.blocks) if isinstance(block.mixer, Attention)]
    own = {i: f"L{i}.ln1" if a.order == "pre" else f"L{i}.resid_pre" for i in layers}
    ids = random_ids(a, 1, 60, seed=5)
    sites = [*own.values(), *(f"L{i}.pattern" for i in layers)]
    with still(a.model), watching(a, {s: lambda given, y, s=s: seen.update({s: y.clone()}) for s in sites}):
        run(a, ids)
    gaps = _cross_gaps(a, ids)
    for i in layers:
        part, turn = a.blocks[i].attention, rotation(a, i, ids.shape[1])
        gap = attend(part, seen[own[i]], turn, a.causal)[0] - seen[f"L{i}.pattern"]
        # T5 does not scale its scores: a rounding is a share of the largest that a query sees.
        scores = scores_of(part, seen[own[i]], turn)[..., visible(part, ids.shape[1], a.causal, gap.device)]
        gaps.append(gap / _size(scores))
    return max((float(gap.abs().max()) for gap in gaps), default=0.0)


def _cross_gaps(a: Anatomy, ids: torch.Tensor) -> list[torch.Tensor]:
    """Our patterns of cross attention less the library's own, layer by layer."""
    if a.encoder is None:
        return []
    seen: dict[str, torch.Tensor] = {}
    reads = [f"L{i}.{'ln_cross' if a.order == 'pre' else 'ln1'}" for i in range(a.layers)]
    sites = [*reads, *(f"L{i}.cross_pattern" for i in range(a.layers))]
    with still(a.model), watching(a, {s: lambda given, y, s=s: seen.update({s: y.clone()}) for s in sites}):
        run(a, ids)
    states = a.encoder.states(ids)[0]
    return [
        (cross_attend(block.cross, seen[reads[i]], states)[0] - seen[f"L{i}.cross_pattern"])
        / _size(scores_of(block.cross, seen[reads[i]], None, states))
        for i, block in enumerate(a.blocks)
    ]


@pytest.mark.parametrize("name", list(SENSES))
def test_a_family_is_lawful_and_attends_as_the_library_does(name):
    a = _model(name)
    checks = check(a)
    assert [law.name for law in checks] == list(LAWS)
    assert all(law.error <= 5e-6 for law in checks), checks
    assert (a.signal is not None) == (name in OF_SIGNALS)
    applied = {law.name for law in checks if law.where != "not applicable"}
    assert applied >= STREAM_LAWS
    assert ("cross attention" in applied) == (a.encoder is not None) == ("decoder" in name)
    assert ({"attention", "two views", "heads"} <= applied) == ("heads" not in a.opaque)
    assert ("feed-forward" in applied) == ("feed_forward" not in a.opaque)
    assert _patterns_apart(a) <= 2e-6


@pytest.mark.parametrize("name", OF_SIGNALS)
def test_ids_name_patches_of_the_whole_input(name):
    a = _model(name)
    assert a.signal is not None
    whole = torch.randn(2, a.signal.channels, *(g * p for g, p in zip(a.signal.grid, a.signal.patch, strict=True)))
    rows = a.signal.rows(whole)
    a = with_table(a, rows.reshape(-1, rows.shape[-1]))
    ids = a.signal.ids(torch.arange(rows.shape[0] * rows.shape[1]).reshape(rows.shape[:2]))
    again = a.inputs(ids)[a.signal.argument]
    assert torch.equal(again.reshape(whole.shape), whole)
    assert a.vocabulary == len(a.W_E) == a.signal.prefix + rows.shape[0] * rows.shape[1]
    with pytest.raises(ValueError, match=r"expected \d+ tokens for one of"):
        a.inputs(ids[:, 1:])


def _layer(a: Anatomy, part: str, **changes) -> Anatomy:
    block = a.blocks[1]
    blocks = (a.blocks[0], replace(block, **{part: replace(getattr(block, part), **changes)}), *a.blocks[2:])
    return replace(a, blocks=blocks)


def _positions(a: Anatomy, change) -> Anatomy:
    return replace(a, positions=replace(a.positions, table=change(a.positions.table)))


def _inner(a: Anatomy) -> str:
    return a.sites["L1.attn_out"].path.replace("drop_path", "pwconv2")


class _Elsewhere(Encoder):
    """Says other states than those that the decoder is given."""

    def states(self, ids, mask=None):
        other = self.sound is None
        return Encoder(self.module, None if other else self.start, self.sound).states(ids, mask)[0].roll(1, 2), None

    def inputs(self, ids, mask, whole):
        return Encoder(self.module, self.start, self.sound).inputs(ids, mask, whole)


# What is wrong: (model, mutation).
MISTAKES = {
    "patches in another order": (
        "vit",
        lambda a: with_table(replace(a, W_E=a.W_E), a.signal.table.reshape(-1, 3, 16).flip(1).reshape(-1, 48)),
    ),
    "the class token's position given to the first patch": ("vit", lambda a: _positions(a, lambda t: t.roll(1, 0))),
    "registers with positions": (
        "dinov2_with_registers",
        lambda a: _positions(a, lambda t: torch.cat((t[:1], t[4:7], t[4:]))),
    ),
    "class token and distillation token swapped": (
        "deit",
        lambda a: replace(a, W_E=a.W_E[[1, 0, *range(2, len(a.W_E))]]),
    ),
    "layer scale of attention forgotten": (
        "dinov2",
        lambda a: _layer(a, "mixer", W_O=a.blocks[1].attention.W_O * 1.5),
    ),
    "layer scale of the feed-forward forgotten": (
        "dinov2",
        lambda a: _layer(a, "channels", W_out=a.blocks[1].feed_forward.W_out * 1.5),
    ),
    "a convolution's write at the wrong place": (
        "convnext",
        lambda a: replace(a, sites={**a.sites, "L1.attn_out": replace(a.sites["L1.attn_out"], path=_inner(a))}),
    ),
    "the second convolution's stride forgotten": (
        "whisper.encoder",
        lambda a: replace(a, signal=replace(a.signal, joined=lambda x: a.signal.joined(x).roll(1, 1))),
    ),
    "Whisper's positions forgotten": ("whisper.encoder", lambda a: _positions(a, torch.zeros_like)),
    "a narrow embedding's norm forgotten": ("albert", lambda a: replace(a, entry=replace(a.entry, norm=None))),
    "a projection's bias forgotten": ("electra-narrow", lambda a: replace(a, entry=replace(a.entry, b=None))),
    "relative positions of the first layer only": ("t5.encoder", lambda a: _layer(a, "mixer", bias=None)),
    "relative positions of another layer": (
        "umt5.encoder",
        lambda a: _layer(a, "mixer", bias=a.blocks[0].attention.bias),
    ),
    "an encoder that reads the start token": (
        "mbart.decoder",
        lambda a: replace(a, encoder=_Elsewhere(a.encoder.module, a.encoder.start)),
    ),
    "cross attention's keys and values swapped": (
        "t5.decoder",
        lambda a: _layer(a, "cross", W_K=a.blocks[1].cross.W_V, W_V=a.blocks[1].cross.W_K),
    ),
    "relative positions in cross attention's place": (
        "t5.decoder",
        lambda a: _layer(a, "mixer", bias=None),
    ),
    "a decoder's distances counted both ways": (
        "umt5.decoder",
        lambda a: _layer(a, "mixer", bias=replace(a.blocks[1].attention.bias, both_ways=True)),
    ),
    "cross attention's write forgotten": (
        "pegasus.decoder",
        lambda a: replace(a, blocks=(a.blocks[0], replace(a.blocks[1], cross=None), a.blocks[2])),
    ),
    "the feed-forward layer read behind the wrong norm": (
        "marian.decoder",
        lambda a: replace(a, blocks=tuple(replace(b, ln_cross=b.ln1) for b in a.blocks)),
    ),
    "cross attention's bias forgotten": ("bart.decoder", lambda a: _layer(a, "cross", b_Q=None)),
    "another clip heard": (
        "whisper.decoder",
        lambda a: replace(a, encoder=_Elsewhere(a.encoder.module, a.encoder.start, a.encoder.sound)),
    ),
    "the bias of logits forgotten": ("bart.decoder", lambda a: replace(a, b_U=None)),
    "logits not scaled by the width": ("t5.decoder", lambda a: replace(a, logit_scale=1.0)),
    "embeddings not scaled": ("bart.encoder", lambda a: replace(a, embed_scale=1.0)),
    "the norm of CLIP's embeddings forgotten": ("clip_vision_model", lambda a: replace(a, ln_embed=None)),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_law_sees_the_mistake(mistake):
    name, mutate = MISTAKES[mistake]
    a = _model(name)
    broken = mutate(a)
    if broken.W_E is not a.W_E and broken.signal is not a.signal:
        # The vectors follow the wrong rows, and the model is given the right ones.
        broken = replace(broken, signal=a.signal)
    with pytest.raises(LawError, match="law '"):
        check(broken)


def test_patterns_of_a_long_clip_are_checked_at_some_queries():
    """All patterns of 1500 frames in all layers would take gigabytes; a mistake is still seen."""
    a = read(perturbed(lambda: tr.WhisperModel(tr.WhisperConfig(**LONG_CLIPS))).encoder)
    assert a.context == 300
    seen = look(a)
    assert len(seen.ids) == 1
    assert seen.y("L0.pattern").shape == (1, a.n_heads, QUERIES, 300)
    assert all(law.error <= law.tolerance for law in check(a))
    with pytest.raises(LawError, match="law 'attention'"):
        check(_layer(a, "mixer", W_Q=a.blocks[1].attention.W_Q.flip(0), b_Q=a.blocks[1].attention.b_Q))

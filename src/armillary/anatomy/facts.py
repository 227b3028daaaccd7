"""The facts of a model that reports and `armillary anatomy` show."""

from typing import Any

from armillary.anatomy.anatomy import Anatomy, Attention, FeedForward, Routed
from armillary.results import ModelFacts


def facts(anatomy: Anatomy) -> dict[str, Any]:
    """All that `armillary anatomy` prints: the model in a few facts, its norms, its sites and the laws' errors."""
    attentions = [block.mixer for block in anatomy.blocks if isinstance(block.mixer, Attention)]
    attention = attentions[0] if attentions else None
    dense = next((block.channels for block in anatomy.blocks if isinstance(block.channels, FeedForward)), None)
    norms = [
        {
            "site": site,
            "kind": norm.kind,
            "eps": norm.eps,
            "gain": list(norm.gain.shape),
            "shift": norm.shift is not None,
        }
        for site, norm in anatomy.norms.items()
    ]
    return {
        **describe(anatomy).to_dict(),
        "activation": "" if dense is None else dense.activation_name,
        "gated": dense is not None and dense.W_gate is not None,
        "experts": _experts(anatomy),
        "qkv_bias": attention is not None and attention.b_Q is not None,
        "qk_norm": attention is not None and attention.q_norm is not None,
        "attention_softcap": None if attention is None else attention.softcap,
        "score_bias": attention is not None and attention.bias is not None,
        "sinks": attention is not None and attention.sinks is not None,
        "logit_softcap": anatomy.logit_softcap,
        "windows": sorted({part.window for part in attentions if part.window is not None}),
        "rotary": {"dims": anatomy.positions.rotary_dims, "theta": anatomy.positions.rotary_theta},
        "unembedding": anatomy.W_U is not None,
        "tied": anatomy.W_U is not None and anatomy.W_U.data_ptr() == anatomy.W_E.data_ptr(),
        "shapes": {
            **_shapes(attention, ("W_Q", "W_K", "W_V", "W_O")),
            **_shapes(dense, ("W_in", "W_out")),
            "W_E": list(anatomy.W_E.shape),
        },
        "norms": norms,
        "sites": [{"site": s.name, "module": s.path, "side": s.side} for s in anatomy.sites.values()],
        "laws": [law.to_dict() for law in anatomy.laws],
    }


def _shapes(part: Attention | FeedForward | None, names: tuple[str, ...]) -> dict[str, list[int]]:
    return {} if part is None else {name: list(getattr(part, name).shape) for name in names}


def _experts(anatomy: Anatomy) -> dict[str, int]:
    """How many experts a layer has, and how many of them a token gets; nothing without experts."""
    mixtures = [block.channels for block in anatomy.blocks if isinstance(block.channels, Routed)]
    return {"number": len(mixtures[0].experts), "top": mixtures[0].router.top} if mixtures else {}


def not_understood(anatomy: Anatomy) -> tuple[str, ...]:
    """The parts whose inside is not understood, in words."""
    words = {"heads": "no heads are read: layers mix tokens by {}", "hidden": "no hidden values are read: {}"}
    parts = [words[part].format(what) for part, what in anatomy.opaque.items() if part in words]
    if anatomy.packed:
        parts.append(
            f"weights packed by {anatomy.packed} are not read, and a token's values are rounded with its batch"
        )
    parts += [f"the {part} part is not read: add #{part} to the model's name" for part in anatomy.other_parts]
    return tuple(parts)


def describe(anatomy: Anatomy) -> ModelFacts:
    """A model in a few facts, for reports."""
    return ModelFacts(
        name=anatomy.name,
        family=anatomy.family,
        **anatomy.provenance,
        parameters=sum(p.numel() for p in anatomy.model.parameters()),
        layers=anatomy.layers,
        d=anatomy.d,
        heads=anatomy.n_heads,
        kv_heads=anatomy.n_kv_heads,
        k=anatomy.k,
        m=anatomy.m,
        vocabulary=anatomy.vocabulary,
        context=anatomy.context,
        norm=next(iter(anatomy.norms.values())).kind,
        norm_sites=len(anatomy.norms),
        order=anatomy.order,
        parallel=anatomy.parallel,
        causal=anatomy.causal,
        positions=anatomy.positions.kind,
        config_ignored=tuple(anatomy.config_ignored),
        not_understood=not_understood(anatomy),
        weights_ignored=anatomy.weights_ignored,
    )

"""The facts of a model that reports and `armillary anatomy` show."""

from typing import Any

from armillary.anatomy.anatomy import Anatomy
from armillary.results import ModelFacts


def facts(anatomy: Anatomy) -> dict[str, Any]:
    """All that `armillary anatomy` prints: the model in a few facts, its norms, its sites and the laws' errors."""
    attention = anatomy.blocks[0].attention
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
        "activation": anatomy.blocks[0].feed_forward.activation_name,
        "gated": anatomy.blocks[0].feed_forward.W_gate is not None,
        "qkv_bias": attention.b_Q is not None,
        "qk_norm": attention.q_norm is not None,
        "attention_softcap": attention.softcap,
        "logit_softcap": anatomy.logit_softcap,
        "windows": sorted({b.attention.window for b in anatomy.blocks if b.attention.window is not None}),
        "rotary": {"dims": anatomy.positions.rotary_dims, "theta": anatomy.positions.rotary_theta},
        "tied": anatomy.W_U is not None and anatomy.W_U.data_ptr() == anatomy.W_E.data_ptr(),
        "shapes": {
            "W_Q": list(attention.W_Q.shape),
            "W_K": list(attention.W_K.shape),
            "W_V": list(attention.W_V.shape),
            "W_O": list(attention.W_O.shape),
            "W_in": list(anatomy.blocks[0].feed_forward.W_in.shape),
            "W_out": list(anatomy.blocks[0].feed_forward.W_out.shape),
            "W_E": list(anatomy.W_E.shape),
        },
        "norms": norms,
        "sites": [{"site": s.name, "module": s.path, "side": s.side} for s in anatomy.sites.values()],
        "laws": [law.to_dict() for law in anatomy.laws],
    }


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
    )

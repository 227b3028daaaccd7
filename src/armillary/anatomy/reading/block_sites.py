"""Which module of a Hugging Face block is each named site, which side of it, and which of its columns?"""

from dataclasses import replace

from armillary.anatomy.anatomy import Block, FeedForward, Opaque
from armillary.anatomy.families import Family
from armillary.anatomy.reading.modules import crossing, gate_cuts, qkv_cuts
from armillary.anatomy.sites import Cut, Side, Site

Part = tuple[str, str | None, Side, Cut | None, int]


def _mixer_parts(family: Family, block: Block, k: int) -> list[Part]:
    """The sites inside a mixer: those of heads where it is attention, none where it is not understood."""
    if isinstance(block.mixer, Opaque):
        return []
    q, key, v = qkv_cuts(family, len(block.mixer.W_Q), len(block.mixer.W_K), k)
    return [
        ("q", family.query or family.fused, "output", q, k),
        ("k", family.key or family.fused, "output", key, k),
        ("v", family.value or family.fused, "output", v, k),
        ("pattern", family.attention, "pattern", None, 0),
        ("z", family.output, "input", None, k),
    ]


def _cross_parts(family: Family, block: Block, k: int) -> list[Part]:
    """The sites of the attention to an encoder; keys and values have the encoder's length."""
    if family.cross is None or block.cross is None:
        return []
    table = crossing(family)
    inside = [(f"cross_{name}", path, side, cut, width) for name, path, side, cut, width in
              _mixer_parts(table, replace(block, mixer=block.cross), k)]  # fmt: skip
    return [
        ("ln_cross", family.cross.norm, "output", None, 0),
        *inside,
        ("cross_out", table.attn_write, "output", None, 0),
    ]


def _channel_parts(family: Family, block: Block) -> list[Part]:
    """The sites inside a feed-forward layer, where it is one dense layer."""
    if not isinstance(block.channels, FeedForward):
        return []
    gate, up = gate_cuts(block.channels.W_out.shape[0], family.up_first) if family.gate_up else (None, None)
    mlp_in = family.gate_up or family.mlp_in
    return [
        # What the activation receives: the gate's product where there is a gate.
        ("mlp_pre", family.mlp_gate or mlp_in, "output", gate, 0),
        ("mlp_up", None if block.channels.W_gate is None else mlp_in, "output", up, 0),
        ("mlp_post", family.mlp_out, "input", None, 0),
    ]


def sites_of(tables: list[Family], at: str, blocks: tuple[Block, ...], k: int, has_final: bool) -> dict[str, Site]:
    """Our names in the order of the computation, each with the module, its side and the columns it stands for."""
    first = tables[0]
    sites = [Site("ln_embed", at + first.ln_embed, "output")] if first.ln_embed and not first.projected else []
    for layer, (family, block) in enumerate(zip(tables, blocks, strict=True)):
        own_ln2 = family.ln2 if family.own_ln2 and block.ln2 is not None else None
        parts: list[Part] = [
            ("resid_pre", "", "input", None, 0),
            ("ln1", family.ln1 if block.ln1 is not None else None, "output", None, 0),
            *_mixer_parts(family, block, k),
            ("ln1_post", family.ln1_post, "output", None, 0),
            ("attn_out", family.attn_write, "output", None, 0),
            *_cross_parts(family, block, k),
            ("ln2", own_ln2, "output", None, 0),
        ]
        if block.channels is not None:
            reads = None if block.ln2 is not None else family.mlp_reads
            parts += [
                ("resid_mid", reads, "input", None, 0),
                *_channel_parts(family, block),
                ("ln2_post", family.ln2_post, "output", None, 0),
                ("mlp_out", family.mlp_write, "output", None, 0),
            ]
        parts.append(("resid_post", "", "output", None, 0))
        path_of = f"{at}{family.blocks}.{layer}"
        for name, path, side, cut, width in parts:
            if path is not None:
                scale = family.write_scale if name in ("attn_out", "mlp_out") else 1.0
                where = f"{path_of}.{path}" if path else path_of
                index = family.pattern_output if side == "pattern" else 0
                sites.append(Site(f"L{layer}.{name}", where, side, cut, width, scale, index))
    if first.start:
        sites = [Site(s.name, at + first.start, "output") if s.name == "L0.resid_pre" else s for s in sites]
    if has_final and first.ln_final:
        sites.append(Site("ln_final", at + first.ln_final, "output"))
    return {site.name: site for site in sites}

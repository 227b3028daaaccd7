"""Query and key side of W_QK as tokens: listed and drawn."""

from collections.abc import Mapping

import numpy as np

from armillary.probes.attention.lexicon.known_words import token_cells, vocabulary
from armillary.probes.attention.lexicon.themes.likeness import DIRECTIONS, TOP, PromotedTokens, Side
from armillary.probes.attention.lexicon.themes.paired_sides import PairedSides
from armillary.probes.attention.spaces.decomposed_heads import TIE_MEANING, qk_ties
from armillary.probes.machinery import RANDOM, Cells, Evidence, Flags, Floats, Interval, T
from armillary.probes.machinery.tables import cells, head_map, head_table, line, table
from armillary.results import Quantity, Table

NAMES: dict[Side, str] = {"queries": "query", "keys": "key"}
SHOWN = 5


def side_table(
    evidence: Evidence,
    sides: Mapping[Side, tuple[PromotedTokens, Floats, Flags]],
    paired: PairedSides,
    p: Floats,
    related: Flags,
) -> Table:
    """One row per head."""
    either = np.any(related, axis=-1)
    tied = [sum(map(bool, labels[:DIRECTIONS])) for labels in qk_ties(evidence)]
    relations: list[Cells] = []
    for i, name in enumerate(paired.relations):
        column = name.replace(" ", "_")
        excess = paired.head_excess[..., i]
        relations.append(cells(column, f"relatedness of both sides by {name}, above re-paired directions", excess))
        relations.append(cells(f"{column}_p_value", "share of signed re-pairings that are as related", p[..., i]))
    return head_table(
        evidence.anatomy,
        *(_side_cells(evidence, side, *columns) for side, columns in sides.items()),
        relations,
        cells("related", "is one relation significant, after correcting for all, and large enough?", either),
        cells("tied", f"how many of its first {DIRECTIONS} directions nearly tie with another", tied),
    )


def _side_cells(evidence: Evidence, side: Side, tokens: PromotedTokens, p: Floats, have: Flags) -> tuple[Cells, ...]:
    texts, name = vocabulary(evidence).texts, NAMES[side]
    topics = tokens.topics.reshape(-1, tokens.topics.shape[-1])
    return (
        cells(
            f"{name}_coherence",
            f"mean cosine between the top {TOP} tokens of its {name} vectors",
            tokens.head_coherence,
        ),
        cells(f"{name}_chance", "the larger chance level", tokens.chances.max(-1)),
        cells(f"{name}_excess", "coherence minus the larger chance level", tokens.excess),
        cells(f"{name}_p_value", "share of random directions, or tokens, that are as coherent: the larger", p),
        cells(f"{name}_subject", "is it significant after correcting for all heads, and excess large enough?", have),
        cells(
            f"{name} token",
            "top token of the first vector that is most similar to the others",
            [texts[t[0]] for t in topics],
        ),
    )


def pair_table(evidence: Evidence, paired: PairedSides, layer: int) -> Table:
    """Both sides of every head's directions of a layer, at both ends: queries and the keys they attend to."""
    _, heads, size = paired.values.shape
    labels = qk_ties(evidence)[layer * heads : (layer + 1) * heads]
    # [head, direction, end, side, rank], of which the first few are shown.
    tokens = paired.tokens[layer].swapaxes(2, 3)[..., :SHOWN]
    rows = heads * size * 2
    return table(
        cells("head", "attention head", np.repeat([f"L{layer}H{head}" for head in range(heads)], size * 2)),
        cells(
            "direction", "number of the pair of singular vectors of W_QK", np.tile(np.arange(size).repeat(2) + 1, heads)
        ),
        cells("value", "its singular value", paired.values[layer].repeat(2)),
        cells("tie", TIE_MEANING, [label for head in labels for label in head[:size] for _ in range(2)]),
        cells("end", "which end of both vectors; the sign itself has no meaning", ["+", "−"] * (heads * size)),
        token_cells(evidence, "query", "token farthest along the left vector", tokens[..., 0, :].reshape(rows, -1)),
        token_cells(evidence, "key", "token farthest along the right vector", tokens[..., 1, :].reshape(rows, -1)),
    )


def side_lines(sides: Mapping[Side, PromotedTokens], paired: PairedSides, untrained: Interval) -> tuple[Quantity, ...]:
    layers = [f"L{layer}" for layer in paired.layers]
    depth = {side: tokens.excess.mean(1) for side, tokens in sides.items()}
    flat = np.ones(len(layers))
    twins = {} if np.isnan(untrained[0]) else {RANDOM: untrained[0] * flat}
    maps = [
        head_map(
            f"excess coherence, {NAMES[side]} side",
            f"mean cosine between the top tokens of a head's {NAMES[side]} vectors, above the larger chance level",
            "cosine",
            tokens.excess,
        )
        for side, tokens in sides.items()
    ]
    return (
        line(
            "excess coherence by depth",
            "coherence of the top tokens above the larger chance level, mean over a layer's heads",
            "cosine",
            "layer",
            layers,
            depth["queries"],
            {"key side": depth["keys"], **twins},
            {"chance: 0": 0 * flat, f"threshold: {T.subject_excess}": T.subject_excess * flat},
            label="query side",
        ),
        *maps,
        head_map(
            "relatedness of both sides",
            "the relation that is largest above re-paired directions: related nouns, part of speech or spelling",
            "excess",
            paired.head_excess.max(-1),
        ),
    )

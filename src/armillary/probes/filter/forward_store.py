"""Is a feed-forward a store: columns of W_in as keys, rows of W_out as updates? And does a token match few keys?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.attention.lexicon.keys.key_matches import ratios
from armillary.probes.attention.lexicon.keys.store_parts import (
    RULE,
    definition_part,
    few_keys_reading,
    few_keys_rule,
    few_keys_verdict,
    rebuilding_controls,
    times,
    worst_error,
)
from armillary.probes.attention.lexicon.themes.written_words import ReadableTokens
from armillary.probes.attention.lexicon.word_statistics import TWIN_LAYERS, shown_layers, word_interval, word_intervals
from armillary.probes.filter.expert_parts import gates, units_per_token
from armillary.probes.filter.storing.expert_matches import expert_matches
from armillary.probes.filter.storing.store_tables import expert_store_table, store_lines, store_table
from armillary.probes.filter.storing.stored_units import (
    ROTATIONS,
    TOKENS,
    TWIN_ROTATIONS,
    TokenMatches,
    forward_errors,
    token_matches,
)
from armillary.probes.filter.storing.unit_words import unit_table
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import (
    MODEL,
    AnyInstrument,
    Evidence,
    Flags,
    Floats,
    Interval,
    T,
    spread_layers,
)
from armillary.probes.machinery.intervals import discoveries
from armillary.probes.machinery.verdicts import name_sites, weighed
from armillary.results import Claim, Finding, Part, Rewording, RuleChange, Statistic, Table, say

LAYERS = 8
ROUTED = (
    "Mixture of experts: a unit's score is multiplied by its expert's weight, which is 0 for experts that a token is "
    "not routed to; rotations leave the router's choice as it is. The table 'experts' lists every expert, measured on "
    "the tokens that are routed to it."
)


@dataclass(frozen=True)
class ForwardStore:
    """What a feed-forward writes rebuilt from its units; and how few of them a token matches, compared with chance."""

    claim: ClassVar[Claim] = Claim(
        id="ffn.store",
        chapter="E",
        kind="definition",
        statement="A feed-forward is a key–value store, as attention is: scores of keys weigh the values that it adds.",
        source="S1",
        question=(
            "Can what a feed-forward layer writes be read like a dictionary, in which each unit is a key with an "
            "entry and a token adds the entries of the keys that it matches? And does a token match only a few keys?"
        ),
        definition=(
            "What a feed-forward layer writes can be read as a sum over keys and values. The source compares "
            "attention with the feed-forward of Geva et al. (2021): both compute relevance scores and add up what "
            "they weight.\n"
            "Part 1, by definition: the write for a direction z is Σ s_i v_i. Key i is column i of W_in, with the "
            "norm folded in. Its score s_i is the activation of key·z plus the unit's bias, times the other branch "
            "where there is a gate. Its value v_i is row i of W_out. The running model reads single tokens, and what "
            "the feed-forward writes is compared with this sum. The statistic is the largest error over the largest "
            "write; it is not an average and has no interval.\n"
            "Part 2, ours: a store deserves its name if a token matches few keys. Tokens are sampled from the text, "
            "as each layer reads them. The energy of key i is s_i²|v_i|², p_i is its share, and Σp² is the "
            "concentration: 1 if one key takes all.\n"
            "Chance is computed in two ways, as in vo.store: (a) all keys are rotated together inside their span, "
            "with lengths, mutual angles and biases kept; (b) the tokens are whitened, rotated and shaped back, so "
            "that their mean and covariance stay, and only the match of token and key is lost.\n"
            "The ratio is the concentration divided by the larger of the two chance levels. Its interval is a "
            f"bootstrap over documents. {ROTATIONS} rotations are drawn; p-values are Student's. At most {LAYERS} "
            "layers are measured. Attention is measured on the same tokens, by the singular vectors of W_VO."
        ),
        control=(
            "keys and updates exchanged, and random initialisation, for part 1; rotated keys, rotated tokens and "
            "random initialisation for part 2"
        ),
        rule=(
            "Part 1 decides: the largest error is compared with what rounding explains.\n"
            f"{RULE}\n"
            f"Part 2 is ours and decides nothing. {few_keys_rule('layers')}, or without untrained models."
        ),
        changes=(
            RuleChange(
                "2026-11-18",
                "Few keys (our part, which decides nothing) is undecided wherever the ratio spans the end of untrained "
                "models; where few layers store it had been qualified.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "7d10e9c9e1a6", 1),
            Rewording("2026-11-18", "a52db9c0f469", 1),
            Rewording("2026-11-19", "d98cc9d8b0df", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (SAMPLES,)
    needs_documents: ClassVar[bool] = False

    def conclude(self, evidence: Evidence) -> Finding:
        layers = spread_layers(evidence.anatomy, LAYERS)
        names = [f"L{layer}" for layer in layers]
        ids = np.unique(evidence[SAMPLES][MODEL].shared(evidence.sites).token[:TOKENS])
        errors = forward_errors(evidence, MODEL, ids, layers)
        matches = token_matches(evidence, MODEL, layers, True, ROTATIONS)
        stores = discoveries(matches.forward.p) & (matches.forward.ratio >= T.store_ratio)
        by_definition = definition_part(
            evidence,
            errors,
            names,
            "scores of keys weigh the values",
            "Columns of W_in as keys and rows of W_out as updates",
            "the feed-forward",
        )
        ratio = word_intervals(evidence, matches.forward.values, ratios, matches.document)
        untrained = _untrained(evidence)
        parts = (by_definition, _few_keys(evidence, matches, stores, untrained, layers))
        experts = expert_matches(evidence, MODEL, layers)
        met, chance = matches.forward.keys[:, 0], matches.forward.keys[:, 1:].min(-1)
        return Finding(
            claim=self.claim,
            **weighed(parts),
            statistic=worst_error(errors),
            n=len(matches.document),
            controls=rebuilding_controls(evidence, errors, lambda arm, some: forward_errors(evidence, arm, ids, some)),
            headline=(
                f"Writes are sums over keys and values to {say(errors[:, 0].max(), '.1g')}, by definition; a token "
                f"matches {np.median(met):.0f} of {_units(evidence, layers)} units in the median layer, by chance "
                f"{np.median(chance):.0f}"
            ),
            table=store_table(names, errors, matches, stores, ratio),
            quantities=store_lines(names, matches, ratio, untrained, evidence.anatomy.k),
            notes=(*_notes(evidence, layers, len(matches.document)), *([ROUTED] if experts else [])),
            more_tables=_unit_tables(evidence, layers) | ({"experts": expert_store_table(experts)} if experts else {}),
        )


def _units(evidence: Evidence, layers: Sequence[int]) -> int:
    """Of the median layer, those that a token has."""
    blocks = evidence.anatomy.blocks
    return int(np.median([units_per_token(blocks[layer].channels) for layer in layers]))


def _few_keys(
    evidence: Evidence, matches: TokenMatches, stores: Flags, untrained: Interval, layers: Sequence[int]
) -> Part:
    forward, document, names = matches.forward, matches.document, [f"L{layer}" for layer in layers]
    ratio = word_interval(evidence, forward.values, _median_ratio, document)
    verdict, why = few_keys_verdict(stores, ratio, untrained, len(evidence.twins))
    against = [
        word_interval(evidence, forward.values[..., [0, chance, chance]], _median_ratio, document)[0]
        for chance in (1, 2)
    ]
    reading = few_keys_reading(forward, _units(evidence, layers), "layer", "token", ratio, against, untrained)
    which = name_sites([name for name, flag in zip(names, stores, strict=True) if flag])
    which = f" ({which})" if 0 < stores.sum() < stores.size else ""
    reading += f" Layers that store: {stores.sum()} of {stores.size}{which}."
    assert matches.heads is not None
    beside = word_interval(evidence, matches.heads.values, _median_head, document)
    reading += (
        f" In attention, the same tokens match {np.nanmedian(matches.heads.keys[..., 0]):.1f} of "
        f"{evidence.anatomy.k} keys in the median head, {times(beside)} times as concentrated as by chance."
    )
    statistic = Statistic("concentration of a token's update over chance, median layer", *ratio)
    return Part("a token matches few keys", verdict, reading, statistic, asserted=False, why=why)


def _median_ratio(means: Floats) -> Floats:
    return np.asarray(np.median(ratios(means), axis=1))


def _median_head(means: Floats) -> Floats:
    """From [draw, layer, head, 3]; a layer that no norm stands before was not measured."""
    return np.asarray(np.nanmedian(ratios(means).reshape(len(means), -1), axis=1))


def _untrained(evidence: Evidence) -> Interval:
    # All layers of an untrained model are alike.
    some = range(min(TWIN_LAYERS, evidence.anatomy.layers))

    def median(arm: str) -> Interval:
        twin = token_matches(evidence, arm, some, False, TWIN_ROTATIONS)
        return word_interval(evidence, twin.forward.values, _median_ratio, twin.document)

    return evidence.over_twins(median)


def _notes(evidence: Evidence, layers: Sequence[int], tokens: int) -> tuple[str, ...]:
    part = (
        "all layers" if len(layers) == evidence.anatomy.layers else f"{len(layers)} of {evidence.anatomy.layers} layers"
    )
    some = min(TWIN_LAYERS, evidence.anatomy.layers)
    notes = [
        f"{tokens} sampled tokens in {part}; mean and covariance for rotated tokens come from all sampled ones.",
        "The larger of two chance levels lies slightly above either, so a layer without keys comes out just below 1.",
        f"Random initialisation: {len(evidence.twins)} untrained models of this architecture, the first {some} layers "
        "of each.",
    ]
    if gates(evidence.anatomy.blocks[0].channels):
        notes.append("A unit of a gated feed-forward has two keys; its score is the product of both branches.")
    return tuple(notes)


def _unit_tables(evidence: Evidence, layers: Sequence[int]) -> dict[str, Table]:
    if evidence.anatomy.tokenizer is None:
        return {}
    readable = ReadableTokens.of(evidence)
    return {f"units L{layers[i]}": unit_table(evidence, layers[i], readable) for i in shown_layers(len(layers))}

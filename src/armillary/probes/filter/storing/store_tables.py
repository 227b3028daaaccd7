"""Feed-forward and attention side by side: how few keys a token matches in each, listed and drawn."""

import numpy as np

from armillary.probes.attention.lexicon.keys.key_matches import KeyMatches
from armillary.probes.filter.storing.expert_matches import ExpertMatches
from armillary.probes.filter.storing.stored_units import TokenMatches
from armillary.probes.machinery import RANDOM, Flags, Floats, Interval, T
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.results import Quantity, Table


def _median_head(heads: KeyMatches | None) -> tuple[Floats, Floats, Floats]:
    """Of each layer's median head: ratio to chance, keys matched, and keys matched by chance."""
    assert heads is not None
    return np.median(heads.ratio, 1), np.median(heads.keys[..., 0], 1), np.median(heads.keys[..., 1:].min(-1), 1)


def store_lines(
    names: list[str], matches: TokenMatches, ratio: Floats, untrained: Interval, k: int
) -> tuple[Quantity, ...]:
    beside, head_keys, head_chance = _median_head(matches.heads)
    ones, keys = np.ones(len(names)), matches.forward.keys
    twins = {} if np.isnan(untrained[0]) else {RANDOM: untrained[0] * ones}
    return (
        line(
            "concentration over chance",
            "concentration of a token's update over the keys of a layer, relative to chance",
            "ratio",
            "layer",
            names,
            ratio,
            {"attention, median head": beside, **twins},
            {"chance: 1": ones, f"threshold: {T.store_ratio}": T.store_ratio * ones},
            label="feed-forward",
        ),
        line(
            "keys matched",
            f"effective number of keys that a token matches: units of the feed-forward, {k} directions of a head",
            "keys",
            "layer",
            names,
            keys[:, 0],
            {
                "feed-forward, by chance": keys[:, 1:].min(-1),
                "attention, median head": head_keys,
                "the same, by chance": head_chance,
            },
            logs=("value",),
            label="feed-forward",
        ),
    )


def store_table(names: list[str], errors: Floats, matches: TokenMatches, stores: Flags, ratio: Floats) -> Table:
    beside, head_keys, head_chance = _median_head(matches.heads)
    keys, rotated, shaped = matches.forward.keys.T
    return table(
        cells("layer", "layer", names),
        cells("error", "largest error of rebuilt writes, relative to the largest write", errors[:, 0]),
        cells("keys_met", "effective number of units that a token matches, 1 / mean Σp²", keys),
        cells("keys_turned", "the same with all keys rotated at random inside their span", rotated),
        cells("keys_shaped", "the same for tokens rotated at random with their mean and covariance kept", shaped),
        interval_cells(
            "ratio",
            "concentration over the larger of the two chance levels: above 1, a token matches fewer keys",
            ratio,
        ),
        cells(
            "p_value",
            "probability that one more rotation is as concentrated, the larger of both kinds",
            matches.forward.p,
        ),
        cells("stores", "is the ratio large enough, and significant after correcting for all layers?", stores),
        cells("head_keys", "effective number of directions of W_VO that a token matches, median head", head_keys),
        cells("head_chance", "the same by chance, the smaller of both kinds, median head", head_chance),
        cells("head_ratio", "the ratio of the median head of the layer's attention", beside),
    )


def expert_store_table(experts: list[ExpertMatches]) -> Table:
    ratio = np.array([expert.ratio for expert in experts])
    return table(
        cells("layer", "layer", [f"L{expert.layer}" for expert in experts]),
        cells("expert", "the expert", [expert.name for expert in experts]),
        cells("tokens", "sampled tokens that it gets; too few are not measured", [expert.tokens for expert in experts]),
        cells("keys_met", "effective number of its units that a token matches", [expert.keys[0] for expert in experts]),
        cells("keys_chance", "the same by chance, the smaller of both kinds", [expert.keys[1] for expert in experts]),
        interval_cells("ratio", "concentration over chance: above 1 a token matches fewer of its keys", ratio),
    )

"""What do the pass's samples say of axes: in the stream, in heads, and in untrained models?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from armillary.probes.attention.lexicon.known_words import vocabulary
from armillary.probes.attention.lexicon.themes.written_words import letter_ids
from armillary.probes.attention.lexicon.word_classes import CASES, token_classes
from armillary.probes.grid.axes.axis_blocks import Likeness, likeness
from armillary.probes.grid.axes.axis_meaning import AxisMeaning, Cloud, axis_meaning
from armillary.probes.instruments.head_samples import HEAD_SAMPLES, SPACES
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import (
    MODEL,
    NAN3,
    Evidence,
    Floats,
    Interval,
    Ints,
    median_defined,
    once,
    over_sites,
    over_twins,
)
from armillary.probes.sphere.across_sites import defined_median, document_weights, drawn_interval

STREAM_SITES, TWIN_SITES, DRAWS = 6, 3, 300
Meanings = Mapping[str, AxisMeaning]
"""A norm site, or a layer's q, k, v or z → what its axes say."""
Blocks = Mapping[str, Sequence[Likeness]]
"""q, k, v or z → the likeness of axes in each layer that was measured."""
NAMES = {"q": "queries", "k": "keys", "v": "values", "z": "results"}


def stream_meanings(evidence: Evidence) -> Meanings:
    return _meanings(evidence, MODEL, _spread(evidence.sites, STREAM_SITES), _stream)


def head_meanings(evidence: Evidence) -> Meanings:
    return _meanings(evidence, MODEL, list(evidence[HEAD_SAMPLES][MODEL].rows), _head)


def auc_difference(meaning: AxisMeaning) -> Floats:
    return meaning.auc - meaning.rotated_auc


def tail_ratio(meaning: AxisMeaning) -> Floats:
    return meaning.kurtosis / meaning.rotated_kurtosis


def at_median(evidence: Evidence, meanings: Meanings, value: Callable[[AxisMeaning], Floats]) -> Interval:
    """Of the median site, with its interval over documents; of few tokens, draws may all lie to one side of it."""
    middle, low, high = drawn_interval(evidence, _median(meanings, value))
    return middle, min(middle, low), max(middle, high)


def head_blocks(evidence: Evidence, arm: str = MODEL) -> Blocks:
    """Empty for models of a single head."""

    def of(site: str) -> Likeness | None:
        cloud = _head(evidence, arm, site)
        return likeness(cloud.points.double().numpy(), cloud.document, cloud.blocks, evidence.seed, arm == MODEL)

    measured = over_sites(list(evidence[HEAD_SAMPLES][arm].rows), of)
    spaces = {space: [m for site, m in measured.items() if m and site.endswith(f".{space}")] for space in SPACES}
    return {space: layers for space, layers in spaces.items() if layers}


@dataclass(frozen=True, eq=False)
class Untrained:
    """The same in untrained models, at fewer sites: where another initialisation is expected."""

    stream: Interval
    heads: Interval
    tails: Interval
    blocks: Mapping[str, Interval]

    @classmethod
    def of(cls, evidence: Evidence) -> "Untrained":
        sites, head_sites = _spread(evidence.sites, TWIN_SITES), list(evidence[HEAD_SAMPLES][MODEL].rows)
        middle = head_sites[len(head_sites) // 2].partition(".")[0]
        some = [site for site in head_sites if site.startswith(f"{middle}.")]
        values, blocks = [], dict[str, list[float]]()
        for arm in evidence.twins:
            stream, heads = _meanings(evidence, arm, sites, _stream, 0), _meanings(evidence, arm, some, _head, 0)
            pairs = ((stream, auc_difference), (heads, auc_difference), (stream, tail_ratio))
            values.append([float(_median(meanings, value)[0]) for meanings, value in pairs])
            for space, layers in head_blocks(evidence, arm).items():
                blocks.setdefault(space, []).append(median_defined(layer.value for layer in layers))
        stream_, heads_, tails_ = (_expected([row[i] for row in values]) for i in range(3))
        return cls(stream_, heads_, tails_, {space: _expected(ratios) for space, ratios in blocks.items()})


def _expected(values: Sequence[float]) -> Interval:
    if not values:
        return NAN3
    value, low, high = over_twins([(v, v, v) for v in values]).tolist()
    return value, low, high


def _spread(sites: Sequence[str], most: int) -> list[str]:
    places = sorted({round(i * (len(sites) - 1) / max(1, most - 1)) for i in range(most)})
    return [sites[place] for place in places]


def _stream(evidence: Evidence, arm: str, site: str) -> Cloud:
    sample = evidence[SAMPLES][arm].ordinary(evidence.anatomy, site)
    fixes = evidence.anatomy.norms[site].kind == "layernorm"
    return Cloud(sample.z.float(), sample.document, sample.token, sample.following, 1, fixes)


def _head(evidence: Evidence, arm: str, site: str) -> Cloud:
    sample = evidence[HEAD_SAMPLES][arm].rows[site].sample()
    document, _, token, following = sample.payload.numpy().T
    return Cloud(sample.rows, document, token, following, sample.rows.shape[1] // evidence.anatomy.k)


def _meanings(
    evidence: Evidence,
    arm: str,
    sites: Sequence[str],
    cloud: Callable[[Evidence, str, str], Cloud],
    draws: int = DRAWS,
) -> Meanings:
    weights, rotations, kinds = document_weights(evidence, draws), 2 if draws else 1, _kinds(evidence)

    def of(site: str) -> AxisMeaning:
        return axis_meaning(replace(cloud(evidence, arm, site), kinds=kinds), weights, evidence.seed, rotations)

    return over_sites(sites, of)


@once
def _kinds(evidence: Evidence) -> tuple[Ints, ...]:
    """Part of speech and spelling of every token, as numbers; neither without a tokenizer."""
    if evidence.anatomy.tokenizer is None:
        return ()
    every = np.arange(len(vocabulary(evidence).texts))
    speech, spelling = token_classes(evidence, every)
    # What is not made of letters alone is one more kind of spelling.
    return speech, np.where(np.isin(every, letter_ids(evidence)), spelling, 2 * len(CASES))


def _median(meanings: Meanings, value: Callable[[AxisMeaning], Floats]) -> Floats:
    """[1 + draw]."""
    return defined_median(np.stack([value(meaning) for meaning in meanings.values()], 1))

"""How few units of each expert does a token match, of those tokens that the expert gets?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.probes.attention.lexicon.keys.key_matches import ratios
from armillary.probes.attention.lexicon.word_statistics import word_interval
from armillary.probes.filter.expert_parts import FEWEST
from armillary.probes.filter.storing.folded_units import fold_units
from armillary.probes.filter.storing.stored_units import TOKENS, TWIN_ROTATIONS, matched_units
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import NAN3, Evidence, Floats, Interval

NONE = (float("nan"), float("nan"))


@dataclass(frozen=True)
class ExpertMatches:
    layer: int
    name: str
    tokens: int
    keys: tuple[float, float] = NONE
    """Effective numbers of keys: as it is, and by chance; NaN where the expert gets too few tokens."""
    ratio: Interval = NAN3


def expert_matches(evidence: Evidence, arm: str, layers: Sequence[int]) -> list[ExpertMatches]:
    """Every expert of these layers; none of a dense layer."""
    anatomy, experts = evidence.model(arm), []
    for layer in layers:
        folded = fold_units(anatomy, layer)
        tokens = evidence[SAMPLES][arm].shared([folded.site])
        x = tokens.x[folded.site].to(anatomy.device).double()
        weights = folded.weights(x)
        for name, weight in zip(folded.parts, () if weights is None else weights.T, strict=weights is not None):
            routed = weight.nonzero()[:, 0]
            if len(routed) < FEWEST:
                experts.append(ExpertMatches(layer, name, len(routed)))
                continue
            matched = matched_units(evidence, folded.only(name), x[routed], TWIN_ROTATIONS)
            values, document = matched.values, tokens.document[routed.cpu().numpy()][:TOKENS]
            mean = np.maximum(values.mean(0), 1e-30)
            ratio = word_interval(evidence, values[:, None], _ratio, document)
            experts.append(ExpertMatches(layer, name, len(routed), (1 / mean[0], 1 / mean[1:].max()), ratio))
    return experts


def _ratio(means: Floats) -> Floats:
    """From [draw, 1, 3]."""
    return np.asarray(ratios(means)[:, 0])

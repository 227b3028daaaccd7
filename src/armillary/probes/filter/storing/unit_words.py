"""Which tokens does a unit respond to, and which does it promote?"""

from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.lexicon.known_words import token_cells
from armillary.probes.attention.lexicon.themes.written_words import ReadableTokens
from armillary.probes.filter.storing.folded_units import fold_units
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, Evidence, Ints, cells, table
from armillary.results import Table

if TYPE_CHECKING:
    from torch import Tensor

UNITS, TOP = 20, 5


def unit_table(evidence: Evidence, layer: int, readable: ReadableTokens) -> Table:
    """The units of a layer that write most on the text: the tokens that match their keys, and those they promote."""
    anatomy, folded = evidence.anatomy, fold_units(evidence.anatomy, layer)
    tokens = evidence[SAMPLES][MODEL].shared([folded.site])
    x = tokens.x[folded.site].to(anatomy.device).double()
    scores, weights = folded.activated(folded.norm.direction(x) @ folded.keys), folded.weights(x)
    if weights is not None:
        scores = scores * folded.per_unit(weights)
    energy = (scores * folded.values.norm(dim=1)).square()
    share = (energy / energy.sum(1, keepdim=True).clamp_min(1e-300)).mean(0)
    units = share.argsort(descending=True)[:UNITS]
    after = anatomy.blocks[layer].ln2_post
    # A unit writes with the sign of its largest score.
    largest = scores.gather(0, scores.abs().argmax(0, keepdim=True))[0, units]
    values = folded.values[units] * largest.sign()[:, None]
    promoted = readable.top(values if after is None else values * after.gain.to(values), TOP)
    strongest = _strongest(scores, units, tokens.token)
    return table(
        cells("unit", "hidden unit", units.cpu().numpy() if weights is None else [folded.names[i] for i in units]),
        cells("share", "its share of the squared lengths of what units write, mean over tokens", share[units].tolist()),
        token_cells(evidence, "key", "token of the text with the largest |score|", strongest),
        token_cells(evidence, "value", "token along whose output direction its value reaches farthest", promoted),
    )


def _strongest(scores: "Tensor", units: "Tensor", token: Ints) -> Ints:
    """[unit, rank]: different tokens of the text by the unit's |score|; the last is repeated where there are fewer."""
    ranked = []
    for column in scores[:, units].abs().mT.cpu().numpy():
        ids = list(dict.fromkeys(token[np.argsort(-column, kind="stable")].tolist()))[:TOP]
        ranked.append(ids + [ids[-1]] * (TOP - len(ids)))
    return np.array(ranked)

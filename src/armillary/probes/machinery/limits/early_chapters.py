"""What do the rules of chapters A to C compare with what? One line per comparison."""

import math
from typing import TYPE_CHECKING

from armillary.probes.machinery.instrument import RANDOM, SHUFFLED
from armillary.probes.machinery.limits.decisive_limits import (
    Against,
    Rule,
    Rules,
    above,
    below,
    refuted_above,
    refuted_below,
    rounding,
    trained,
)
from armillary.probes.machinery.limits.thresholds import THRESHOLDS as T

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy


def sphere_rules(d: int) -> Rules:
    law = T.shell_law_factor / math.sqrt(2 * d)
    gains, shifts = "γ warps the sphere", "β displaces it"
    angle, distance = "the angle separates better than length", "distance separates no better than the angle"
    cost = "a change of length costs less than an equal change of direction"
    return {
        "sphere.radius": (above(T.radius_share, "nearly all tokens on the sphere"),),
        "sphere.plane": (below(T.plane_ratio, "in the plane"),),
        "sphere.ellipsoid": (
            above(T.warp_ratio, "warped", gains),
            refuted_below(T.warp_none, "round", gains),
            above(T.displacement, "displaced", shifts),
        ),
        "sphere.concentration": (
            below(law, "the Gaussian law, within a factor of two"),
            refuted_above(max(law, T.shell_thin), "no thin shell"),
        ),
        "sphere.direction": (
            above(T.direction_margin, "one pair in ten ordered better", angle),
            trained(angle),
            above(-T.direction_margin, "no worse than distance", distance),
            below(T.length_share, "length costs nothing", cost),
            refuted_above(T.length_equal, "length costs as much", cost),
        ),
    } | _spectrum_rules()


def _spectrum_rules() -> Rules:
    removed, within = T.dimension_removed, T.dimension_within
    counts = [
        (
            above(-removed - within, "two dimensions fewer, not three", name),
            below(-removed + within, "two dimensions fewer, not one", name),
        )
        for name in ("participation ratio", "rank", "TwoNN")
    ]
    length = "constant length shows"
    both, unlike = "both at one sublayer", "sublayers do not treat all directions alike"
    exchange = "neighbours can exchange gains and shifts"
    return {
        "spectrum.two-zeros": (Rule("at", 2.0, "two zeros"),),
        "spectrum.local": (
            above(T.local_slope - T.local_slope_within, "falls like α²", length),
            below(T.local_slope + T.local_slope_within, "falls like α²", length),
            refuted_below(T.local_slope_none, "no fall", length),
            below(T.zero_eigenvalue, "no variance along 1", "the plane shows"),
        ),
        "spectrum.dimension": tuple(rule for pair in counts for rule in pair),
        "cycle.isotropy": (
            above(T.sites_most, "at nearly every sublayer", both),
            refuted_below(T.sites_few, "at hardly any sublayer", both),
            above(T.rotation_unlike, "half of an unrelated result", unlike),
        ),
        "sphere.contrast": (
            above(T.contrast_ratio, "twice random directions", "angles keep their contrast", own=True),
            above(T.contrast_more, "a tenth more", "angles keep more than distances"),
        ),
        "sphere.shared": (
            below(T.shared_cost, "costs nothing", exchange),
            refuted_above(Against("permuted γ and β", "value"), "costs as much as a permutation", exchange),
        ),
    }


def attention_rules(anatomy: "Anatomy") -> Rules:
    exact, heads = rounding(anatomy), "1/√k undoes the growth in the model's heads"
    within = T.scale_exponent_within
    normed, rise = "with the norm, Var(q·k) = k", "more so than earlier heads"
    return {
        "attention.two-views": (below(exact, "rounding"),),
        "attention.cosine": (above(T.cosine_share, "mostly cosine", "the score is mostly the cosine"),),
        "attention.scale": (
            above(1 - within, "grows like k", heads),
            below(1 + within, "grows like k", heads),
            above(1 - within, "grows like k", normed),
            below(1 + within, "grows like k", normed),
        ),
        "attention.geodesic": (above(T.geodesic_rho, "a direct measure"),),
        "qk.related": (
            above(T.related_auc, "three of five comparisons correct"),
            above(Against("before W_QK: cosine of directions", "value"), "better than before W_QK"),
            trained(),
        ),
        "qk.lookup": (
            above(T.lookup_clear, "a clear pattern", "early layers are clear"),
            trained("early layers are clear"),
        ),
        "qk.axes": (above(T.axes_factor, "leans to the axes"), trained()),
        # Shares of heads with a subject, which its probe gives.
        "qk.subjects": (),
        "rank.nullspace": (
            above(T.null_exist, "one query in a hundred", "there are such queries"),
            above(T.null_exist, "one key in a hundred", "there are such keys"),
            above(T.uniform_entropy, "equal attention", "a query without its visible part attends equally"),
        ),
        "vo.store": (below(exact, "rounding", "left vectors are keys, right ones updates"),),
        "vo.subjects": (
            above(0.0, "a rise", rise),
            above(Against(RANDOM), "above untrained models", rise),
        ),
    }


def words_rules() -> Rules:
    own, following, share = "away from its own word", "towards the next word", 0.5 + T.travel_margin
    final, true = "towards its own final prediction", "towards the true next word"
    context, sense = "they differ by context", "they differ by sense"
    return {
        "words.travel": (
            above(share, "three of five tokens", following),
            trained(following),
            above(Against(SHUFFLED), "above shuffled text", following),
            above(share, "three of five tokens", own),
        ),
        "words.refine": (
            above(T.refine_gain, "a cheaper next word", true, own=True),
            trained(true, own=True),
            above(T.refine_most, "layer by layer", true),
            above(T.refine_most, "layer by layer", final),
            refuted_below(T.refine_half, "no fall", final),
        ),
        "words.artifact": (
            above(T.picture_faithful, "a faithful picture"),
            refuted_below(T.picture_misleading, "a misleading picture"),
        ),
        "words.output": (above(T.output_share, "mostly the cosine"),),
        "words.context": (
            above(T.context_sense, "three of five comparisons correct", sense),
            trained(sense),
            below(T.context_own, "context counts", context),
            refuted_above(T.context_none, "the word alone", context),
        ),
    }

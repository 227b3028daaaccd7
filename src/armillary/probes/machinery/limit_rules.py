"""What does every rule compare with what? One line per comparison, from the thresholds that the rules use."""

import math
from functools import partial
from typing import TYPE_CHECKING

from armillary.probes.machinery.instrument import RANDOM, SHUFFLED
from armillary.probes.machinery.limits import Against, Rule
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Prediction

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

Rules = dict[str, tuple[Rule, ...]]

above, below = partial(Rule, "above"), partial(Rule, "below")
refuted_above, refuted_below = partial(above, decides="refuted"), partial(below, decides="refuted")
trained = partial(above, Against(RANDOM), "above untrained models")


def rules(anatomy: "Anatomy") -> Rules:
    """Claim → its comparisons, the most telling first."""
    return _sphere(anatomy.d) | _attention(anatomy) | _words() | _stability() | _filter(anatomy) | _grid() | _others()


def predictions(anatomy: "Anatomy") -> dict[str, Prediction]:
    """Claim → the number that theory or chance gives its statistic."""
    return {
        "sphere.radius": Prediction(1.0, "by definition"),
        "sphere.plane": Prediction(1.0, "a random direction"),
        "sphere.ellipsoid": Prediction(1.0, "a sphere"),
        "sphere.concentration": Prediction(1 / math.sqrt(2 * anatomy.d), "the Gaussian law 1/√(2d)"),
        "spectrum.two-zeros": Prediction(2.0, "the source: two"),
        "spectrum.local": Prediction(T.local_slope, "the law α²"),
        "spectrum.dimension": Prediction(-T.dimension_removed, "two dimensions fewer"),
        "sphere.contrast": Prediction(1.0, "random directions"),
        "attention.scale": Prediction(1.0, "independent axes"),
        "attention.geodesic": Prediction(1.0, "a direct measure of distance"),
        "qk.related": Prediction(0.5, "chance"),
        "words.travel": Prediction(0.5, "chance"),
        "words.context": Prediction(0.5, "chance"),
        "ffn.discard": Prediction(0.5, "chance"),
        "heads.orthogonality": Prediction(1.0, "random projections"),
        "flow.coarse": Prediction(1.0, "no growth"),
    }


def _rounding(anatomy: "Anatomy") -> float:
    import torch

    from armillary.flow.laws import ROUNDINGS

    return float(ROUNDINGS[anatomy.dtype] * torch.finfo(anatomy.dtype).eps)


def _sphere(d: int) -> Rules:
    law = T.shell_law_factor / math.sqrt(2 * d)
    gains, shifts = "γ warps the sphere", "β displaces it"
    angle, distance = "the angle separates better than length", "distance separates no better than the angle"
    cost = "a change of length costs less than an equal change of direction"
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


def _attention(anatomy: "Anatomy") -> Rules:
    rounding, heads = _rounding(anatomy), "1/√k undoes the growth in the model's heads"
    within = T.scale_exponent_within
    normed, deep, rise = (
        "with the norm, Var(q·k) = k",
        "heads of the last third have a subject",
        "more so than earlier heads",
    )
    sides = [f"{side} side: tokens along a vector share a subject" for side in ("query", "key")]
    return {
        "attention.two-views": (below(rounding, "rounding"),),
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
        "qk.subjects": tuple(above(T.subject_excess, "a subject", side) for side in sides),
        "rank.nullspace": (
            above(T.null_exist, "one query in a hundred", "there are such queries"),
            above(T.null_exist, "one key in a hundred", "there are such keys"),
            above(T.uniform_entropy, "equal attention", "a query without its visible part attends equally"),
        ),
        "vo.store": (below(rounding, "rounding", "left vectors are keys, right ones updates"),),
        "vo.subjects": (
            above(T.subject_excess, "a subject", deep),
            above(0.0, "a rise", rise),
            above(Against(RANDOM), "above untrained models", rise),
        ),
    }


def _words() -> Rules:
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


def _stability() -> Rules:
    drift, held, growth = "states drift", "norms hold the drift back", "norms hold growth back"
    errors, same = "off the manifold, or unusual heads", "the same distribution"
    return {
        "stability.prefix": (below(T.roundings, "rounding"),),
        "stability.drift": (
            above(T.drift_degrees, "drifted", drift),
            above(T.reprojection_factor, "clearly larger with norms frozen", held),
        ),
        "stability.reprojection": (
            below(T.reprojection_bound, "bounded", "bounded with norms live"),
            above(T.reprojection_factor, "clearly larger with norms frozen", growth),
        ),
        "stability.generation": (
            refuted_above(T.generation_most, "half of them leave the band", "states stay"),
            refuted_above(T.generation_most, "half of them leave the band", "the text stays coherent"),
            above(T.generation_most, "half of them leave the band", "norms do it"),
            above(1.0, "longer than the context", "longer than the context"),
        ),
        "manifold.errors": (above(T.errors_margin, "adds to what is known", errors), trained(errors)),
        "stability.positions": (
            below(T.position_distance, "the same distribution", same),
            below(T.radius_within, "on one sphere", "one surface"),
        ),
    }


def _filter(anatomy: "Anatomy") -> Rules:
    saves, learned, directions = "the activation saves bits", "training adds to it", "the directions of W_1 add to it"
    little, through = "discarded values say little of the next token", "letting them through matters little"
    simpler, made = "the write is simpler than its input", "training makes it so"
    return {
        "ffn.discard": (
            above(T.discard_most, "two thirds below zero", "most are below zero"),
            above(Against(RANDOM, margin=T.discard_beyond), "beyond untrained models", "most are below zero"),
            above(T.discard_gone, "half are gone", "they are gone"),
        ),
        "ffn.compress": (
            above(T.compress_bits, "half a bit", saves),
            above(Against(RANDOM, margin=T.compress_margin), "beyond untrained models", learned),
            above(T.compress_margin, "beyond random directions", directions),
        ),
        "ffn.select": (
            below(T.select_half, "half of what kept values say", little),
            below(T.select_half, "half of the cost elsewhere", through),
            above(T.select_cost, "costs more", "the choice depends on context"),
        ),
        "ffn.store": (below(_rounding(anatomy), "rounding", "scores of keys weigh the values"),),
        "ffn.write": (
            above(T.write_saved, "a tenth fewer bits", simpler),
            above(Against(RANDOM, margin=T.write_margin), "beyond untrained models", made),
        ),
    }


def _grid() -> Rules:
    full, pockets = "the full space is nearly orthogonal", "heads go beyond fewer axes"
    roles, differ, text = "specialities", "heads of a layer differ", "on text, not only on disorder"
    region, different = "what heads do depends on the region", "different heads, different regions"
    stream, heads = "axes of the stream tell classes", "axes of heads tell classes"
    grows, learned = "the length grows layer by layer", "by training, from the text"
    groups, rotation = ("syntax", "similarity and opposition", "anaphora"), "a rotation in the matrix's place"
    return {
        "heads.axes": (above(T.crossing_share, "a quarter more across heads"),),
        "heads.orthogonality": (
            below(T.orthogonal_ratio, "nearly orthogonal", full),
            above(1.0, "more than in the full space", "fewer axes raise |cos|"),
            above(T.pocket_ratio, "a pocket", pockets),
            trained(pockets),
        ),
        "heads.gradients": (
            below(T.coupling_none, "hardly matters", "independent"),
            refuted_above(T.coupling_half, "half of what a neighbour writes", "independent"),
            Rule("at", 0.0, "no foreign gradient", "own slices"),
        ),
        "heads.specialise": (
            above(T.heads_many, "many heads", roles),
            refuted_below(T.sites_few, "hardly any head", roles),
            trained(roles),
            above(T.heads_differ, "a quarter of the attention", differ),
            refuted_below(T.heads_alike, "heads are alike", differ),
            above(-T.heads_alike, "no fewer than on shuffled text", text),
        ),
        "heads.language": tuple(above(T.language_attention, "a tenth of the attention", name) for name in groups),
        "heads.emerge": tuple(above(T.emerge_rho, "predicts", name) for name in ("next", "now")),
        "heads.regions": (
            above(T.regions_share, "a tenth of the variance", region),
            trained(region),
            below(T.regions_alike, "different regions", different),
        ),
        "map.nonlinear": (
            above(T.bent_share, "acts non-linearly", "weight matrices"),
            above(Against(rotation, "value", T.straight_share), "more than a rotation", "weight matrices"),
        ),
        "flow.coarse": (
            above(T.flow_growth, "grows", grows),
            above(T.flow_text, "text lengthens it", learned),
            trained(learned, own=True),
        ),
        "axes.privileged": (
            above(T.axis_auc, "one pair in twenty", stream),
            trained(stream),
            above(T.axis_auc, "one pair in twenty", heads),
            above(T.axis_block, "a quarter larger", "related axes share a head"),
        ),
    }


def _others() -> Rules:
    values, fixed, needed = "massive values", "fixed and constant", "needed as a bias"
    parked, rogue = "heads park attention on the first token", "by rogue dimensions"
    alone, skips = "attention alone collapses", "skips prevent it"
    every, uniform = "every key is selectable", "one query attends to all keys alike"
    return {
        "others.massive": (
            above(T.massive_ratio, "massive", values),
            refuted_below(T.massive_outlier, "no outlier", values),
            below(T.massive_constant, "nearly constant", fixed),
            refuted_above(T.massive_varies, "no constant", fixed),
            above(T.heads_many, "many heads", parked),
            refuted_below(T.sites_few, "hardly any head", parked),
            above(T.massive_cost, "costs something", needed),
        ),
        "others.anisotropy": (
            above(T.cone_cosine, "a narrow cone", "a narrow cone", own=True),
            trained("by training"),
            above(T.rogue_share, "half of the cosine", rogue),
        ),
        "others.linear": (
            above(T.linear_most, "nearly linear", "with its skip"),
            refuted_below(T.linear_not, "not linear", "with its skip"),
            above(T.linear_write, "half of what the block adds", "not by the skip alone"),
        ),
        "others.straight": (
            above(T.straight_degrees, "straightens", "straightens"),
            trained("by training", own=True),
            above(T.straight_text, "beyond shuffled text", "from the text"),
        ),
        "others.idpeak": (above(T.peak_ratio, "a peak", "peaks"), trained("by training")),
        "others.collapse": (
            below(T.collapse_left, "collapsed", alone),
            refuted_above(T.collapse_none, "not collapsed", alone),
            above(T.collapse_none, "not collapsed", skips),
            refuted_below(T.collapse_left, "collapsed", skips),
            above(T.collapse_slowed, "slows it", "feed-forwards slow it"),
        ),
        "others.brody": (
            below(T.hull_none, "practically none", every),
            refuted_above(T.hull_many, "many keys", every),
            above(T.hull_freed, "one key in twenty", "scaling does it"),
            above(T.uniform_entropy, "uniform attention", uniform),
            above(T.normal_used, "twice a random direction", "queries use the normal"),
        ),
    }

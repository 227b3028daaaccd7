"""What do the rules of chapters D to H compare with what? One line per comparison."""

from typing import TYPE_CHECKING

from armillary.probes.machinery.instrument import RANDOM
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


def stability_rules() -> Rules:
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


def filter_rules(anatomy: "Anatomy") -> Rules:
    saves, learned, directions = "the activation saves bits", "training adds to it", "the directions of W_1 add to it"
    little, through = "discarded values say little of the next token", "letting them through matters little"
    simpler, by_training = "the write is simpler than its input", "training makes it so"
    return {
        "ffn.discard": (
            above(T.discard_most, "two thirds below zero", "most are below zero"),
            above(Against(RANDOM, margin=T.discard_beyond), "beyond untrained models", "most are below zero"),
            above(T.discard_gone, "half are gone", "they are gone"),
        ),
        "ffn.compress": (
            above(T.compress_bits, "half a bit", saves),
            above(Against(RANDOM, margin=T.compress_margin), "beyond untrained models", learned, own=True),
            above(T.compress_margin, "beyond random directions", directions),
        ),
        "ffn.select": (
            below(T.select_half, "half of what kept values decode", little),
            below(T.select_half, "half of the cost elsewhere", through),
            above(T.select_cost, "costs more", "the choice depends on context"),
        ),
        "ffn.store": (below(rounding(anatomy), "rounding", "scores of keys weigh the values"),),
        "ffn.write": (
            above(T.write_saved, "a tenth fewer bits", simpler),
            above(Against(RANDOM, margin=T.write_margin), "beyond untrained models", by_training, own=True),
        ),
    }


def grid_rules() -> Rules:
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
            above(-T.sites_few, "no fewer than on shuffled text", text),
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
            above(T.axis_auc, "an AUC larger by a twentieth", stream),
            trained(stream),
            above(T.axis_auc, "an AUC larger by a twentieth", heads),
            above(T.axis_block, "a quarter larger", "related axes share a head"),
        ),
    }


def others_rules() -> Rules:
    values, fixed, needed = "massive values", "fixed and constant", "needed as a bias"
    parked, rogue = "heads park attention on the first token", "by rogue dimensions"
    alone, skips = "attention alone collapses", "skips prevent it"
    every, uniform = "every key is selectable", "one query attends to all keys alike"
    return {
        "others.massive": (
            above(T.massive_ratio, "massive", values),
            refuted_below(T.massive_outlier, "no outlier", values),
            below(T.massive_constant, "nearly constant", fixed),
            refuted_above(T.massive_varies, "not constant", fixed),
            below(T.sites_few, "hardly any other token", "at a few tokens"),
            refuted_above(0.5, "half of the other tokens", "at a few tokens"),
            above(T.heads_many, "many heads", parked),
            refuted_below(T.sites_few, "hardly any head", parked),
            above(T.massive_cost, "costs something", needed),
        ),
        "others.anisotropy": (
            above(T.cone_cosine, "a narrow cone", "a narrow cone", own=True),
            trained("by training", own=True),
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
        "others.idpeak": (above(T.peak_ratio, "a peak", "peaks"), trained("by training", own=True)),
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

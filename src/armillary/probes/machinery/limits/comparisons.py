"""Which comparisons does a claim's rule make, and what does theory predict?"""

import math
from typing import TYPE_CHECKING

from armillary.probes.machinery.limits.decisive_limits import Rules
from armillary.probes.machinery.limits.early_chapters import attention_rules, sphere_rules, words_rules
from armillary.probes.machinery.limits.late_chapters import filter_rules, grid_rules, others_rules, stability_rules
from armillary.probes.machinery.limits.thresholds import THRESHOLDS as T
from armillary.results import Prediction

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

# Claim → the part whose number is the claim's own statistic, whatever it is called there. (In heads.language and
# qk.subjects it is that of the weakest group, or side.)
OWN = {
    "sphere.ellipsoid": "γ warps the sphere",
    "sphere.direction": "the angle separates better than length",
    "spectrum.local": "constant length shows",
    "spectrum.dimension": "participation ratio",
    "cycle.isotropy": "both at one sublayer",
    "sphere.shared": "neighbours can exchange gains and shifts",
    "attention.cosine": "the score is mostly the cosine",
    "attention.scale": "1/√k undoes the growth in the model's heads",
    "qk.lookup": "early layers are clear",
    "rank.nullspace": "there are such queries",
    "vo.store": "left vectors are keys, right ones updates",
    "vo.subjects": "more so than earlier heads",
    "words.travel": "towards the next word",
    "words.context": "they differ by sense",
    "stability.drift": "states drift",
    "stability.generation": "states stay",
    "manifold.errors": "off the manifold, or unusual heads",
    "stability.positions": "the same distribution",
    "ffn.discard": "most are below zero",
    "ffn.compress": "the activation saves bits",
    "ffn.store": "scores of keys weigh the values",
    "ffn.write": "the write is simpler than its input",
    "heads.orthogonality": "heads go beyond fewer axes",
    "heads.gradients": "independent",
    "heads.specialise": "specialities",
    "heads.emerge": "next",
    "heads.regions": "what heads do depends on the region",
    "map.nonlinear": "weight matrices",
    "flow.coarse": "the length grows layer by layer",
    "axes.privileged": "axes of the stream tell classes",
    "others.massive": "massive values",
    "others.linear": "with its skip",
    "others.straight": "straightens",
    "others.idpeak": "peaks",
    "others.collapse": "attention alone collapses",
    "others.brody": "every key is selectable",
}


def rules(anatomy: "Anatomy") -> Rules:
    """Claim → its comparisons, the most telling first."""
    early = sphere_rules(anatomy.d) | attention_rules(anatomy) | words_rules()
    return early | stability_rules() | filter_rules(anatomy) | grid_rules() | others_rules()


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

"""Which arms has each study, and what does the geometric view predict for each? The first arm is the reference."""

from dataclasses import replace

from armillary.errors import ArmillaryError, nearest
from armillary.lab.study.design import LOUD, LOW_RATES, MISMATCH, STABILITY, TWIN, Arm

PLAIN = Arm("layernorm", prediction="the reference: one sphere of d − 1 axes, stretched by γ")
NORMS = (
    PLAIN,
    Arm("rmsnorm", "rmsnorm", prediction="equal: one axis more than LayerNorm's sphere, and none is lost by it"),
    Arm("per-head", "per-head", prediction="worse: a product of small spheres has one constraint per block"),
    Arm("subset", "subset", {"share": 0.25}, prediction="worse: most axes are scaled by a length that is not theirs"),
    Arm("sphere", "sphere", prediction="worse: no gain can favour an axis, and W_Q, W_K, W_V must do it"),
    Arm(
        "dyt",
        "dyt",
        {"alpha": 1.0},
        embed_scale=True,
        prediction="worse: no sphere, each axis by itself",
    ),
    Arm("derf", "derf", {"alpha": 1.0}, embed_scale=True, prediction="worse, as DyT"),
    Arm("symmetriser ring", "symmetriser", {"messages": "ring", "rounds": 1}, prediction="nearly equal"),
    Arm("symmetriser learned", "symmetriser", {"messages": "learned"}, prediction="equal: it can be LayerNorm"),
    # Added after the arms above had been seen.
    Arm("ngpt", layout="ngpt", prediction="better, says S3: state and weights never leave the sphere"),
    Arm("slow gain", gain_rate=0.1, prediction="as good as the sphere, if the gain's speed is what costs"),
    Arm("dyt, low rates", "dyt", {"alpha": 1.0}, embed_scale=True, rates=LOW_RATES, prediction="worse, as DyT"),
    Arm("derf, low rates", "derf", {"alpha": 1.0}, embed_scale=True, rates=LOW_RATES, prediction="worse, as DyT"),
    # Added after the cause of those two was found on a CPU (LOG.md): a quiet unembedding lets the stream saturate tanh.
    Arm("layernorm, loud", embedding_scale=LOUD, prediction="equal or worse: a norm does not need it"),
    Arm("dyt, loud", "dyt", {"alpha": 1.0}, embedding_scale=LOUD, prediction="near LayerNorm: it can learn now"),
    Arm("derf, loud", "derf", {"alpha": 1.0}, embedding_scale=LOUD, prediction="as DyT, loud"),
)
SYMMETRISER = (
    PLAIN,
    *(
        Arm(
            name,
            "symmetriser",
            settings,
            norm_rate=rate,
            block_diagonal=name.startswith("blocks"),
            prediction=prediction,
        )
        for name, settings, rate, prediction in (
            ("none", {"messages": "none"}, 1.0, "worse: each block has a sphere of its own"),
            ("ring", {"messages": "ring"}, 1.0, "nearly equal: neighbours tell most of a block's scale"),
            ("ring, 3 rounds", {"messages": "ring", "rounds": 3}, 1.0, "equal: after three rounds all have been heard"),
            ("subset", {"messages": "subset"}, 1.0, "nearly equal, as the ring"),
            ("all", {"messages": "all"}, 1.0, "equal: this is LayerNorm, but for the learned recurrence"),
            ("learned", {"messages": "learned"}, 1.0, "equal: it can be LayerNorm, and begins as it"),
            ("random start", {"messages": "learned", "start": "random"}, 1.0, "worse: it must find the sphere first"),
            ("mimic start", {"messages": "learned", "start": "mimic"}, 1.0, "equal: it learned LayerNorm beforehand"),
            ("shared", {"messages": "learned", "shared": True}, 1.0, "equal: one recurrence serves all layers"),
            ("misaligned", {"messages": "ring", "aligned": False}, 1.0, "equal to ring: heads do not cut the stream"),
            ("slow", {"messages": "learned"}, 0.1, "equal or better: a slow norm leaves the sphere where it is"),
            ("random, slow", {"messages": "learned", "start": "random"}, 0.1, "worst: it leaves a wrong norm too late"),
            ("mimic, slow", {"messages": "learned", "start": "mimic"}, 0.1, "best of the slow ones: it starts right"),
            # Added after runs in which the learned recurrence had drifted until it computed no norm (LOG.md).
            ("ring, slow", {"messages": "ring"}, 0.1, "nearly equal: its recurrence stays near Newton's"),
            ("ring, fixed", {"messages": "ring", "learned_scale": False}, 1.0, "nearly equal: only messages are less"),
            (
                "learned, fixed",
                {"messages": "learned", "learned_scale": False},
                1.0,
                "equal: only messages are learned",
            ),
            ("blocks, ring", {"messages": "ring"}, 1.0, "worse: a head sees a block of the stream alone"),
            ("blocks, misaligned", {"messages": "ring", "aligned": False}, 1.0, "worse than blocks, ring: no fit"),
        )
    ),
)
LAYOUT = (
    replace(PLAIN, name="pre-norm, tied", prediction="the reference"),
    Arm("untied", untied=True, prediction="equal: more parameters, but nothing in the geometry needs them"),
    Arm("half start", initial_scale=0.5, prediction="equal: norms take the scale out"),
    Arm("double start", initial_scale=2.0, prediction="equal, likewise"),
    Arm("post-norm", layout="post-norm", prediction="worse at high rates: the stream itself is put on the sphere"),
    *(
        Arm(f"attention × {label}", attention_scale=scale, prediction=f"worse, says S0: {why}")
        for scale, label, why in (
            (0.25, "¼", "quiet scores make attention uniform"),
            (0.5, "½", "quiet scores make attention uniform"),
            (2.0, "2", "loud scores freeze attention early"),
            (4.0, "4", "loud scores freeze attention early"),
            (8.0, "8", "loud scores freeze attention early"),
        )
    ),
)
SOFT_HEADS = (
    replace(PLAIN, name="ordinary heads"),
    Arm("triangular", heads="triangular", prediction="better, says S3: an axis serves two heads"),
    Arm("raised sine", heads="raised sine", prediction="better, says S3"),
    Arm("learned membership", heads="learned", prediction="better, says S3: the partition is learned"),
    Arm("free", heads="free", prediction="a rival: no shares, any sign"),
    Arm("talking heads", heads="mixing", results="mixing", prediction="a rival: whole heads are mixed"),
    Arm("collaborative", heads="free", results="block", prediction="a rival: shared keys, own values"),
    Arm("random membership", heads="random", prediction="a control: overlap without structure"),
    Arm("supervised", heads="supervised", prediction="better, says S3: each token divides the axes anew"),
)
GATE = (
    PLAIN,
    replace(PLAIN, name=TWIN, prediction="no difference: another start of the same model", tuned_as="layernorm"),
    Arm("block heads", heads="block", prediction="no difference: another kernel", tuned_as="layernorm"),
)
RANGE = (
    PLAIN,
    Arm("qk norm", score="cosine", prediction="stable at higher rates: no score can exceed its temperature"),
)
ACTIVATIONS = (
    replace(PLAIN, name="gelu", prediction="the reference: lossy"),
    Arm("relu", activation="relu", prediction="equal, if loss follows the bits destroyed"),
    Arm("relu2", activation="relu2", prediction="equal, likewise"),
    Arm("absolute", activation="absolute", prediction="between: only the sign is destroyed"),
    Arm("leaky", activation="leaky", prediction="worse: it can be inverted"),
    # Added after those that can be inverted had been seen: two are odd functions, and none bends as ReLU does.
    Arm("leaky 0.1", activation="leaky 0.1", prediction="nearly as good as relu, if the bend is what counts"),
    Arm("wave", activation="wave", prediction="worse: it can be inverted, though it is far from linear"),
    Arm("signed root", activation="signed root", prediction="worse: it can be inverted"),
    Arm("identity", activation="identity", prediction="worst: nothing is destroyed and nothing is bent"),
    *(
        Arm(f"gated {name}", activation=name, gate=True, prediction=prediction)
        for name, prediction in (
            ("gelu", "better than gelu, as others report for gates (arXiv 2002.05202)"),
            ("relu", "as gated gelu"),
            ("relu2", "as gated gelu"),
            ("absolute", "as gated gelu: a product bends, whatever is destroyed"),
            ("leaky", "nearer to gated gelu than leaky to gelu: the product destroys what leaky does not"),
            ("wave", "likewise"),
            ("signed root", "likewise"),
            ("identity", "far better than identity: a product of two projections bends by itself"),
        )
    ),
)
IMPLICIT = (
    replace(PLAIN, name="gelu, norm", prediction="the reference"),
    Arm("gelu, no norm", "constant", prediction="worse: half of the non-linear maps are gone"),
    Arm("identity, norm", activation="identity", prediction="keeps much of the gain, says S3: norms bend too"),
    Arm("identity, no norm", "constant", activation="identity", prediction="the floor: attention alone bends"),
    # Added after the arms above had been seen, when a quiet unembedding was found to harm models without norms.
    Arm(
        "identity, no norm, loud",
        "constant",
        activation="identity",
        embedding_scale=LOUD,
        prediction="better than the floor above: its start does not suit a model without norms",
    ),
    Arm("gelu, norm, loud", embedding_scale=LOUD, prediction="equal or worse: a norm does not need it"),
    Arm("identity, norm, loud", activation="identity", embedding_scale=LOUD, prediction="equal or worse, likewise"),
    Arm("gelu, no norm, loud", "constant", embedding_scale=LOUD, prediction="better than with a quiet unembedding"),
)
METRIC = (
    replace(PLAIN, name="dot", prediction="the reference"),
    Arm("cosine", score="cosine", prediction="better, says S3: on a sphere the angle is the metric"),
    Arm("angle", score="angle", prediction="better, says S3"),
    Arm("distance", score="distance", prediction="equal: on a sphere distance and dot product agree"),
    Arm("own angle", score="own angle", prediction="better, says S3, if one metric per head serves both sides"),
)
RANK = (
    replace(PLAIN, name="6 heads of 32", prediction="the reference: k = d/H"),
    *(
        Arm(f"6 heads of {k}", head_width=k, prediction=prediction)
        for k, prediction in ((4, "worse: a head sees 4 of 192 axes"), (16, "worse"), (64, "better: less is unseen"))
    ),
    *(
        Arm(f"{heads} heads of {k}", head_width=k, n_heads=heads, prediction=prediction)
        for heads, k, prediction in (
            (48, 4, "worse: more heads that see less"),
            (12, 16, "worse"),
            (3, 64, "equal: fewer heads that see more"),
            (1, 192, "worse, says S3: one dot product must serve all"),
            (2, 192, "worse, likewise"),
        )
    ),
)
EXPANSION = (
    replace(PLAIN, name="4 ×", prediction="the reference"),
    *(
        Arm(f"{times} ×", expansion=times, prediction=prediction)
        for times, prediction in (
            (1, "worse: too few units to sort, though twice as many layers"),
            (2, "equal: what units lose, layers give"),
            (10, "worse: half as many times to the sphere and back"),
        )
    ),
)
_BLOCKS = "better by its misfit, says S3, in robustness or in the gap; worse in loss: a head sees a sixth of the stream"
GRID_MISFIT = (
    PLAIN,
    Arm("rmsnorm", "rmsnorm", prediction="less misfit: one direction less is lost"),
    Arm("per-head", "per-head", prediction="no misfit: every block has its own sphere"),
    Arm("blocks", block_diagonal=True, prediction=_BLOCKS),
    Arm("blocks, rmsnorm", "rmsnorm", block_diagonal=True, prediction=_BLOCKS),
    Arm("blocks, per-head", "per-head", block_diagonal=True, prediction=_BLOCKS),
    *(
        Arm(f"{m} directions removed", "removing", {"m": m}, prediction="the more, the more robust, says S3")
        for m in (1, 2, 4, 8, 16)
    ),
)
STUDIES = {
    "gate": GATE,
    STABILITY: RANGE,
    "norms": NORMS,
    "symmetriser": SYMMETRISER,
    "layout": LAYOUT,
    "expansion": EXPANSION,
    "softheads": SOFT_HEADS,
    "activations": ACTIVATIONS,
    "implicit": IMPLICIT,
    "metric": METRIC,
    "rank": RANK,
    MISMATCH: GRID_MISFIT,
}


def arms_of(study: str) -> tuple[Arm, ...]:
    if study not in STUDIES:
        raise ArmillaryError(f"there is no study {study!r}; {nearest(study, STUDIES)}")
    return STUDIES[study]

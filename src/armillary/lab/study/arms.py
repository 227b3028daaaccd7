"""Which arms has each study, and what does the geometric view predict for each? The first arm is the reference."""

from dataclasses import replace

from armillary.errors import ArmillaryError, nearest
from armillary.lab.study.design import LOW_RATES, MISMATCH, STABILITY, TWIN, Arm

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
    Arm("slow gain", gain_rate=0.1, prediction="as good as the sphere, if the gain's speed is what costs"),
    Arm("dyt, low rates", "dyt", {"alpha": 1.0}, embed_scale=True, rates=LOW_RATES, prediction="worse, as DyT"),
    Arm("derf, low rates", "derf", {"alpha": 1.0}, embed_scale=True, rates=LOW_RATES, prediction="worse, as DyT"),
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
    Arm("wave", activation="wave", prediction="worse: it can be inverted, though it is far from linear"),
    Arm("signed root", activation="signed root", prediction="worse: it can be inverted"),
    Arm("identity", activation="identity", prediction="worst: nothing is destroyed and nothing is bent"),
)
IMPLICIT = (
    replace(PLAIN, name="gelu, norm", prediction="the reference"),
    Arm("gelu, no norm", "constant", prediction="worse: half of the non-linear maps are gone"),
    Arm("identity, norm", activation="identity", prediction="keeps much of the gain, says S3: norms bend too"),
    Arm("identity, no norm", "constant", activation="identity", prediction="the floor: attention alone bends"),
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
        Arm(f"6 heads of {k}", head_width=k, prediction=said)
        for k, said in ((4, "worse: a head sees 4 of 192 axes"), (16, "worse"), (64, "better: less is unseen"))
    ),
    *(
        Arm(f"{heads} heads of {k}", head_width=k, n_heads=heads, prediction=said)
        for heads, k, said in (
            (48, 4, "worse: more heads that see less"),
            (12, 16, "worse"),
            (3, 64, "equal: fewer heads that see more"),
            (1, 192, "worse, says S3: one dot product must serve all"),
            (2, 192, "worse, likewise"),
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
        for m in (1, 4, 16)
    ),
)
STUDIES = {
    "gate": GATE,
    STABILITY: RANGE,
    "norms": NORMS,
    "symmetriser": (PLAIN, *(arm for arm in NORMS if arm.norm == "symmetriser")),
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

"""What is compared, on which models and how often? Fixed before the first run, and written into a study's manifest."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from armillary.errors import ArmillaryError, nearest

# The smallest difference in loss that counts, in nats per token.
EFFECT = 0.01


@dataclass(frozen=True)
class Arm:
    """One way to build the model, beside the plain GPT-2 shape."""

    name: str
    norm: str = ""
    norm_settings: Mapping[str, Any] = field(default_factory=dict)
    heads: str = ""
    results: str = ""
    embed_scale: bool = False
    """Multiply the embeddings by √d, as DyT needs."""
    prediction: str = ""
    """What the geometric view predicts for this arm, before any run."""

    def apply(self, model: Any) -> None:
        """Swap the arm's parts into a model at random initialisation."""
        from armillary.lab.parts.swap import swap

        norm = {"norm": self.norm, **self.norm_settings} if self.norm else {}
        if self.norm or self.heads:
            swap(model, **norm, heads=self.heads or None, results=self.results or None)
        if self.embed_scale:
            import torch

            with torch.no_grad():
                model.base_model.wte.weight *= model.config.n_embd**0.5


@dataclass(frozen=True)
class Size:
    """A model's shape and the text it reads."""

    name: str
    layers: int
    width: int
    heads: int
    context: int = 256
    batch: int = 128
    """Windows per step."""
    tokens: int = 30_000_000
    """Tokens read by one run, repetitions included."""
    vocabulary: int = 8192

    @property
    def steps(self) -> int:
        return max(1, self.tokens // (self.batch * self.context))


SIZES = {
    "smoke": Size("smoke", 2, 32, 4, context=32, batch=4, tokens=2048, vocabulary=300),
    "cpu": Size("cpu", 2, 64, 4, context=64, batch=16, tokens=400_000, vocabulary=1024),
    "xs": Size("xs", 4, 192, 6),
    "s": Size("s", 6, 256, 8, tokens=100_000_000),
    "m": Size("m", 8, 512, 8, tokens=300_000_000),
}
PLAIN = Arm("layernorm", prediction="the reference: one sphere of d − 1 axes, stretched by γ")
NORMS = (
    PLAIN,
    Arm("rmsnorm", "rmsnorm", prediction="equal: one axis more than LayerNorm's sphere, and none is lost by it"),
    Arm("per-head", "per-head", prediction="worse: a product of small spheres has one constraint per block"),
    Arm("subset", "subset", {"share": 0.25}, prediction="worse: most axes are scaled by a length that is not theirs"),
    Arm("sphere", "sphere", prediction="worse: no gain can favour an axis, and W_Q, W_K, W_V must do it"),
    Arm("dyt", "dyt", embed_scale=True, prediction="worse: no sphere at all, each axis is bounded by itself"),
    Arm("derf", "derf", embed_scale=True, prediction="worse, as DyT"),
    Arm("symmetriser ring", "symmetriser", {"messages": "ring", "rounds": 1}, prediction="nearly equal"),
    Arm("symmetriser learned", "symmetriser", {"messages": "learned"}, prediction="equal: it can be LayerNorm"),
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
    replace(PLAIN, name="identical twin", prediction="no difference: another initialisation of the same model"),
    Arm("block heads", heads="block", prediction="no difference: ordinary heads by another kernel"),
)
STUDIES = {"gate": GATE, "norms": NORMS, "softheads": SOFT_HEADS}
# A first trial of LayerNorm at size xs was best at 4e-3 and unstable at 8e-3: the grid has room on either side.
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
# Seeds of the tuning runs are never used again.
TUNING_SEEDS = (1000, 1001)


@dataclass(frozen=True)
class Run:
    """One training run."""

    study: str
    arm: str
    size: str
    rate: float
    seed: int
    """Decides the order of the text."""
    start: int
    """Seed of the weights; equal to `seed` except in an identical twin."""
    tuning: bool = False

    @property
    def key(self) -> str:
        stage = "tuning" if self.tuning else "paired"
        return f"{self.study}/{self.size}/{self.arm}/{stage}/{self.rate:g}/{self.seed}/{self.start}"

    def record(self) -> dict[str, Any]:
        return {"key": self.key, **asdict(self)}


def arms_of(study: str) -> tuple[Arm, ...]:
    if study not in STUDIES:
        raise ArmillaryError(f"there is no study {study!r}; {nearest(study, STUDIES)}")
    return STUDIES[study]


def tuning_runs(study: str, size: str, arm: Arm) -> Iterator[Run]:
    """Equal trials for every arm: each rate with each tuning seed."""
    for rate in RATES:
        for seed in TUNING_SEEDS:
            yield Run(study, arm.name, size, rate, seed, seed, tuning=True)


def paired_runs(study: str, size: str, arm: Arm, rate: float, seeds: int) -> Iterator[Run]:
    """At the arm's best rate, with the order of the text shared by all arms of a seed."""
    for seed in range(seeds):
        yield Run(study, arm.name, size, rate, seed, seed + (500 if arm.name == "identical twin" else 0))

"""What is compared, on which models and how often? Fixed before the first run, and written into a study's manifest."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from armillary.errors import ArmillaryError

# The smallest difference in loss that counts, in nats per token.
EFFECT = 0.01
# The study whose outcome is the range of learning rates, not the loss at the best of them.
STABILITY = "stability"
# The study that also asks how robust an arm is.
MISMATCH = "mismatch"
# The arm that differs from the reference by its first weights alone.
TWIN = "identical twin"
# Norms that work on blocks of axes: one block per head.
BY_HEAD = ("per-head", "symmetriser")


@dataclass(frozen=True)
class Arm:
    """One way to build the model, beside the plain GPT-2 shape."""

    name: str
    norm: str = ""
    norm_settings: Mapping[str, Any] = field(default_factory=dict)
    heads: str = ""
    results: str = ""
    score: str = ""
    activation: str = ""
    head_width: int = 0
    """Axes per head; the feed-forward is cut so that the parameters stay the same."""
    n_heads: int = 0
    expansion: float = 4.0
    """Hidden width of the feed-forward over the stream's; there are fewer layers then, or more, so that the parameters
    stay the same."""
    block_diagonal: bool = False
    """Queries, keys and values of a head are read from its own block of the stream's axes."""
    gain_rate: float = 1.0
    """Learning rate of gains and shifts, over that of the rest."""
    norm_rate: float | None = None
    """Learning rate of everything in a norm, over that of the rest, and no decay there; by default the matrices of a
    norm learn like any other."""
    rates: tuple[float, ...] = ()
    """Learning rates to tune over, where the study's own do not suit; as many of them."""
    embed_scale: bool = False
    """Multiply what the embedding writes by a learned number that begins at √d, as DyT needs."""
    gate: bool = False
    """The feed-forward has a gate, and as many parameters."""
    layout: str = ""
    """'post-norm' or 'ngpt'."""
    untied: bool = False
    """The unembedding has weights of its own."""
    initial_scale: float = 1.0
    """Of all matrices at the start, over GPT-2's own."""
    embedding_scale: float = 1.0
    """Of the embedding and the positions at the start, over GPT-2's own; a tied unembedding has it too."""
    attention_scale: float = 1.0
    """Of W_QK and W_VO at the start, over GPT-2's own."""
    prediction: str = ""
    """What the geometric view predicts for this arm, before any run."""
    tuned_as: str = ""
    """An arm that is the same model by another way or another start, whose best rate this one takes over."""

    def apply(self, model: Any) -> None:
        """Swap the arm's parts into a GPT-2 at random initialisation."""
        from armillary.lab.parts.initial_weights import prepare
        from armillary.lab.parts.scaled_embedding import ScaledEmbedding
        from armillary.lab.parts.swap import swap

        blocks = {"blocks": model.config.n_head} if self.norm in BY_HEAD else {}
        norm = {"norm": self.norm, **blocks, **self.norm_settings} if self.norm else {}
        parts: dict[str, Any] = {"heads": self.heads, "results": self.results}
        parts |= {"score": self.score, "activation": self.activation}
        parts |= {"head_width": self.head_width, "n_heads": self.n_heads, "block_diagonal": self.block_diagonal}
        parts |= {"gate": self.gate, "layout": self.layout}
        prepare(model, self.untied, self.initial_scale, self.embedding_scale, self.attention_scale)
        swap(model, **norm, **{name: part for name, part in parts.items() if part})
        if self.embed_scale:
            inner = model.base_model
            inner.wte = ScaledEmbedding(inner.wte, model.config.n_embd**0.5)

    def feed_forward(self, size: "Size") -> int:
        """Hidden width of the feed-forward."""
        from armillary.lab.parts.attention.width import matched_feed_forward

        heads = self.n_heads or size.heads
        k = self.head_width or size.width // heads
        return matched_feed_forward(size.width, round(self.expansion * size.width), heads, k)

    def layers(self, size: "Size") -> int:
        """A layer has 4d² weights in attention and 2·expansion·d² in the feed-forward."""
        layers = size.layers * 12 / (4 + 2 * self.expansion)
        if layers != round(layers):
            raise ArmillaryError(
                f"a feed-forward {self.expansion:g} times as wide as the stream would need {layers:.2f} layers "
                f"in place of {size.layers} at equal parameters; choose another size."
            )
        return round(layers)


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
    share: float = 1.0
    """Of the training text that is read; below 1 the text is scarce and read more often."""

    @property
    def steps(self) -> int:
        return max(1, self.tokens // (self.batch * self.context))


SIZES = {
    "smoke": Size("smoke", 2, 32, 4, context=32, batch=4, tokens=1024, vocabulary=300),
    "cpu": Size("cpu", 2, 64, 4, context=64, batch=16, tokens=100_000, vocabulary=1024),
    "xs": Size("xs", 4, 192, 6),
    "xs-scarce": Size("xs-scarce", 4, 192, 6, share=0.1),
    "s-short": Size("s-short", 6, 256, 8),
    "s": Size("s", 6, 256, 8, tokens=100_000_000),
    "m": Size("m", 8, 512, 8, tokens=300_000_000),
}
# What a study of a small size says about itself.
CAUTIONS = {
    "smoke": "Size smoke tests the machinery: no difference of losses means anything.",
    "cpu": "Size cpu sees differences of tenths of a nat; verdicts that count rest on size xs or a larger one.",
}
# Sizes at which no claim is decided: models that have read a thousand tokens differ by chance and by their start.
UNDECIDING = ("smoke",)
# Studies whose arms need the width of size xs: one layer and half of the text keep them as fast as the others.
WIDE_STUDIES = ("rank",)


def size_of(study: str, name: str) -> Size:
    """The size by its name, wide enough for the study's arms."""
    size, wide = SIZES[name], SIZES["xs"]
    if study not in WIDE_STUDIES or size.width >= wide.width:
        return size
    return replace(size, layers=1, width=wide.width, heads=wide.heads, tokens=size.tokens // 2)


@dataclass(frozen=True)
class Preset:
    """How much of a study fits on a machine."""

    size: str
    seeds: int
    """Paired runs per arm."""


# smoke takes a minute or two per study, cpu less than half an hour; gpu is the design that verdicts rest on.
PRESETS = {"smoke": Preset("smoke", 3), "cpu": Preset("cpu", 5), "gpu": Preset("xs", 8)}
# A first trial of LayerNorm at size xs was best at 4e-3 and unstable at 8e-3: the grid has room on either side.
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
# Beyond the edge of stability, to see where it lies.
WIDE_RATES = (*RATES, 3.2e-2, 6.4e-2)
# DyT and Derf did not train at RATES (docs/lab): their embeddings are multiplied by √d, and so are their steps.
LOW_RATES = (6.25e-5, 1.25e-4, 2.5e-4, 5e-4, 1e-3)
# First embeddings of norm-free arms, over GPT-2's: rows of standard deviation 0.16.
LOUD = 8.0
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


def tuning_runs(study: str, size: str, arm: Arm) -> Iterator[Run]:
    """Equal trials for every arm: each rate with each tuning seed; none for an arm that takes over a rate."""
    if arm.tuned_as:
        return
    for rate in arm.rates or (WIDE_RATES if study == STABILITY else RATES):
        for seed in TUNING_SEEDS:
            yield Run(study, arm.name, size, rate, seed, seed, tuning=True)


def paired_runs(study: str, size: str, arm: Arm, rate: float, seeds: int) -> Iterator[Run]:
    """At the arm's best rate (none in a study of rates), with the order of the text shared by all arms of a seed."""
    for seed in range(0 if study == STABILITY else seeds):
        yield Run(study, arm.name, size, rate, seed, seed + (500 if arm.name == TWIN else 0))

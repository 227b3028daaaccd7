"""The settings of a training run: everything that decides its outcome, in one frozen dataclass."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from armillary.errors import ArmillaryError, nearest

Architecture = Literal["gpt", "llama"]
ARCHITECTURES: tuple[Architecture, ...] = ("gpt", "llama")
LEAST: Mapping[str, int] = {
    **dict.fromkeys(("layers", "width", "heads", "kv_heads", "feed_forward", "batch", "steps", "look", "save"), 1),
    # One token predicts nothing; at least the untrained and the trained model are kept.
    **dict.fromkeys(("context", "keep"), 2),
    "warmup": 0,
}
MOST = 2**31 - 1
BETWEEN: Mapping[str, tuple[float, float]] = {
    # Every byte and the end of a document have their own token; tokens are stored in two bytes.
    "vocabulary": (257, 65536),
    "rate": (1e-12, 1e3),
    "floor": (0, 1),
    "dropout": (0, 0.99),
    "decay": (0, 1e3),
    "clip": (1e-12, 1e12),
    "seed": (0, 2**63 - 1),
}


@dataclass(frozen=True)
class Recipe:
    """The settings of one training run, which is reproducible on one text and one machine."""

    preset: str
    architecture: Architecture
    layers: int
    width: int
    heads: int
    kv_heads: int
    """Key/value heads; equal to `heads` for a GPT."""
    feed_forward: int
    context: int
    vocabulary: int
    batch: int
    """Windows of `context` tokens per step."""
    steps: int
    rate: float
    """The highest learning rate, reached after `warmup` steps, then lowered along a cosine to `floor` times that."""
    warmup: int
    floor: float = 0.02
    dropout: float = 0.0
    """Dropout on what the embedding and the sublayers write to the stream."""
    decay: float = 0.1
    """AdamW's weight decay, on matrices only."""
    clip: float = 1.0
    seed: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products; weights and AdamW's state stay float32."""
    compiled: bool = False
    look: int = 50
    """Steps between evaluations of held-out text and geometry."""
    save: int = 100
    """Steps between checkpoints from which a killed run resumes."""
    keep: int = 8
    """Number of models kept in steps/: the untrained one, the last, and some between at geometric distances."""

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise ArmillaryError(
                f"there is no architecture {self.architecture!r}; {nearest(self.architecture, ARCHITECTURES)}"
            )
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ArmillaryError(f"{name} must be at least {least}, got {getattr(self, name)}.")
            if getattr(self, name) > MOST:
                raise ArmillaryError(f"{name} must be at most {MOST:,}; a longer run would never end.")
        for name, (low, high) in BETWEEN.items():
            # This also refuses NaN.
            if not low <= getattr(self, name) <= high:
                raise ArmillaryError(f"{name} must lie between {low} and {high}, got {getattr(self, name)}.")
        self._check_heads()

    def _check_heads(self) -> None:
        if self.width % self.heads or self.heads % self.kv_heads:
            raise ArmillaryError(
                f"{self.heads} heads must divide the width {self.width}, and {self.kv_heads} key/value heads must "
                "divide the heads; change one of them."
            )
        if self.architecture == "gpt" and self.kv_heads != self.heads:
            raise ArmillaryError(
                f"a GPT has as many key/value heads as heads, and {self.kv_heads} and {self.heads} were asked for; "
                "set both to the same number, or choose llama."
            )
        if self.architecture == "llama" and self.width // self.heads % 2:
            raise ArmillaryError(
                f"Llama rotates coordinates in pairs, and heads of width {self.width // self.heads} have an odd "
                "number; choose another width or number of heads."
            )

    @property
    def kept_steps(self) -> tuple[int, ...]:
        """Step 0, then steps in a geometric progression, ending at the last.

        >>> recipe("smoke", steps=128, keep=8).kept_steps
        (0, 2, 4, 8, 16, 32, 64, 128)
        """
        first = min(2, self.steps)
        between = max(1, self.keep - 2)
        powers = (first * (self.steps / first) ** (i / between) for i in range(self.keep - 2))
        return tuple(sorted({0, *map(round, powers), self.steps}))

    def looks_at(self, step: int) -> bool:
        """Is the model evaluated after this step? Early changes are fast, so first at powers of two."""
        doubling = step & (step - 1) == 0 and step < self.look
        return doubling or step % self.look == 0 or step == self.steps or step in self.kept_steps

    def rate_at(self, step: int) -> float:
        """The learning rate of one step, counted from 0."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.rate * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def recipe(preset: str, architecture: str = "gpt", **changes: Any) -> Recipe:
    """A preset for one architecture, with changes."""
    if preset not in PRESETS:
        raise ArmillaryError(f"there is no preset {preset!r}; {nearest(preset, PRESETS)}")
    if architecture not in PRESETS[preset]:
        raise ArmillaryError(f"there is no architecture {architecture!r}; {nearest(architecture, PRESETS[preset])}")
    base = PRESETS[preset][architecture]
    for name in changes:
        if name not in base.to_dict():
            raise ArmillaryError(f"there is no setting {name!r}; {nearest(name, base.to_dict())}")
    # The warmup keeps its share of a shorter run, so that the highest rate is reached.
    if "steps" in changes:
        changes = {"warmup": base.warmup * changes["steps"] // base.steps, **changes}
    if architecture == "gpt" and "heads" in changes:
        changes = {"kv_heads": changes["heads"], **changes}
    return replace(base, **changes)


_SMOKE = Recipe(
    preset="smoke",
    architecture="gpt",
    layers=2,
    width=64,
    heads=4,
    kv_heads=4,
    feed_forward=256,
    context=64,
    vocabulary=1024,
    batch=16,
    steps=200,
    rate=3e-3,
    warmup=20,
)
# The shipped models exactly. Their shapes fill 16 MB in float16 (8 million weights) with tied embeddings.
_BUILTIN = Recipe(
    preset="builtin",
    architecture="gpt",
    layers=7,
    width=256,
    # Four heads of 64: heads of 32 coordinates found repeated tokens less well (LOG.md).
    heads=4,
    kv_heads=4,
    feed_forward=1024,
    context=512,
    vocabulary=8192,
    batch=128,
    steps=13000,
    # At 2.5e-3 the gradient exploded after 6000 steps (LOG.md).
    rate=1.5e-3,
    warmup=811,
    # 0.1 ends 0.002 to 0.004 bits per byte higher (LOG.md).
    dropout=0.05,
    precision="bfloat16",
    compiled=True,
    look=1000,
    save=500,
    keep=9,
)
_BUILTIN_LLAMA = replace(
    _BUILTIN,
    architecture="llama",
    layers=8,
    kv_heads=2,
    feed_forward=672,
    steps=9000,
    warmup=599,
    # It trains faster than the GPT; without dropout it stopped improving after 4000 steps (LOG.md).
    dropout=0.1,
)
PRESETS: Mapping[str, Mapping[str, Recipe]] = {
    "smoke": {
        "gpt": _SMOKE,
        "llama": replace(_SMOKE, architecture="llama", kv_heads=2, feed_forward=192),
    },
    "builtin": {"gpt": _BUILTIN, "llama": _BUILTIN_LLAMA},
}

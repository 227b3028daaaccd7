"""What does a calibration consist of? A list of independent runs, each of them one survey or one planted model."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from armillary.results.claim import Verdict

PartName = Literal["untrained", "seeds", "planted"]
PARTS: tuple[PartName, ...] = get_args(PartName)
SAMPLE = "sample"
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
# At other budgets a third of the seeds, on the first text, is enough to see whether a verdict turns.
OTHER_BUDGETS = 1 / 3


@dataclass(frozen=True)
class Task:
    """One run before it is made."""

    part: PartName
    subject: str
    """The architecture of an untrained model, the name of a model, or the name of a planted case."""
    seed: int
    """The survey's seed; an untrained model's number as well."""
    text: str = ""
    tokens: int = 0
    strength: float = 1.0

    @property
    def key(self) -> str:
        """
        >>> Task("untrained", "gpt", 3, "sample", 2500).key, Task("planted", "radius, ordinary", 0, strength=0.5).key
        ('untrained · gpt · sample · 2500 tokens · seed 3', 'planted · radius, ordinary · strength 0.5 · seed 0')
        """
        how = [f"strength {self.strength:g}"] if self.part == "planted" else [self.text, f"{self.tokens} tokens"]
        return " · ".join([self.part, self.subject, *how, f"seed {self.seed}"])

    @property
    def weight(self) -> float:
        """About how long it takes beside an untrained model at 2500 tokens, for the estimate of the time left."""
        return {"untrained": 1.0, "seeds": 3.0 + self.tokens / 2500, "planted": 0.05}[self.part]


@dataclass(frozen=True)
class Planted:
    """A planted model by name: whose verdict it must show, and at which strengths it is tried."""

    name: str
    claim: str
    verdict: Verdict
    strengths: tuple[float, ...] = STRENGTHS
    matters: float = 1.0
    """The strength from which on it must be found."""
    size: str = ""
    """What the strength is a share of; empty where it is tried in full only."""


@dataclass(frozen=True)
class CalibrationStudy:
    """The settings of a calibration."""

    models: tuple[str, ...] = ("builtin:gpt", "builtin:llama")
    """Surveyed over seeds, budgets and texts."""
    architectures: tuple[str, ...] = ("gpt", "llama")
    """Of the untrained models, in turn."""
    untrained: int = 8
    seeds: int = 3
    planted: int = 2
    """Draws of every planted model at every strength."""
    tokens: tuple[int, ...] = (2500,)
    """Budgets; the first is the main one, which all seeds and all untrained models read."""
    texts: tuple[str, ...] = (SAMPLE,)
    """Names of the texts; untrained models read them in turn."""
    claims: tuple[str, ...] = ()
    quick: bool = False
    device: str = "cpu"

    def tasks(self, cases: Sequence[Planted] = ()) -> list[Task]:
        """Every run, the longest first, so that workers end together."""
        every = [*self._untrained(), *self._seeds(), *self._planted(cases)]
        return sorted(every, key=lambda task: -task.weight)

    def _untrained(self) -> Iterator[Task]:
        kinds = len(self.architectures)
        for number in range(self.untrained):
            text = self.texts[number // kinds % len(self.texts)]
            yield Task("untrained", self.architectures[number % kinds], number, text, self.tokens[0])

    def _seeds(self) -> Iterator[Task]:
        fewer = min(self.seeds, max(2, round(self.seeds * OTHER_BUDGETS)))
        settings = [(text, self.tokens[0], self.seeds) for text in self.texts]
        settings += [(self.texts[0], tokens, fewer) for tokens in self.tokens[1:]]
        for model in self.models:
            for text, tokens, seeds in settings:
                for seed in range(seeds):
                    yield Task("seeds", model, seed, text, tokens)

    def _planted(self, cases: Sequence[Planted]) -> Iterator[Task]:
        for case in cases:
            for strength in case.strengths if case.claim in self.claims else ():
                for seed in range(self.planted):
                    yield Task("planted", case.name, seed, strength=strength)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "CalibrationStudy":
        lists = {key: tuple(value) for key, value in record.items() if isinstance(value, list)}
        return replace(cls(), **{**record, **lists})

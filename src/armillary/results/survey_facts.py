"""What a survey records beside its findings: the model, the text, the laws, and how it was run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import nan
from typing import Any, Self

_PLAIN = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}


class Facts:
    """A record that goes to JSON and back. A field that a file lacks has its default; empty or 0 is 'not recorded'."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload]

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Keys that the class does not have are ignored; a value of another type is refused with a `ValueError`."""
        values = {}
        for entry in fields(cls):  # type: ignore[arg-type]
            if entry.name in record:
                value = record[entry.name]
                # JSON has no NaN: it is stored as null.
                value = nan if value is None and entry.type is float else value
                if entry.type in _PLAIN and not isinstance(value, _PLAIN[entry.type]):
                    raise ValueError(f"{entry.name} is {value!r}, which is not of type {entry.type.__name__}")
                values[entry.name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)


@dataclass(frozen=True)
class ModelFacts(Facts):
    """A model in a few facts."""

    name: str
    family: str = ""
    fingerprint: str = ""
    checksum: str = ""
    """Of every weight and of the config. The fingerprint looks at some weights of each matrix."""
    source: str = ""
    """The path or name it was loaded from."""
    kind: str = ""
    """What the source is: 'folder', 'gguf', 'live' …"""
    parameters: int = 0
    layers: int = 0
    d: int = 0
    heads: int = 0
    kv_heads: int = 0
    k: int = 0
    """Width of one head."""
    m: int = 0
    """Width of the feed-forward layer."""
    vocabulary: int = 0
    context: int = 0
    norm: str = ""
    norm_sites: int = 0
    order: str = ""
    """'pre' or 'post': where the norms stand."""
    parallel: bool = False
    causal: bool = True
    positions: str = ""
    config_ignored: tuple[str, ...] = ()
    """Keys of config.json that the model's class ignores."""
    not_understood: tuple[str, ...] = ()
    """Parts whose inside is not understood: claims that need them do not apply."""
    weights_ignored: tuple[str, ...] = ()
    """Weights in the model's files that its config does not call for."""


@dataclass(frozen=True)
class TextFacts(Facts):
    """The text that was read; no tokens for a survey of the weights alone."""

    source: str
    documents: int = 0
    tokens: int = 0
    budget: int = 0
    """How many tokens were asked for."""
    one_token_documents: int = 0
    documents_longer_than_context: int = 0
    bootstrap_groups: int = 0
    notes: tuple[str, ...] = ()
    checksum: str = ""
    """Of the tokens that were read."""


@dataclass(frozen=True)
class LawCheck(Facts):
    """One law's largest error on this model, relative to the largest value it concerns."""

    name: str
    statement: str
    error: float
    tolerance: float
    where: str


@dataclass(frozen=True)
class Provenance(Facts):
    """What a repetition needs besides the model and the text."""

    seed: int = 0
    device: str = ""
    dtype: str = ""
    threads: int = 0
    arms: tuple[str, ...] = ()
    """The model and the controls that were run."""
    rules_version: str = ""
    """Changes with every rule or threshold."""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TextLoss(Facts):
    """Next-token loss on the evaluation text, document by document."""

    tokens: tuple[int, ...]
    """Predicted tokens of each document."""
    bytes: tuple[int, ...]
    """Their length as UTF-8; 0 where the tokenizer cannot decode."""
    nats: tuple[float, ...]
    text: str
    """A digest of the documents: two surveys with the same one read the same bytes."""


@dataclass(frozen=True)
class Plan(Facts):
    """What a survey is going to do, and how long that should take."""

    claims: int
    experiments: int
    """How many of the claims run experiments."""
    tokens: int
    """Read in each arm."""
    passes: float
    """Upper bound on the experiments' passes over the evaluation text: a rule that decides sooner needs fewer."""
    evaluation: int
    """Tokens of the evaluation text."""
    seconds: float
    arms: int = 3
    """Passes over the text: the model, its untrained twins, and shuffled text."""
    jobs: int = 1
    """Processes that decide the claims."""
    speed: float = 0.0
    """Tokens a second of a bare pass."""


@dataclass(frozen=True)
class Times(Facts):
    """When a survey was started, and how long it took; `seconds` is 0 while it is running."""

    started: str = ""
    seconds: float = 0.0
    claims: Mapping[str, float] = field(default_factory=dict)
    plan: Plan | None = None

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        plan = record.get("plan")
        return super().from_dict({**record, "plan": Plan.from_dict(plan) if plan else None})

"""What was claimed, and what did the measurement say?

A `Claim` is fixed before anything is measured: sentence, source, definition, control and rule. A `Finding` is
one claim measured on one model, with everything a reader needs to disagree with it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from armillary.results.limit import Limit, Prediction
from armillary.results.quantity import Quantity
from armillary.results.statistic import Control, Statistic
from armillary.results.table import Table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

Verdict = Literal["supported", "qualified", "refuted", "undecided", "failed"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Kind = Literal["definition", "behaviour", "learned"]
KINDS: dict[Kind, str] = {
    "learned": "training made it so: the model must beat its untrained twins",
    "behaviour": "true or false of any model, trained or not",
    "definition": "follows from the architecture; what is measured is this model's deviation",
}


class Why(Enum):
    """Why a claim has no verdict. The value is the message that every view shows."""

    TOO_LITTLE_TEXT = "too little text"
    NO_INTERVAL = "too few documents for an interval"
    SPANS_LIMIT = "the interval spans the limit"
    NO_CHECKPOINTS = "no checkpoints of its training"
    NO_CONTROL = "no control to compare with"
    UNDEFINED = "the statistic is undefined on this model"
    NOT_APPLICABLE = "does not apply to this architecture"
    NOT_AFFORDED = "would cost too much"
    FAILED = "failed"


SOURCES = {
    "S0": "R. Molina, Traveling Words: A Geometric Interpretation of Transformers (arXiv:2309.07315), a digest of it",
    "S1": "the abstract of Traveling Words and its peer reviews",
    "S2": "Why Transformer Representations Tend to Live on Hyperspheres (Deep Learning on Medium)",
    "S3": "A Geometric and Information-Theoretic Interpretation of LayerNorm, FFN, and MHA in Transformers "
    "(anonymous, submitted to NeurIPS 2025)",
}
CHAPTERS = {
    "A": "The sphere",
    "B": "Attention on the sphere",
    "C": "Words that travel",
    "D": "Stability",
    "E": "The filter",
    "F": "The grid",
    "G": "The laboratory",
    "H": "Claims of others",
}


@dataclass(frozen=True)
class RuleChange:
    """A change of a rule after results had been seen."""

    date: str
    reason: str


@dataclass(frozen=True)
class Rewording:
    """The same rule, said in other words: nothing that is measured, compared or decided differs.

    Whoever writes one has compared both wordings with the code. What changes a number or a verdict of any model is a
    `RuleChange`, and never a rewording.
    """

    date: str
    before: str
    """`Claim.rule_digest` of the words that were replaced."""
    changes: int
    """How many changes the rule had had by then. After one more these words are those of an earlier rule."""


@dataclass(frozen=True)
class Claim:
    """One sentence from the literature, with the rule that will decide it.

    `definition`, `control` and `rule` may have several lines, which every view shows as such: a rule says in its first
    line what is compared, and then, a line each, what supports, refutes, qualifies and leaves undecided.
    """

    id: str
    chapter: str
    statement: str
    source: str
    definition: str
    control: str
    rule: str
    kind: Kind = "behaviour"
    """What a support of it would mean."""
    changes: tuple[RuleChange, ...] = ()
    """How the rule was changed after results had been seen, oldest first."""
    question: str = ""
    """What is asked, in at most two sentences that a student understands."""
    rewordings: tuple[Rewording, ...] = ()
    """Earlier words of the same rule, oldest first."""

    @property
    def rule_digest(self) -> str:
        """Changes whenever what is measured or what decides does, and with every rewording."""
        words = "\n".join((self.definition, self.control, self.rule, self.kind))
        return hashlib.sha256(words.encode()).hexdigest()[:12]

    def same_rule(self, digest: str) -> bool:
        """Is this the digest of today's rule, in its words of today or in earlier ones?

        >>> old = Claim("a.b", "A", "It is round.", "S1", "roundness", "none", "The roundness decides.")
        >>> new = Claim("a.b", "A", "It is round.", "S1", "how round it is", "none", "The roundness decides.")
        >>> new.same_rule(old.rule_digest)
        False
        >>> from dataclasses import replace
        >>> replace(new, rewordings=(Rewording("2026-11-18", old.rule_digest, 0),)).same_rule(old.rule_digest)
        True
        """
        earlier = (entry.before for entry in self.rewordings if entry.changes == len(self.changes))
        return digest in (self.rule_digest, *earlier)


@dataclass(frozen=True)
class Part:
    """One of several things that a claim says, with its own verdict."""

    name: str
    verdict: Verdict
    reading: str
    statistic: Statistic | None = None
    asserted: bool = True
    """Does the source say it? Parts of our own are reported and decide nothing."""
    why: Why | None = None


@dataclass(frozen=True)
class Finding:
    """One claim, measured."""

    claim: Claim
    verdict: Verdict
    statistic: Statistic
    n: int
    controls: tuple[Control, ...]
    reading: str
    headline: str
    """The figure's title: the finding in a sentence with its number."""
    table: Table
    quantities: tuple[Quantity, ...] = ()
    notes: tuple[str, ...] = ()
    more_tables: Mapping[str, Table] = field(default_factory=dict)
    caption: str = ""
    """Model, text and n, as the figure's subtitle; set by the survey."""
    why: Why | None = None
    """Why nothing was decided; None where the verdict is a verdict."""
    parts: tuple[Part, ...] = ()
    """What the claim says in several parts; the verdict is that of the weakest part that the source asserts."""
    of_text: bool = True
    """Did the survey's text have a say? Not where a stored table was read."""
    limits: tuple[Limit, ...] = ()
    """The numbers that the rule compares with, the one that decided first; none in surveys of earlier versions."""
    prediction: Prediction | None = None
    """What theory says the statistic should be, where it says a number."""

    @property
    def id(self) -> str:
        return self.claim.id

    def to_frame(self) -> "pandas.DataFrame":
        return self.table.to_frame()

    def plot(self) -> "plotly.graph_objects.Figure":
        """The claim's figure (plotly)."""
        # Views import results, never the other way round: only at the call, for the reader's convenience.
        from armillary.views.figures.figure import figure

        return figure(self)

    def save(self, path: str | Path, columns: int = 2) -> Path:
        """Write the figure (.html .svg .pdf .png), the table (.csv .tex .md) or the finding (.json), by the ending.

        `columns`: how wide a picture is in a paper, 1 or 2.
        """
        from armillary.views.save import save_finding

        return save_finding(self, Path(path), columns)

    def __str__(self) -> str:
        from armillary.views.text.survey import finding_text

        return finding_text(self)

    def _repr_html_(self) -> str:
        from armillary.views.report.notebook import finding_html

        return finding_html(self)

"""What was claimed, and what did the measurement say?

A `Claim` is fixed before anything is measured: sentence, source, definition, control and rule. A `Finding` is
one claim measured on one model, with everything a reader needs to disagree with it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from armillary.results.quantity import Quantity
from armillary.results.table import Table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

Verdict = Literal["supported", "qualified", "refuted", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
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
}


@dataclass(frozen=True)
class Claim:
    """One sentence from the literature, with the rule that will decide it."""

    id: str
    chapter: str
    statement: str
    source: str
    definition: str
    control: str
    rule: str


@dataclass(frozen=True)
class Statistic:
    """The number that a rule weighs, with its 95 % interval over documents."""

    name: str
    value: float
    low: float
    high: float
    unit: str = ""


@dataclass(frozen=True)
class Control:
    """The same statistic where the effect should be absent, or known."""

    name: str
    value: float
    low: float
    high: float


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

    def save(self, path: str | Path) -> Path:
        """Write the figure (.html .png .svg), the table (.csv) or the finding (.json), by the path's ending."""
        from armillary.views.save import save_finding

        return save_finding(self, Path(path))

    def __str__(self) -> str:
        from armillary.views.text.survey import finding_text

        return finding_text(self)

    def _repr_html_(self) -> str:
        from armillary.views.report.notebook import finding_html

        return finding_html(self)


@dataclass(frozen=True)
class Survey:
    """Every claim measured on one model with one text: what `armillary survey` gives."""

    findings: tuple[Finding, ...]
    model: Mapping[str, Any]
    text: Mapping[str, Any]
    laws: tuple[Mapping[str, Any], ...]
    provenance: Mapping[str, Any]
    thresholds: Mapping[str, Any]
    times: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, claim_id: str) -> Finding:
        for finding in self.findings:
            if finding.id == claim_id:
                return finding
        from armillary.errors import nearest

        raise KeyError(f"no claim {claim_id!r} in this survey; {nearest(claim_id, [f.id for f in self.findings])}")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def ledger(self) -> "Ledger":
        return Ledger(self)

    def save(self, path: str | Path) -> Path:
        """Write survey.json, tables/ and figures/ into a folder; survey.json appears last and whole."""
        from armillary.views.save import save_survey

        return save_survey(self, Path(path))

    def __str__(self) -> str:
        return str(self.ledger())

    def _repr_html_(self) -> str:
        return self.ledger()._repr_html_()


@dataclass(frozen=True)
class Ledger:
    """One row a claim: verdict, statistic, interval, control, reading."""

    survey: Survey

    def to_frame(self) -> "pandas.DataFrame":
        import pandas

        rows = [
            {
                "claim": f.id,
                "verdict": f.verdict,
                "statistic": f.statistic.name,
                "value": f.statistic.value,
                "low": f.statistic.low,
                "high": f.statistic.high,
                "unit": f.statistic.unit,
                "n": f.n,
                "control": f.controls[0].name if f.controls else "",
                "control_value": f.controls[0].value if f.controls else float("nan"),
                "reading": f.reading,
            }
            for f in self.survey
        ]
        return pandas.DataFrame(rows)

    def plot(self) -> "plotly.graph_objects.Figure":
        from armillary.views.figures.figure import ledger_figure

        return ledger_figure(self.survey)

    def save(self, path: str | Path) -> Path:
        """Write the ledger as .csv, .json, .html, .png or .svg, by the path's ending."""
        from armillary.views.save import save_ledger

        return save_ledger(self.survey, Path(path))

    def __str__(self) -> str:
        from armillary.views.text.survey import ledger_text

        return ledger_text(self.survey)

    def _repr_html_(self) -> str:
        from armillary.views.report.notebook import ledger_html

        return ledger_html(self.survey)

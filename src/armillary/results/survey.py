"""Everything one survey measured: its findings, its model, its text, and how it was run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from armillary import __version__
from armillary.results.claim import Finding
from armillary.results.survey_facts import LawCheck, ModelFacts, Provenance, TextFacts, TextLoss, Times

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects


@dataclass(frozen=True)
class Survey:
    """Every claim measured on one model with one text: the result of `armillary survey`."""

    findings: tuple[Finding, ...]
    model: ModelFacts
    text: TextFacts
    laws: tuple[LawCheck, ...]
    provenance: Provenance
    thresholds: Mapping[str, float]
    times: Times = field(default_factory=Times)
    notes: tuple[str, ...] = ()
    """Tracebacks of claims that failed."""
    loss: TextLoss | None = None
    """None where the model predicts no next token, or no text was read."""
    version: str = __version__
    """Of the Armillary that measured it."""

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
        """Write survey.json, tables/ and figures/ into a folder; survey.json appears whole, the pictures last."""
        from armillary.results.disk.files import check_writable
        from armillary.results.disk.lock import locked
        from armillary.views.save import save_survey

        with locked(check_writable(Path(path))):
            return save_survey(self, Path(path))

    def __str__(self) -> str:
        return str(self.ledger())

    def _repr_html_(self) -> str:
        return self.ledger()._repr_html_()


@dataclass(frozen=True)
class Ledger:
    """One row per claim: verdict, statistic, interval, control, reading."""

    survey: Survey

    def to_frame(self) -> "pandas.DataFrame":
        import pandas

        rows = [
            {
                "claim": f.id,
                "verdict": f.verdict,
                "why": f.why.value if f.why else "",
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
        """Write the ledger as .csv, .tex, .md, .json, .html, .svg, .pdf or .png, by the path's ending."""
        from armillary.views.save import save_ledger

        return save_ledger(self.survey, Path(path))

    def __str__(self) -> str:
        from armillary.views.text.ledger import ledger_text

        return ledger_text(self.survey)

    def _repr_html_(self) -> str:
        from armillary.views.report.notebook import ledger_html

        return ledger_html(self.survey)

"""Compare two surveys claim by claim: verdicts, statistics, and the rows of the tables.

Rows are matched by the columns that name them (site, head, layer). What cannot be matched is listed, never guessed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.results.compare.changes import LossChange, Shift, largest, loss_change
from armillary.results.compare.claim_pair import OUTCOMES, RULE, Change, Number, Outcome, Pair, Tally, rounding
from armillary.results.compare.matched_rows import claim_table, paired, row_table
from armillary.results.compare.notes import read_loosely, survey_names, survey_notes, unlike_shapes
from armillary.results.compare.similarity import Similarity
from armillary.results.survey import Survey

if TYPE_CHECKING:
    import pandas

__all__ = [
    "OUTCOMES",
    "RULE",
    "Change",
    "Comparison",
    "LossChange",
    "Number",
    "Outcome",
    "Pair",
    "Shift",
    "Similarity",
    "Tally",
    "compare",
    "read_loosely",
]


@dataclass(frozen=True)
class Comparison:
    """Two surveys side by side; B is measured against A."""

    a: Survey
    b: Survey
    names: tuple[str, str]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...] = ()
    """Differences in texts, budgets, thresholds and claims."""
    loss: LossChange | None = None
    """None where one of the surveys stored none."""
    similarity: Similarity | None = None
    """How alike the streams are; None unless both models were at hand."""

    @property
    def shifts(self) -> tuple[Shift, ...]:
        """The ten largest changes that the intervals bear out, by effect size."""
        return largest(self.pairs, min(self.a.text.documents, self.b.text.documents))

    def __getitem__(self, claim_id: str) -> Pair:
        for pair in self.pairs:
            if pair.id == claim_id:
                return pair
        from armillary.errors import nearest

        raise KeyError(f"no claim {claim_id!r} in both surveys; {nearest(claim_id, [p.id for p in self.pairs])}")

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def to_frame(self) -> "pandas.DataFrame":
        """One row per claim."""
        return claim_table(self.pairs).to_frame()

    def rows(self) -> "pandas.DataFrame":
        """One row per number, of all claims."""
        return row_table(self.pairs).to_frame()

    def save(self, path: str | Path) -> Path:
        """Write the page (.html), everything (.json) or one row per claim (.csv), by the path's ending."""
        from armillary.views.save import save_comparison

        return save_comparison(self, Path(path))

    def __str__(self) -> str:
        from armillary.views.compare.comparison import comparison_text

        return comparison_text(self)

    def _repr_html_(self) -> str:
        from armillary.views.compare.comparison import comparison_html

        return comparison_html(self)


def compare(
    a: Survey,
    b: Survey,
    names: tuple[str, str] | None = None,
    notes: tuple[str, ...] = (),
    similarity: Similarity | None = None,
) -> Comparison:
    """Survey B against survey A; `notes` say what could not be read."""
    named = names or survey_names(a, b)
    unlike = unlike_shapes(a, b)
    known = {finding.id: finding for finding in a}
    depths = (a.model.layers, b.model.layers)
    coarse = rounding(a.provenance.dtype, b.provenance.dtype)
    pairs = tuple(paired(known[f.id], f, unlike, depths, coarse) for f in b if f.id in known)
    return Comparison(a, b, named, pairs, (*notes, *survey_notes(a, b)), loss_change(a, b), similarity)

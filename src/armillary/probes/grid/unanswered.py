"""What is found where a model, or a text, cannot answer a claim?"""

from collections.abc import Sequence

from armillary.results import Claim, Column, Finding, Statistic, Table


def unanswered(claim: Claim, reading: str, columns: Sequence[Column], table: Table | None = None) -> Finding:
    """Undecided: `reading` says what is missing and what would decide; a table of what was measured all the same."""
    nothing = float("nan")
    return Finding(
        claim=claim,
        verdict="undecided",
        statistic=Statistic("not measured", nothing, nothing, nothing),
        n=0,
        controls=(),
        reading=reading,
        headline="Nothing can be concluded: " + reading.split(";")[0].split(":")[0].rstrip("."),
        table=Table(tuple(columns), ()) if table is None else table,
    )

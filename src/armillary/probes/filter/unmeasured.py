"""What is said of a claim that this model, or this text, cannot answer?"""

from armillary.results import Claim, Column, Finding, Statistic, Table


def unmeasured(claim: Claim, column: Column, why: str) -> Finding:
    """Undecided, with the reason and what would decide."""
    nothing = float("nan")
    return Finding(
        claim=claim,
        verdict="undecided",
        statistic=Statistic("not measured", nothing, nothing, nothing),
        n=0,
        controls=(),
        reading=why,
        headline="Nothing could be measured: nothing can be concluded",
        table=Table((column,), ()),
    )


NO_TOKENS = "No document has a second token, and first ones are left out; give longer documents and more text."

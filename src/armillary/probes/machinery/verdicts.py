"""How does a rule end? One `undecided` and one `failed` for every probe, and how names are listed in a sentence."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from armillary.probes.machinery.intervals import NAN3
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Finding, Statistic, Table, Verdict, Why

Flags = NDArray[np.bool_]


def undecided(claim: Claim, why: Why, reading: str, table: Table | None = None, n: int = 0) -> Finding:
    """No verdict: `reading` says what is missing and what would decide; `table` holds what was measured anyway."""
    return Finding(
        claim=claim,
        verdict="undecided",
        statistic=Statistic("not measured", *NAN3),
        n=n,
        controls=(),
        reading=reading,
        headline=f"Nothing can be concluded: {why.value}",
        table=Table((Column("site", "norm site"),), ()) if table is None else table,
        why=why,
    )


def failed(claim: Claim, error: BaseException) -> Finding:
    """The row of a claim whose probe raised."""
    message = " ".join(str(error).split())
    return Finding(
        claim=claim,
        verdict="failed",
        statistic=Statistic("not measured", *NAN3),
        n=0,
        controls=(),
        reading=f"The probe raised {type(error).__name__}: {message or 'no message'}",
        headline=f"Nothing can be concluded: the probe raised {type(error).__name__}",
        table=Table((Column("site", "norm site"),), ()),
        why=Why.FAILED,
    )


def by_share(holds: Flags) -> Verdict:
    """Supported where at least 90 % of the places agree, refuted where at most 10 % do."""
    share = float(np.mean(holds))
    if share >= T.sites_most:
        return "supported"
    return "refuted" if share <= T.sites_few else "qualified"


def missing_interval(*ends: float) -> Why:
    """Why a rule that looked at these interval ends decided nothing: one is missing, or they span the limit."""
    return Why.NO_INTERVAL if np.isnan(ends).any() else Why.SPANS_LIMIT


def name_sites(sites: Sequence[str], most: int = 4) -> str:
    """A few names for a sentence.

    >>> name_sites(["L0.ln1", "L1.ln1"])
    'L0.ln1 and L1.ln1'
    """
    if len(sites) > most:
        return ", ".join(sites[: most - 1]) + f" and {len(sites) - most + 1} more"
    return " and ".join([", ".join(sites[:-1]), sites[-1]]) if len(sites) > 1 else "".join(sites)


def name_heads(flags: Flags, most: int = 4) -> str:
    """The first few heads by name.

    >>> name_heads(np.array([[True, False], [False, True]]))
    'L0H0 and L1H1'
    """
    return name_sites([f"L{layer}H{head}" for layer, head in np.argwhere(flags)], most)

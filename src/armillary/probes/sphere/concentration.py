"""Do vectors fall on a thin shell even before they are normalised?"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Flags, Floats, mean, name_sites, spread
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

DIMENSIONS = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
SAMPLES = 2000
ORDINARY = (0,)

COLUMNS = (
    Column("site", "norm site: lengths are taken before it"),
    Column("cv_length", "coefficient of variation of ‖x‖, ordinary tokens"),
    Column("cv_length_low", "its 95 % interval over documents, low end"),
    Column("cv_length_high", "its 95 % interval over documents, high end"),
    Column("law_length", "Gaussian law 1/√(2d)"),
    Column("cv_squared", "coefficient of variation of ‖x‖², ordinary tokens"),
    Column("law_squared", "Gaussian law √(2/d)"),
    Column("cv_length_all", "cv of ‖x‖ with first-position and massive-activation tokens"),
    Column("mean_length", "mean ‖x‖, ordinary tokens"),
    Column("first_length", "mean ‖x‖ at the first position"),
    Column("massive_tokens", "massive-activation tokens, first positions included", "tokens"),
    Column("massive_dimensions", "dimensions that hold them, most extreme first"),
    Column("random_cv", "cv_length at random initialisation"),
)
SHELL = (
    Column("d", "dimension"),
    Column("cv_length", "sampled spread of the length ‖x‖"),
    Column("law_length", "1/√(2d)"),
    Column("cv_squared", "sampled spread of the squared length ‖x‖²"),
    Column("law_squared", "√(2/d)"),
)


@dataclass(frozen=True)
class Concentration:
    """The spread of ‖x‖ before each norm, against what a Gaussian of that dimension would have."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.concentration",
        chapter="A",
        statement="High-dimensional vectors fall on a thin shell even without normalisation.",
        source="S2",
        definition=(
            "Coefficient of variation of ‖x‖ before each norm, over ordinary tokens (first positions and massive "
            "activations apart), against the Gaussian law 1/√(2d); of ‖x‖² against √(2/d). S2's '4.5 % at d = 1000' is "
            "the spread of the squared length; of the length it is 2.2 %: the Monte-Carlo table shows both."
        ),
        control="Gaussian vectors of the same dimension (Monte-Carlo); random initialisation; shuffled text",
        rule=(
            f"A site follows the law if its spread (high end of the interval) is at most {T.shell_law_factor:.0f}× "
            f"1/√(2d); it may be a thin shell if the low end is at most {T.shell_thin:.0%}. Supported: the law at ≥ {T.sites_most:.0%} of "
            f"sites. Refuted: perhaps a thin shell at ≤ {T.sites_few:.0%}. Qualified between."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("lengths",)

    def conclude(self, evidence: Evidence) -> Finding:
        lengths = evidence.scalars(MODEL, "length", ORDINARY)
        spreads = evidence.site_intervals(lengths, spread)
        law = 1 / np.sqrt(2 * evidence.anatomy.d)
        low_end, high_end = (np.where(np.isnan(spreads[:, i]), spreads[:, 0], spreads[:, i]) for i in (1, 2))
        follows, thin = high_end <= T.shell_law_factor * law, low_end <= T.shell_thin
        verdict = _verdict(follows, thin)
        value, low, high = evidence.across_sites(lengths, spread)
        shell = _shell(evidence)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("spread of ‖x‖ before the norm, median site", value, low, high),
            n=evidence.ordinary,
            controls=_controls(evidence, law),
            reading=_reading(evidence, follows, thin, value, law),
            headline=_headline(verdict, value, law),
            table=_table(evidence, spreads, law),
            quantities=_quantities(evidence, spreads, law, shell),
            notes=_massive(evidence),
            more_tables={"monte-carlo": shell},
        )


def _verdict(follows: Flags, thin: Flags) -> Verdict:
    if follows.mean() >= T.sites_most:
        return "supported"
    return "refuted" if thin.mean() <= T.sites_few else "qualified"


def shell_table(seed: int = 0) -> Table:
    """The Monte-Carlo table: how thin the Gaussian shell is, by both readings of S2's 4.5 %."""
    from armillary.geometry.sphere import monte_carlo_shell

    rows = [
        {
            "d": row.d,
            "cv_length": row.cv_length,
            "law_length": row.law.length_asymptotic,
            "cv_squared": row.cv_squared,
            "law_squared": row.law.squared,
        }
        for row in monte_carlo_shell(DIMENSIONS, SAMPLES, seed)
    ]
    return Table.of(SHELL, rows)


def _shell(evidence: Evidence) -> Table:
    return shell_table(evidence.seed)


def _table(evidence: Evidence, spreads: Floats, law: float) -> Table:
    ordinary = evidence.scalars(MODEL, "length", ORDINARY).sum(1)
    squared = spread(evidence.scalars(MODEL, "length2", ORDINARY).sum(1))
    everything = spread(evidence.scalars(MODEL, "length").sum(1))
    first = evidence.scalars(MODEL, "length", (1,)).sum(1)
    at_random = spread(evidence.scalars(RANDOM, "length", ORDINARY).sum(1)) if RANDOM in evidence.records else None
    rows: list[dict[str, Any]] = []
    for i, site in enumerate(evidence.sites):
        record = evidence.records[MODEL][site]
        dimensions = list(dict.fromkeys(int(p[3]) for p in record.massive.payload))
        rows.append(
            {
                "site": site,
                "cv_length": float(spreads[i, 0]),
                "cv_length_low": float(spreads[i, 1]),
                "cv_length_high": float(spreads[i, 2]),
                "law_length": float(law),
                "cv_squared": float(squared[i]),
                "law_squared": float(np.sqrt(2 / evidence.anatomy.d)),
                "cv_length_all": float(everything[i]),
                "mean_length": float(mean(ordinary[i])),
                "first_length": float(mean(first[i])) if first[i, 0] else None,
                "massive_tokens": record.massive_count,
                "massive_dimensions": " ".join(map(str, dimensions)),
                "random_cv": None if at_random is None else float(at_random[i]),
            }
        )
    return Table.of(COLUMNS, rows)


def _controls(evidence: Evidence, law: float) -> tuple[Control, ...]:
    from armillary.geometry.sphere import monte_carlo_shell

    row = monte_carlo_shell([evidence.anatomy.d], SAMPLES, evidence.seed)[0]
    error = 1.96 * row.cv_length_error
    made = [Control(f"Gaussian vectors, d = {row.d}", row.cv_length, row.cv_length - error, row.cv_length + error)]
    for arm in evidence.controls():
        lengths = evidence.scalars(arm, "length", ORDINARY)
        made.append(Control(arm, *evidence.across_sites(lengths, spread)))
    return tuple(made)


def _massive(evidence: Evidence) -> tuple[str, ...]:
    """One line on the massive activations: how many tokens, at how many sites, in which dimensions."""
    records = {site: r for site, r in evidence.records[MODEL].items() if r.massive_count}
    if not records:
        return ("No massive activations (a coordinate a thousand times its site's median) at any site.",)
    dimensions = sorted({int(p[3]) for r in records.values() for p in r.massive.payload})
    most = max(r.massive_count for r in records.values())
    shown = ", ".join(map(str, dimensions[:8])) + (" …" if len(dimensions) > 8 else "")
    return (
        f"Massive activations at {len(records)} of {len(evidence.sites)} sites ({name_sites(list(records))}), "
        f"at most {most} tokens a site, in dimensions {shown}.",
    )


def _reading(evidence: Evidence, follows: Flags, thin: Flags, value: float, law: float) -> str:
    sites = len(evidence.sites)
    ratio = value / law
    return (
        f"Before the norm lengths spread by {value:.1%}, {ratio:.2g}× the Gaussian law's {law:.1%}; the law holds at "
        f"{int(follows.sum())} of {sites} sites, and a shell thinner than {T.shell_thin:.0%} at {int(thin.sum())}"
        + (f" ({name_sites([s for s, yes in zip(evidence.sites, thin, strict=True) if yes])})." if thin.any() else ".")
    )


def _headline(verdict: Verdict, value: float, law: float) -> str:
    if verdict == "supported":
        return f"A thin shell even before the norm: lengths spread by {value:.1%} (Gaussian law {law:.1%})"
    if verdict == "refuted":
        return f"No thin shell without the norm: lengths spread by {value:.0%} where the Gaussian law says {law:.1%}"
    return f"Lengths before the norm spread by {value:.1%}; the Gaussian law says {law:.1%}"


def _quantities(evidence: Evidence, spreads: Floats, law: float, shell: Table) -> tuple[Quantity, ...]:
    sites = len(evidence.sites)
    controls = {arm: spread(evidence.scalars(arm, "length", ORDINARY).sum(1)) for arm in evidence.controls()}
    controls["with first and massive tokens"] = spread(evidence.scalars(MODEL, "length").sum(1))
    rows = np.array([[float(cell) for cell in row] for row in shell.rows])  # type: ignore[arg-type]
    return (
        Quantity(
            "spread of ‖x‖ before the norm",
            "coefficient of variation over ordinary tokens",
            "cv",
            ("site",),
            {"site": evidence.sites},
            spreads[:, 0],
            spreads[:, 1],
            spreads[:, 2],
            controls,
            {"1/√(2d)": np.full(sites, law)},
            ("value",),
        ),
        Quantity(
            "spread of a Gaussian's ‖x‖ (Monte-Carlo)",
            "sampled, beside the squared length's",
            "cv",
            ("dimension",),
            {"dimension": rows[:, 0].tolist()},
            rows[:, 1],
            controls={"of ‖x‖²": rows[:, 3]},
            theory={"1/√(2d)": rows[:, 2], "√(2/d)": rows[:, 4]},
            logs=("dimension", "value"),
            label="of ‖x‖",
        ),
    )

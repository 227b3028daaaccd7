"""Do vectors fall on a thin shell even before they are normalised?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    AnyInstrument,
    Evidence,
    Flags,
    Floats,
    Interval,
    Ints,
    T,
    above,
    mean,
    spread,
)
from armillary.probes.machinery.tables import cells, interval_cells, line, site_table, table
from armillary.probes.machinery.verdicts import missing_interval, name_sites
from armillary.probes.sphere.across_sites import (
    across_sites,
    arm_controls,
    arm_lines,
    by_site,
    flagged,
    sure_and_possible,
)
from armillary.results import Claim, Control, Finding, Quantity, Rewording, RuleChange, Statistic, Table, Verdict, say

DIMENSIONS = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
GAUSSIANS = 2000
ORDINARY = (0,)


@dataclass(frozen=True)
class Concentration:
    """The spread of ‖x‖ before each norm, compared with that of a Gaussian vector of the same dimension."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.concentration",
        chapter="A",
        statement="High-dimensional vectors fall on a thin shell even without normalisation.",
        source="S2",
        question=(
            "Random vectors of many dimensions all have nearly the same length. Do tokens have nearly the same length "
            "even before a norm?"
        ),
        definition=(
            "How much tokens differ in length before each norm: the standard deviation of ‖x‖ over its mean (the "
            "spread). Only ordinary tokens count: no first positions, and no tokens with a massive activation.\n"
            "Theory: a Gaussian vector of d dimensions has a spread of 1/√(2d). Its squared length has √(2/d), "
            "twice as much.\n"
            "S2's '4.5 % at d = 1000' is the spread of the squared length; that of the length is 2.2 %. The "
            "Monte-Carlo table shows both."
        ),
        control="Gaussian vectors of the same dimension (Monte-Carlo); random initialisation; shuffled text",
        rule=(
            f"Tokens before a norm follow the Gaussian law if their spread is at most {T.shell_law_factor:g}/√(2d). "
            f"They form a thin shell if they follow the law, or if their spread is at most {T.shell_thin:.0%}. Every "
            "comparison uses the whole interval of the spread.\n"
            f"Supported if tokens follow the law before at least {T.sites_most:.0%} of norms.\n"
            "Refuted if tokens before the median norm form no thin shell.\n"
            "Qualified otherwise; the reading names the norms.\n"
            "Undecided if intervals that span a limit could change the verdict.\n"
            "Untrained vectors may follow the law too: the shell comes from chance, not from training."
        ),
        kind="behaviour",
        changes=(
            RuleChange(
                "2026-11-16",
                "undecided where an interval that spans a limit matters; the median norm refutes, because the number "
                "of norms just around the limit turned with the seed",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "92b8a6d783e2", 1),
            Rewording("2026-11-19", "56140187cf1b", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (LENGTHS,)

    def conclude(self, evidence: Evidence) -> Finding:
        state = evidence[LENGTHS][MODEL]
        lengths = state.sums("length", ORDINARY)
        spreads = by_site(evidence, lengths, spread)
        law = float(1 / np.sqrt(2 * evidence.anatomy.d))
        value, low, high = across_sites(evidence, lengths, spread)
        verdict = _verdict(spreads, (value, low, high), law)
        follows, thin = (spreads[:, 0] <= limit for limit in _limits(law))
        shell = shell_table(evidence.seed)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("spread of ‖x‖ before the norm, median site", value, low, high),
            n=LENGTHS.count(state)[0],
            controls=_controls(evidence),
            reading=_reading(evidence, verdict, follows, thin, value, law),
            headline=_headline(verdict, value, law),
            table=_table(evidence, spreads, law),
            quantities=_quantities(evidence, spreads, law, shell),
            notes=_massive_activations(evidence),
            more_tables={"monte-carlo": shell},
            why=missing_interval(low, high) if verdict == "undecided" else None,
        )


def _limits(law: float) -> tuple[float, float]:
    """The largest spread that follows the Gaussian law, and that of a thin shell."""
    return T.shell_law_factor * law, max(T.shell_law_factor * law, T.shell_thin)


def _verdict(spreads: Floats, median: Interval, law: float) -> Verdict:
    gaussian, shell = _limits(law)
    follows, may_follow = (flags.mean() >= T.sites_most for flags in sure_and_possible(spreads, gaussian))
    thick = above(median, shell)
    if follows:
        return "supported"
    if thick:
        return "refuted"
    return "undecided" if may_follow or thick is None else "qualified"


def shell_table(seed: int = 0) -> Table:
    """The Monte-Carlo table: how thin the Gaussian shell is, for the length and for its square."""
    from armillary.geometry.sphere import monte_carlo_shell

    rows = monte_carlo_shell(DIMENSIONS, GAUSSIANS, seed)
    return table(
        cells("d", "dimension", DIMENSIONS),
        cells("cv_length", "sampled spread of the length ‖x‖", [row.cv_length for row in rows]),
        cells("law_length", "1/√(2d)", [row.law.length_asymptotic for row in rows]),
        cells("cv_squared", "sampled spread of the squared length ‖x‖²", [row.cv_squared for row in rows]),
        cells("law_squared", "√(2/d)", [row.law.squared for row in rows]),
    )


def _table(evidence: Evidence, spreads: Floats, law: float) -> Table:
    state, sites = evidence[LENGTHS][MODEL], len(evidence.sites)
    first = mean(state.sums("length", (1,)).sum(1))
    dimensions = [" ".join(map(str, dict.fromkeys(places[:, 3].tolist()))) for places in _massive_places(evidence)]
    at_random = _arm_spreads(evidence).get(RANDOM, np.full(sites, np.nan))
    return site_table(
        evidence.sites,
        interval_cells(
            "cv_length", "spread (coefficient of variation) of ‖x‖ before the norm, ordinary tokens", spreads
        ),
        cells("law_length", "Gaussian law 1/√(2d)", [law] * sites),
        cells("cv_squared", "spread of ‖x‖², ordinary tokens", spread(state.sums("length2", ORDINARY).sum(1))),
        cells("law_squared", "Gaussian law √(2/d)", [np.sqrt(2 / evidence.anatomy.d)] * sites),
        cells("cv_length_all", "spread of ‖x‖ over all tokens", spread(state.sums("length").sum(1))),
        cells("mean_length", "mean ‖x‖, ordinary tokens", mean(state.sums("length", ORDINARY).sum(1))),
        cells("first_length", "mean ‖x‖ at the first position", first),
        cells(
            "massive_tokens", "tokens with a massive activation, first ones included", state.massive_counts(), "tokens"
        ),
        cells("massive_dimensions", "dimensions of the massive activations, largest first", dimensions),
        cells("random_cv", "cv_length at random initialisation, mean over the untrained twins", at_random),
    )


def _massive_places(evidence: Evidence) -> list[Ints]:
    """Per site [massive activation, (document, position, token, dimension)], largest first."""
    return [top.payload.numpy() for top in evidence[LENGTHS][MODEL].massive.values()]


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    from armillary.geometry.sphere import monte_carlo_shell

    row = monte_carlo_shell([evidence.anatomy.d], GAUSSIANS, evidence.seed)[0]
    error = 1.96 * row.cv_length_error
    gaussian = Control(f"Gaussian vectors, d = {row.d}", row.cv_length, row.cv_length - error, row.cv_length + error)
    return gaussian, *arm_controls(
        evidence, LENGTHS, lambda arm: across_sites(evidence, evidence[LENGTHS][arm].sums("length", ORDINARY), spread)
    )


def _arm_spreads(evidence: Evidence) -> dict[str, Floats]:
    return arm_lines(evidence, LENGTHS, lambda arm: spread(evidence[LENGTHS][arm].sums("length", ORDINARY).sum(1)))


def _massive_activations(evidence: Evidence) -> tuple[str, ...]:
    """One line on the massive activations: how many tokens, at how many sites, in which dimensions."""
    counts = dict(zip(evidence.sites, evidence[LENGTHS][MODEL].massive_counts(), strict=True))
    sites = [site for site, count in counts.items() if count]
    if not sites:
        return ("No massive activation (a coordinate a thousand times its site's median) at any norm.",)
    dimensions = sorted({int(place[3]) for places in _massive_places(evidence) for place in places})
    names = ", ".join(map(str, dimensions[:8])) + (" …" if len(dimensions) > 8 else "")
    return (
        f"Massive activations before {len(sites)} of {len(counts)} norms ({name_sites(sites)}), in at most "
        f"{max(counts.values())} tokens per norm, in dimensions {names}.",
    )


def _reading(evidence: Evidence, verdict: Verdict, follows: Flags, thin: Flags, value: float, law: float) -> str:
    follow, shell = (_where(evidence, flags) for flags in (follows, thin))
    reading = (
        f"Lengths before the norm spread by {say(value, '.1%')} (median site), {say(value / law, '.2g')} times the "
        f"{say(law, '.1%')} of a Gaussian vector. They follow the Gaussian law (within a factor of "
        f"{T.shell_law_factor:.0f}) before {follow} and form a thin shell before {shell}."
    )
    if verdict == "undecided":
        return f"{reading} The intervals of some norms span a limit. Give more text."
    return reading


def _where(evidence: Evidence, flags: Flags) -> str:
    """'2 of 15 norms (L0.ln1 and L0.ln2)', or those it does not hold for where they are fewer."""
    count = f"{int(flags.sum())} of {len(flags)} norms"
    if flags.all() or not flags.any():
        return count
    few = flags if flags.sum() <= len(flags) / 2 else ~flags
    return f"{count} ({'' if few is flags else 'not '}{name_sites(flagged(evidence.sites, few))})"


def _headline(verdict: Verdict, value: float, law: float) -> str:
    gaussian = f"Gaussian law: {say(law, '.1%')}"
    if verdict == "supported":
        return f"A thin shell even before the norm: lengths spread by {say(value, '.1%')} ({gaussian})"
    if verdict == "refuted":
        return f"No thin shell before the norm: lengths spread by {say(value, '.0%')} ({gaussian})"
    return f"Lengths before the norm spread by {say(value, '.1%')} ({gaussian})"


def _quantities(evidence: Evidence, spreads: Floats, law: float, shell: Table) -> tuple[Quantity, ...]:
    controls = _arm_spreads(evidence)
    controls["with first and massive tokens"] = spread(evidence[LENGTHS][MODEL].sums("length").sum(1))
    d, length, law_length, squared, law_squared = np.array(shell.rows, dtype=float).T
    name, meaning = "spread of ‖x‖ before the norm", "coefficient of variation over ordinary tokens"
    theory = {"1/√(2d)": np.full(len(evidence.sites), law)}
    return (
        line(name, meaning, "cv", "site", evidence.sites, spreads, controls, theory, ("value",)),
        line(
            "spread of a Gaussian vector's ‖x‖ (Monte-Carlo)",
            "sampled, with that of the squared length",
            "cv",
            "dimension",
            d.tolist(),
            length,
            {"of ‖x‖²": squared},
            {"1/√(2d)": law_length, "√(2/d)": law_squared},
            ("dimension", "value"),
            label="of ‖x‖",
        ),
    )

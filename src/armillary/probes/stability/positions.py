"""Are the rules of the game the same at every position?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.instruments.position_samples import POSITION_SAMPLES, ranges
from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    SHUFFLED,
    AnyInstrument,
    Evidence,
    Flags,
    Floats,
    Interval,
    T,
    above,
    missing_interval,
    name_sites,
    undecided,
    weakest,
)
from armillary.probes.machinery.tables import cells, interval_cells, line, site_table, table
from armillary.probes.machinery.verdicts import more_text
from armillary.probes.sphere.across_sites import drawn_interval, flagged
from armillary.probes.stability.position_bins import BinDistances, counted_ranges, site_distances
from armillary.results import Claim, Control, Finding, Part, Quantity, RuleChange, Statistic, Table, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench
    from armillary.probes.stability.beyond import Beyond

NAME = "energy distance of y between ranges of positions, median norm"


@dataclass(frozen=True)
class Positions:
    """Energy distances between ranges of positions, at every norm."""

    claim: ClassVar[Claim] = Claim(
        id="stability.positions",
        chapter="D",
        statement="The rules are the same at every position: tokens are put on the same surface, and lie alike on it.",
        source="S3",
        definition=(
            "How far the distribution of y, what a norm gives, differs between ranges of positions in a window (1–7, "
            "8–31, 32–127 and so on; first positions are left out). The energy distance is 1 − (mean distance of two "
            "tokens within a range)/(mean distance of two tokens of different ranges), over tokens of different "
            "documents: 0 if the distributions are equal, 0.01 if their means are a fifth of the cloud's radius apart. "
            "The mean over all pairs of ranges, at every norm; the statistic is that of the median norm. That γ and β "
            "are the same at every position, so that all tokens come to one surface, is true by definition. Beyond the "
            "trained length (ours): the last positions within it against the first beyond, where positions are not a "
            "learned table, which ends there."
        ),
        control=(
            "the two halves of the documents in one range, where the distance is 0 but for sampling; shuffled text, "
            "where a difference cannot come from the words that documents begin with; random initialisation (one twin)"
        ),
        rule=(
            "Parts, the weaker of the first two decides. 'One surface': supported if the mean length of z in every "
            f"range is within {T.radius_within:.0%} of √d. 'The same distribution': the limit is "
            f"{T.position_distance}, or what two halves of the documents show, if that is more. Supported if the "
            f"distance at the median norm lies below it with its whole interval, and at most {T.sites_few:.0%} of "
            "norms lie above theirs; qualified if more do. If the median norm lies above, refuted if it does on "
            "shuffled text too, and qualified if it lies below there: then the words make the difference. Undecided "
            "where an interval spans its limit."
        ),
        kind="behaviour",
        changes=(
            RuleChange(
                "2026-11-16",
                "The median norm decides, not a share of norms: changed after a first result was seen. builtin:gpt and "
                "MiniLM were undecided and became refuted; the limit did not move.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (POSITION_SAMPLES,)

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.stability.beyond import passes

        return passes(anatomy)

    def experiment(self, bench: "Bench") -> "Beyond | None":
        from armillary.probes.stability.beyond import look_beyond

        return look_beyond(bench)

    def conclude(self, evidence: Evidence, result: "Beyond | None") -> Finding:
        counted = counted_ranges(evidence)
        if len(counted) < 2:
            reading = f"Fewer than two of the ranges {', '.join(ranges())} have {T.tokens_least} tokens from "
            reading += f"{T.documents_least} documents. Give more text, or longer documents."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading)
        arms = {arm: list(site_distances(evidence, arm, counted).values()) for arm in evidence[POSITION_SAMPLES]}
        names = [ranges()[index] for index in counted]
        parts = (
            _surface(arms[MODEL]),
            _distribution(evidence, arms, names),
            _beyond_part(evidence, result),
        )
        verdict, why = weakest(parts)
        median = _median(evidence, arms[MODEL])
        controls = [Control("halves of the documents in one range", *_median(evidence, arms[MODEL], halves=True))]
        controls += [Control(arm, *_median(evidence, arms[arm])) for arm in (SHUFFLED, RANDOM) if arm in arms]
        worst = int(np.argmax([site.between[0] for site in arms[MODEL]]))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(NAME, *median),
            n=min(int(rows.kept) for rows in evidence[POSITION_SAMPLES][MODEL].rows.values()),
            controls=tuple(controls),
            reading=" ".join(part.reading for part in parts) + more_text(why),
            headline=f"Tokens at positions {name_sites(names)} differ by an energy distance of {say(median[0], '.2g')} "
            f"(median norm), most at {evidence.sites[worst]}: {say(float(arms[MODEL][worst].between[0]), '.2g')}",
            table=_table(evidence, arms, result),
            quantities=_quantities(evidence, arms, result),
            more_tables={"ranges": _pairs_table(evidence, arms[MODEL], names)},
            why=why,
            parts=parts,
        )


def _median(evidence: Evidence, sites: Sequence[BinDistances], halves: bool = False) -> Interval:
    draws = np.stack([site.halves if halves else site.between for site in sites], 1)
    return drawn_interval(evidence, np.median(draws, axis=1))


def _intervals(evidence: Evidence, sites: Sequence[BinDistances], halves: bool = False) -> Floats:
    return np.array([drawn_interval(evidence, site.halves if halves else site.between) for site in sites])


def _agree(evidence: Evidence, sites: Sequence[BinDistances]) -> tuple[Flags, Flags]:
    """Which norms agree, and which differ, each with the whole interval."""
    _, low, high = _intervals(evidence, sites).T
    limit = np.fmax(T.position_distance, _intervals(evidence, sites, halves=True)[:, 2])
    return np.asarray(high <= limit), np.asarray(low > limit)


def _surface(sites: Sequence[BinDistances]) -> Part:
    """By definition: what is measured is what ε leaves of it."""
    off = max(site.radius for site in sites)
    reading = f"Every range of positions lies on one surface, by definition: its radius is √d to {say(off, '.1g')}."
    verdict: Verdict = "supported" if off <= T.radius_within else "refuted"
    statistic = Statistic("largest deviation of a range's radius from √d", off, off, off)
    return Part("one surface", verdict, reading, statistic)


def _distribution(evidence: Evidence, arms: dict[str, list[BinDistances]], names: list[str]) -> Part:
    name = "the same distribution"
    agree, differ = _agree(evidence, arms[MODEL])
    median, halves = _median(evidence, arms[MODEL]), _median(evidence, arms[MODEL], halves=True)
    shuffled = _median(evidence, arms[SHUFFLED])
    reading = (
        f"Between positions {name_sites(names)} the energy distance of y is {say(median[0], '.2g')} at the median norm "
        f"(two halves of the documents: {say(halves[0], '.1g')}; shuffled text: {say(shuffled[0], '.2g')}). "
        f"{int(agree.sum())} of {len(agree)} norms agree, {int(differ.sum())} differ"
    )
    reading += f" ({name_sites(flagged(evidence.sites, differ))})." if 0 < differ.sum() < len(differ) else "."
    side = above(median, max(T.position_distance, halves[2]))
    verdict: Verdict = "undecided"
    if side is False:
        verdict = "supported" if differ.mean() <= T.sites_few else "qualified"
    elif side:
        by_words = above(shuffled, max(T.position_distance, _median(evidence, arms[SHUFFLED], halves=True)[2]))
        verdict = "undecided" if by_words is None else "refuted" if by_words else "qualified"
        if by_words is False:
            reading += " Shuffled words agree: what documents begin with makes the difference."
    why = missing_interval(*median[1:]) if verdict == "undecided" else None
    return Part(name, verdict, reading, Statistic(NAME, *median), why=why)


def _beyond_part(evidence: Evidence, beyond: "Beyond | None") -> Part:
    """Ours: the source speaks of any position, not of positions that a model never saw."""
    name = "the same beyond the trained length"
    if beyond is None:
        from armillary.probes.stability.beyond import obstacle

        reason = obstacle(evidence.anatomy, evidence.tokens)
        return Part(name, "undecided", f"Beyond the trained length: {reason}.", asserted=False, why=Why.NOT_APPLICABLE)
    across, before = beyond.median(beyond.across), beyond.median(beyond.before)
    side = above(across, max(T.position_distance, before[2]))
    reading = (
        f"Across the trained length of {beyond.length} tokens the distance is {say(across[0], '.2g')}, across a place "
        f"as far before it {say(before[0], '.2g')}."
    )
    verdict: Verdict = "undecided" if side is None else "refuted" if side else "supported"
    statistic = Statistic("energy distance of y across the trained length, median norm", *across)
    why = missing_interval(*across[1:]) if side is None else None
    return Part(name, verdict, reading, statistic, asserted=False, why=why)


def _table(evidence: Evidence, arms: dict[str, list[BinDistances]], beyond: "Beyond | None") -> Table:
    shuffled = arms[SHUFFLED]
    columns = [
        interval_cells(
            "distance", "energy distance of y, mean over pairs of ranges", _intervals(evidence, arms[MODEL])
        ),
        interval_cells(
            "halves", "between halves of the documents in one range", _intervals(evidence, arms[MODEL], halves=True)
        ),
        interval_cells("shuffled", "between ranges, on shuffled text", _intervals(evidence, shuffled)),
    ]
    flags = _agree(evidence, arms[MODEL])
    agree = (
        cells("agrees", "the whole interval is below the limit", flags[0]),
        cells("differs", "the whole interval is above it", flags[1]),
    )
    if beyond is None:
        return site_table(evidence.sites, *columns, agree)
    past = cells("beyond", "across the trained length", beyond.across[0])
    return site_table(evidence.sites, *columns, agree, past, cells("before", "as far before it", beyond.before[0]))


def _pairs_table(evidence: Evidence, sites: Sequence[BinDistances], names: list[str]) -> Table:
    columns = [
        cells(f"{names[i]} and {names[j]}", "energy distance of y between two ranges", [s.pairs[i, j] for s in sites])
        for i in range(len(names))
        for j in range(i + 1, len(names))
    ]
    return table(cells("site", "norm site", evidence.sites), *columns)


def _quantities(
    evidence: Evidence, arms: dict[str, list[BinDistances]], beyond: "Beyond | None"
) -> tuple[Quantity, ...]:
    sites = evidence.sites
    controls = {arm: np.array([site.between[0] for site in arms[arm]]) for arm in (SHUFFLED, RANDOM) if arm in arms}
    controls["halves of one range"] = np.array([site.halves[0] for site in arms[MODEL]])
    limit = {f"the limit: {T.position_distance}": np.full(len(sites), T.position_distance)}
    unit = "energy distance"
    quantities = [
        line(
            "distance between ranges of positions",
            "0 if tokens lie alike at all positions; the mean over pairs of ranges",
            unit,
            "site",
            sites,
            _intervals(evidence, arms[MODEL]),
            controls,
            limit,
        )
    ]
    if beyond is not None:
        before = {"as far before it": beyond.before[0]}
        name, meaning = (
            "distance across the trained length",
            f"the last positions before {beyond.length} and the first after",
        )
        quantities.append(line(name, meaning, unit, "site", sites, beyond.across[0], before, limit))
    return tuple(quantities)

"""Are the rules of the game the same at every position?"""

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
    T,
    undecided,
    weakest,
)
from armillary.probes.machinery.verdicts import FIVE_SHOWN, more_text
from armillary.probes.stability.places.position_bins import counted_ranges, site_distances
from armillary.probes.stability.places.position_parts import (
    NAME,
    beyond_part,
    distribution_part,
    median_distance,
    surface_part,
)
from armillary.probes.stability.places.position_views import pairs_table, position_lines, position_table
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench
    from armillary.probes.stability.places.beyond import Beyond, Obstacle


@dataclass(frozen=True)
class PositionRules:
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
            "The earliest range is compared with the latest that has enough tokens, at every norm; the statistic is "
            "that of the median norm. That γ and β are the same at every position, so that all tokens come to one "
            "surface, is true by definition. Beyond the trained length (ours): the last positions within it against "
            "the first beyond, where positions are not a learned table, which ends there."
        ),
        control=(
            "the two halves of the documents in one range, where the distance is 0 but for sampling (mean of the two "
            "ranges); shuffled text, "
            "where a difference cannot come from the words that documents begin with; random initialisation (all "
            "twins)"
        ),
        rule=(
            "Parts, the weaker of the first two decides. 'One surface': supported if the mean length of z in every "
            f"range is within {T.radius_within:.0%} of √d. 'The same distribution': the limit is "
            f"{T.position_distance}, or what two halves of the documents show, if that is more. Supported if the "
            f"distance at the median norm lies below it with its whole interval, and at most {T.sites_few:.0%} of "
            "norms lie above theirs; qualified if more do. If the median norm lies above, refuted if it does on "
            "shuffled text too, and qualified if it lies below there: then the words make the difference. Undecided "
            "where an interval spans its limit, and with too little text: the range 1–7 and a later one must have "
            f"{T.tokens_least} tokens from {T.documents_least} documents."
        ),
        kind="behaviour",
        changes=(
            FIVE_SHOWN,
            RuleChange(
                "2026-11-16",
                "The median norm decides, not a share of norms: changed after a first result was seen. builtin:gpt and "
                "MiniLM were undecided and became refuted; the limit did not move.",
            ),
            RuleChange(
                "2026-11-16",
                "The earliest and the latest range decide, not the mean over all pairs of ranges: a longer text has "
                "more pairs of late ranges, which are alike. Changed after a result was seen: builtin:llama was "
                "supported with 12,000 tokens although its first positions differ.",
            ),
            RuleChange(
                "2026-11-18",
                "Without enough tokens at positions 1–7 the claim is undecided. The earliest range that had enough was "
                "compared instead, which is another question: with --quick, eight documents have 56 tokens there, and "
                "builtin:llama became supported by positions 8–31, where it is not with more text.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (POSITION_SAMPLES,)

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.stability.places.beyond import passes

        return passes(anatomy)

    def experiment(self, bench: "Bench") -> "Beyond | Obstacle":
        from armillary.probes.stability.places.beyond import look_beyond

        return look_beyond(bench)

    def conclude(self, evidence: Evidence, result: "Beyond | Obstacle") -> Finding:
        from armillary.probes.stability.places.beyond import Beyond

        counted = counted_ranges(evidence)
        if 0 not in counted or len(counted) < 2:
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, _missing(counted))
        arms = {arm: list(site_distances(evidence, arm, counted).values()) for arm in evidence[POSITION_SAMPLES]}
        names = [ranges()[index] for index in counted]
        parts = (
            surface_part(arms[MODEL]),
            distribution_part(evidence, arms, names),
            beyond_part(result),
        )
        beyond = result if isinstance(result, Beyond) else None
        verdict, why = weakest(parts)
        median = median_distance(evidence, arms[MODEL])
        controls = [
            Control("halves of the documents in one range", *median_distance(evidence, arms[MODEL], halves=True))
        ]
        if SHUFFLED in arms:
            controls.append(Control(SHUFFLED, *median_distance(evidence, arms[SHUFFLED])))
        if evidence.twins:
            controls.append(Control(RANDOM, *evidence.over_twins(lambda arm: median_distance(evidence, arms[arm]))))
        worst = int(np.argmax([site.between[0] for site in arms[MODEL]]))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(NAME, *median),
            n=min(int(rows.kept) for rows in evidence[POSITION_SAMPLES][MODEL].rows.values()),
            controls=tuple(controls),
            reading=" ".join(part.reading for part in parts) + more_text(why),
            headline=f"Tokens at positions {names[0]} and {names[-1]} differ by an energy distance of "
            f"{say(median[0], '.2g')} (median norm), most at {evidence.sites[worst]}: "
            f"{say(float(arms[MODEL][worst].between[0]), '.2g')}",
            table=position_table(evidence, arms, beyond),
            quantities=position_lines(evidence, arms, beyond),
            more_tables={"ranges": pairs_table(evidence, arms[MODEL], names)},
            why=why,
            parts=parts,
        )


def _missing(counted: list[int]) -> str:
    """Which range the text does not fill."""
    names, enough = ranges(), f"{T.tokens_least} tokens from {T.documents_least} documents"
    if 0 in counted:
        return f"None of the ranges {', '.join(names[1:])} has {enough}. Give more text, or longer documents."
    return f"Positions {names[0]}, which are compared with the latest, do not have {enough}. Give more documents."

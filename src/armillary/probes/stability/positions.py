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
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench
    from armillary.probes.stability.places.untrained_positions import Beyond, Obstacle


@dataclass(frozen=True)
class PositionRules:
    """Energy distances between ranges of positions, at every norm."""

    claim: ClassVar[Claim] = Claim(
        id="stability.positions",
        chapter="D",
        statement="The rules are the same at every position: tokens are put on the same surface, and lie alike on it.",
        source="S3",
        question="Do tokens late in a text look like tokens early in it, as far as their vectors go?",
        definition=(
            "Are tokens late in a window distributed as tokens early in it are? z is a norm's output before its gain "
            "γ and shift β, and y its output after them. The distribution of y is compared between ranges of "
            "positions in a window (1–7, 8–31, 32–127 and so on; first positions are left out).\n"
            "The energy distance is 1 − (mean distance of two tokens within a range)/(mean distance of two tokens of "
            "different ranges), over tokens of different documents. It is 0 if the distributions are equal, and 0.01 "
            "if their means are a fifth of the cloud's radius apart.\n"
            "The earliest range is compared with the latest that has enough tokens, at every norm. The statistic is "
            "the energy distance at the median norm.\n"
            "γ and β are the same at every position, so all tokens lie on one surface by definition.\n"
            "Beyond the trained length (our addition), the last positions within it are compared with the first "
            "beyond it. A learned table of positions has none beyond it."
        ),
        control=(
            "the two halves of the documents in one range, where the distance is 0 except for sampling (mean of the "
            "two ranges); shuffled text, where a difference cannot come from the words that documents begin with; "
            "random initialisation (all twins)"
        ),
        rule=(
            "Two parts; the weaker decides.\n"
            "Part 1, one surface.\n"
            f"Supported if the mean length of z in every range is within {T.radius_within:.0%} of √d.\n"
            "Refuted otherwise.\n"
            f"Part 2, the same distribution. The limit is {T.position_distance}, or the upper end of the distance "
            "between two halves of the documents, if that is larger. A distance lies above or below it only if its "
            "whole interval does.\n"
            f"Supported if the distance at the median norm lies below its limit, and at most {T.sites_few:.0%} of "
            "norms lie above theirs.\n"
            f"Qualified if the distance at the median norm lies below its limit, but more than {T.sites_few:.0%} of "
            "norms lie above theirs. Also qualified if it lies above its limit on text, but below the limit of "
            "shuffled text on shuffled text: then the words that documents begin with make the difference.\n"
            "Refuted if the distance at the median norm lies above its limit both on text and on shuffled text.\n"
            "Undecided where the interval at the median norm spans its limit.\n"
            f"Undecided with too little text: the range 1–7 and a later one must have {T.tokens_least} tokens from "
            f"{T.documents_least} documents.\n"
            "A third part is ours and decides nothing: the same comparison across the trained length."
        ),
        kind="behaviour",
        changes=(
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
            FIVE_SHOWN,
            RuleChange(
                "2026-11-18",
                "Without enough tokens at positions 1–7 the claim is undecided. The earliest range that had enough was "
                "compared instead, which is another question: with --quick, eight documents have 56 tokens there, and "
                "builtin:llama became supported by positions 8–31, where it is not with more text.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "88aa6286da15", 4),
            Rewording("2026-11-18", "1fdf5f57bae0", 4),
            Rewording("2026-11-19", "b14c205a72c8", 4),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (POSITION_SAMPLES,)

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.stability.places.untrained_positions import passes

        return passes(anatomy)

    def experiment(self, bench: "Bench") -> "Beyond | Obstacle":
        from armillary.probes.stability.places.untrained_positions import look_beyond

        return look_beyond(bench)

    def conclude(self, evidence: Evidence, result: "Beyond | Obstacle") -> Finding:
        from armillary.probes.stability.places.untrained_positions import Beyond

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
            n=min(int(rows.size) for rows in evidence[POSITION_SAMPLES][MODEL].rows.values()),
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

"""Do single axes of normalised features have heavier tails than a Gaussian?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL
from armillary.probes.machinery.tables import interval_cells, line, site_table
from armillary.probes.machinery.verdicts import missing_interval
from armillary.results import Claim, Control, Finding, Statistic
from armillary.results.numbers import say
from armillary_outside.fourth_moments import FOURTHS

HEAVY = 4.0


@dataclass(frozen=True)
class Kurtosis:
    """The median axis' kurtosis per norm site: 3 for a Gaussian."""

    claim: ClassVar[Claim] = Claim(
        id="outside.kurtosis",
        chapter="H",
        statement="Single axes of normalised features have heavier tails than a Gaussian.",
        source="an outside package",
        question="Do single axes of a normalised token have extreme values more often than chance would give?",
        definition="Kurtosis of each axis of z at every norm site. The statistic is the median over axes and sites.",
        control="random initialisation; shuffled text",
        rule=(
            f"The whole interval of the kurtosis is compared with {HEAVY:g}.\n"
            "Supported if it lies above.\n"
            "Refuted if it lies below.\n"
            "Undecided otherwise."
        ),
    )
    instruments: ClassVar[tuple[object, ...]] = (FOURTHS,)

    def conclude(self, evidence):
        sums = {arm: state.kurtosis() for arm, state in evidence[FOURTHS].items()}
        value, low, high = evidence.interval(sums[MODEL], lambda drawn: np.median(median_axis(drawn), -1))
        decided = low > HEAVY or high < HEAVY
        by_site = evidence.intervals(sums[MODEL], median_axis)
        controls = [arm for arm in sums if arm != MODEL]
        return Finding(
            claim=self.claim,
            verdict=("supported" if low > HEAVY else "refuted") if decided else "undecided",
            statistic=Statistic("kurtosis of the median axis, median site", value, low, high),
            n=evidence.tokens,
            controls=tuple(
                Control(arm, *evidence.interval(sums[arm], lambda d: np.median(median_axis(d), -1))) for arm in controls
            ),
            reading=f"The median axis has a kurtosis of {say(value, '.2f')}; a Gaussian has 3.",
            headline=f"Kurtosis {say(value, '.2f')} in the median axis",
            table=site_table(evidence.sites, *interval_cells("kurtosis", "of the median axis", by_site)),
            quantities=(line("kurtosis", "of the median axis", "", "site", evidence.sites, by_site),),
            why=None if decided else missing_interval(low, high),
        )


def median_axis(sums):
    """[…, site] from sums […, site, axis, (n, Σz, Σz², Σz³, Σz⁴)]."""
    n, first, second, third, fourth = np.moveaxis(sums, -1, 0)
    mean = first / n
    variance = second / n - mean**2
    central = fourth / n - 4 * mean * third / n + 6 * mean**2 * second / n - 3 * mean**4
    return np.median(central / np.maximum(variance, 1e-30) ** 2, -1)


PROBE = Kurtosis()

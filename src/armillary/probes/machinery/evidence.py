"""What does a probe conclude from? The records of every arm, and how to say a number with its interval."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.probes.machinery.thresholds import THRESHOLDS as T

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus
    from armillary.probes.instruments.heads_record import AttentionRecord
    from armillary.probes.instruments.norm_record import NormRecord
    from armillary.probes.instruments.words_record import TravelRecord

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
MODEL, RANDOM, SHUFFLED = "model", "random initialisation", "shuffled text"
ARMS = (MODEL, RANDOM, SHUFFLED)


@dataclass(frozen=True)
class Evidence:
    """All that the passes left behind."""

    anatomy: "Anatomy"
    corpus: "Corpus | None" = None
    twin: "Anatomy | None" = None
    """The same architecture at random initialisation."""
    records: Mapping[str, Mapping[str, "NormRecord"]] = field(default_factory=dict)
    """arm → site → what was recorded there."""
    attention: Mapping[str, "AttentionRecord"] = field(default_factory=dict)
    """arm → what was recorded of the heads."""
    travel: Mapping[str, "TravelRecord"] = field(default_factory=dict)
    """arm → how words went."""
    seed: int = 0
    found: dict[str, Any] = field(default_factory=dict)
    """claim → what its experiment found; filled claim by claim."""
    kept: dict[Any, Any] = field(default_factory=dict)
    """What one probe worked out and another asks for too."""

    @property
    def sites(self) -> list[str]:
        return list(self.anatomy.norms)

    @property
    def tokens(self) -> int:
        return self.corpus.tokens if self.corpus is not None else 0

    @property
    def ordinary(self) -> int:
        """Ordinary tokens at the site that has fewest."""
        counts = [
            int(record.lengths.count[: record.groups].sum()) if record.lengths is not None else self.tokens
            for record in self.records.get(MODEL, {}).values()
        ]
        return min(counts, default=0)

    @property
    def queries(self) -> int:
        """Queries whose scores were looked at."""
        return self.attention[MODEL].queries if MODEL in self.attention else 0

    @property
    def followed(self) -> int:
        """Tokens that were followed on their way."""
        return self.travel[MODEL].tokens if MODEL in self.travel else 0

    @property
    def arms(self) -> list[str]:
        return [arm for arm in ARMS if arm in self.records]

    def controls(self) -> list[str]:
        return [arm for arm in self.arms if arm != MODEL]

    def scalars(self, arm: str, name: str, kinds: Sequence[int] = (0, 1, 2)) -> Floats:
        """[site, group, (count, sum, sum of squares)] of one scalar, over the given kinds of token."""
        rows = []
        for site in self.sites:
            record = self.records[arm][site]
            assert record.lengths is not None
            stats = record.lengths.additive()[:, record.lengths.names.index(name)]
            rows.append(stats.reshape(3, record.groups, 3)[list(kinds)].sum(0))
        return np.stack(rows)

    def extremes(self, arm: str, name: str) -> Floats:
        """[site, (min, max)] of one scalar over all tokens."""
        rows = []
        for site in self.sites:
            lengths = self.records[arm][site].lengths
            assert lengths is not None
            column = lengths.names.index(name)
            rows.append((float(lengths.least[column]), float(lengths.greatest[column])))
        return np.array(rows)

    def interval(self, stats: Floats, statistic: Callable[[Floats], Floats]) -> tuple[float, float, float]:
        """Value and 95 % interval of a statistic of additive stats [group, …], by bootstrap over documents.

        Too few documents for an interval leave both ends NaN: a rule must then say `undecided`.
        """
        from armillary.geometry.resample import bootstrap

        value = float(statistic(stats.sum(0)[None])[0])
        if np.isnan(value) or (stats.reshape(len(stats), -1) != 0).any(1).sum() < T.documents_least:
            return value, float("nan"), float("nan")
        found = bootstrap(stats, statistic, seed=self.seed)
        return value, float(found.low), float(found.high)

    def site_intervals(self, stats: Floats, statistic: Callable[[Floats], Floats]) -> Floats:
        """[site, (value, low, high)] for stats [site, group, …]."""
        return np.array([self.interval(site, statistic) for site in stats])

    def across_sites(
        self, stats: Floats, statistic: Callable[[Floats], Floats], summary: Callable[..., Floats] = np.median
    ) -> tuple[float, float, float]:
        """A summary over sites of a per-site statistic, every site resampled by the same documents."""
        grouped = np.moveaxis(stats, 0, 1)

        def joint(drawn: Floats) -> Floats:
            values = np.stack([statistic(drawn[:, site]) for site in range(drawn.shape[1])], -1)
            return summary(values, axis=-1)

        return self.interval(grouped, joint)


def mean(stats: Floats) -> Floats:
    """The mean from (count, sum, …) along the last axis; NaN of nothing.

    >>> mean(np.array([[4.0, 2.0, 1.0]]))
    array([0.5])
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(stats[..., 0] > 0, stats[..., 1] / stats[..., 0], np.nan)


def spread(stats: Floats) -> Floats:
    """The coefficient of variation from (count, sum, sum of squares); NaN of fewer than two."""
    average = mean(stats)
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum(stats[..., 2] / stats[..., 0] - average**2, 0)
        return np.where(stats[..., 0] > 1, np.sqrt(variance) / np.maximum(np.abs(average), 1e-300), np.nan)


def name_sites(sites: Sequence[str], most: int = 4) -> str:
    """A few site names for a sentence.

    >>> name_sites(["L0.ln1", "L1.ln1"])
    'L0.ln1 and L1.ln1'
    """
    if len(sites) > most:
        return ", ".join(sites[: most - 1]) + f" and {len(sites) - most + 1} more"
    return " and ".join([", ".join(sites[:-1]), sites[-1]]) if len(sites) > 1 else "".join(sites)

"""How far may each number of the golden survey differ on another machine?

The answer follows from what the number means, never from how far some runs differed:

exact      counts, flags and empty cells;
rounding   numbers that theory sets to 0: what is left is rounding, so only its size is bounded;
interval   numbers with an interval: a twentieth of its half width; unless the interval contains 0, half a percent of
           the number at most; never less than `relative` allows;
relative   every other number: 1e-3 of its size, or the rounding of what it was subtracted from;
loose      p-values, which are estimates themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Cell = bool | int | float | None

FRACTION = 1 / 20
MOST = 5e-3
RELATIVE = 1e-3

# A float32 sum of d terms, in any order, errs by at most d·2⁻²⁴ of the terms' sizes (Higham 2002, section 3.1). The
# default model has d = 256; radii, means, cosines and scores are such sums.
SUM = 256 * 2.0**-24
# The loss is about 5 nats per token and follows 16 rounded additions to the stream: two per block of seven, the
# embedding and the logits.
LOSS = 5 * 16 * 2.0**-24
DEGREES = 57.3

# claim/column, or claim/'statistic', or claim/'control/name' → the largest size that rounding explains.
ROUNDING: Mapping[str, float] = {
    "sphere.radius/theory_gap": SUM,
    "sphere.radius/module_gap": SUM,
    "sphere.plane/max_mean": SUM,
    "sphere.plane/rms_cos": SUM,
    # d·cos², and cos is a mean of d coordinates over their root mean square.
    "sphere.plane/statistic": 256 * SUM**2,
    "sphere.plane/plane_ratio": 256 * SUM**2,
    "sphere.plane/control/random initialisation": 256 * SUM**2,
    "sphere.plane/control/shuffled text": 256 * SUM**2,
    # What the claim itself counts as a zero eigenvalue, relative to the median.
    "spectrum.two-zeros/smallest": 1e-6,
    "spectrum.two-zeros/ones_variance": 1e-6,
    "spectrum.two-zeros/inverse_gain_variance": 1e-6,
    # Balls are drawn in float64: a variance below one rounding of the whole is 0.
    "spectrum.local/plane_small": 2.0**-53,
    "attention.two-views/statistic": SUM,
    "attention.two-views/control/random initialisation": SUM,
    "attention.two-views/control/shuffled text": SUM,
    "attention.two-views/scores_error": SUM,
    "attention.two-views/results_error": SUM,
    "vo.store/statistic": SUM,
    "vo.store/control/random initialisation": SUM,
    "ffn.store/statistic": SUM,
    "ffn.store/control/random initialisation": SUM,
    "ffn.store/error": SUM,
    # In units of float32's eps, 2⁻²³.
    **dict.fromkeys(
        (
            "stability.prefix/statistic",
            "stability.prefix/control/another shape of batch",
            "stability.prefix/control/random initialisation",
            "stability.prefix/one",
            "stability.prefix/half",
            "stability.prefix/cached",
            "stability.prefix/through_cache",
            "stability.prefix/floor",
        ),
        SUM / 2.0**-23,
    ),
    "stability.drift/control/slid by 0": SUM * DEGREES,
    "heads.axes/control/q and k alike within heads, nats per token": LOSS,
}

# claim/column → the rounding of what its numbers are a difference of; smaller differences have no digits.
FLOORS: Mapping[str, float] = {
    "sphere.radius/sd_radius": SUM,
    "sphere.direction/scale_change": SUM,
    # A mean of cosines less that of chance.
    "vo.subjects/excess_centred": SUM,
    "qk.subjects/query_excess": SUM,
    "qk.subjects/key_excess": SUM,
    # Correlations, and shares of pairs less those of other pairs.
    "qk.subjects/related_nouns": SUM,
    "qk.subjects/part_of_speech": SUM,
    "qk.subjects/spelling": SUM,
    "words.refine/kl": SUM,
    "stability.drift/kept_half": SUM * DEGREES,
    "heads.gradients/cost": LOSS,
}

# claim/column without an interval → the column whose relative tolerance it shares: a ratio is as uncertain as its
# numerator, a turn made after the first block as one made before it.
SHARED: Mapping[str, str] = {"ffn.select/ratio": "cost", "stability.reprojection/later_frozen": "frozen"}

# Claims about text that the model writes: one rounding changes a sampled token and with it all that follow, so only
# their verdict is compared.
SAMPLED = ("stability.generation",)

# End of the column's name → absolute and relative tolerance. A p-value is a share of 125 to 1000 random draws; the
# flags that follow from it are exact.
LOOSE: Mapping[str, tuple[float, float]] = {"/p_value": (0.01, 0.0), "_p_value": (0.01, 0.0), "/p": (0.01, 0.0)}


@dataclass(frozen=True)
class Number:
    """A golden number, the rule that compares it and the rule's tolerance."""

    value: Cell
    rule: str
    tolerance: float

    def agrees(self, value: Cell) -> bool:
        if self.rule == "exact" or value is None or self.value is None:
            return value == self.value and type(value) is type(self.value)
        distance = abs(value) if self.rule == "rounding" else abs(value - self.value)
        return distance <= self.tolerance


def cells(claims: Mapping[str, Any]) -> dict[str, Cell]:
    """Every number of a record by its name: claim/statistic/value, claim/control/name/low, claim/row/column."""
    return {name: cell for name, cell, _ in _walk(claims)}


def expected(claims: Mapping[str, Any]) -> dict[str, Number]:
    """Every number of the golden record with its rule."""
    return {name: _number(cell, source) for name, cell, source in _walk(claims)}


@dataclass(frozen=True)
class _Source:
    """Where a number stands: its key in the tables above, and its row by column."""

    key: str
    column: str
    row: Mapping[str, Cell]
    owners: Mapping[str, str]

    def tolerance(self, column: str) -> float:
        """What the interval of a column allows, or the interval it is an end of; 0 without one."""
        owner = self.owners.get(column, column)
        sizes = [abs(cell) for cell in (self.row[owner], self.row[column]) if cell is not None]
        ends = self._ends(owner)
        if not sizes or not ends:
            return 0.0
        low, high = min(ends), max(ends)
        allowed = FRACTION * (high - low) / 2
        return allowed if low <= 0 <= high else min(allowed, MOST * max(sizes))

    def spans_zero(self) -> bool:
        """Does the interval of this number contain 0? A number that shares another's tolerance shares its interval."""
        column = SHARED.get(self.key, self.column)
        ends = self._ends(self.owners.get(column, column))
        return bool(ends) and min(ends) <= 0 <= max(ends)

    def _ends(self, owner: str) -> list[float]:
        return [end for name, of in self.owners.items() if of == owner and (end := self.row[name]) is not None]


def unsigned(claims: Mapping[str, Any]) -> set[str]:
    """Names of numbers whose interval contains 0: not even their sign is known, so 1 % of them means nothing."""
    return {name for name, cell, source in _walk(claims) if cell is not None and source.spans_zero()}


def _walk(claims: Mapping[str, Any]) -> Iterator[tuple[str, Cell, _Source]]:
    ends = ["value", "low", "high"]
    for claim, record in ((claim, record) for claim, record in claims.items() if claim not in SAMPLED):
        triples = {"statistic": record["statistic"]}
        triples |= {f"control/{name}": triple for name, triple in record["controls"].items()}
        for what, triple in triples.items():
            row = dict(zip(ends, triple, strict=True))
            for end, cell in row.items():
                yield f"{claim}/{what}/{end}", cell, _Source(f"{claim}/{what}", end, row, _owners(ends))
        columns = record["columns"]
        owners = _owners(columns)
        for name, values in record["rows"].items():
            row = dict(zip(columns, values, strict=True))
            for column, cell in row.items():
                key = f"{claim}/{owners.get(column, column)}"
                yield f"{claim}/{name}/{column}", cell, _Source(key, column, row, owners)


def _owners(columns: Sequence[str]) -> dict[str, str]:
    """The column whose interval an end belongs to: x for x_low, and the column before a plain 'low'."""
    owners = {}
    for column in columns:
        name, _, end = column.rpartition("_")
        if end in ("low", "high"):
            owners[column] = name or columns[list(columns).index("low") - 1]
    return owners


def _number(cell: Cell, source: _Source) -> Number:
    if cell is None or isinstance(cell, bool | int):
        return Number(cell, "exact", 0.0)
    if source.key in ROUNDING:
        return Number(cell, "rounding", ROUNDING[source.key])
    for end, (absolute, relative) in LOOSE.items():
        if source.key.endswith(end):
            return Number(cell, "loose", absolute + relative * abs(cell))
    allowed = source.tolerance(source.column)
    if source.key in SHARED:
        other = source.row[SHARED[source.key]]
        allowed = abs(cell / other) * source.tolerance(SHARED[source.key]) if other else 0.0
    tolerance = max(allowed, RELATIVE * abs(cell), FLOORS.get(source.key, 0.0))
    return Number(cell, "interval" if allowed else "relative", tolerance)

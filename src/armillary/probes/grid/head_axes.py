"""Does it matter more to which head an axis goes than where in its head it stands?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from armillary.probes.grid.unanswered import unanswered
from armillary.probes.machinery.evidence import Evidence, Floats
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.sphere.scaling import layers_of
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.edits import Edit
    from armillary.probes.machinery.bench import Bench, Trials

Where = Literal["z", "q"]
SITES: tuple[Where, ...] = ("z", "q")
KINDS = ("within", "across")
DEALS = 2
ALIKE = "q and k alike"
COLUMNS = (
    Column("layer", "the layer whose axes change places, or all of them at once"),
    Column("where", "z: the heads' results before W_O; q: queries alone"),
    Column("moved", "axes of every head that change places", "axes"),
    Column("within", "what it costs when they stay in their head", "nats/token"),
    Column("within_low", "its interval over documents, and so over shuffles, low end", "nats/token"),
    Column("within_high", "its interval over documents, and so over shuffles, high end", "nats/token"),
    Column("across", "what it costs when the same axes all go to another head", "nats/token"),
    Column("across_low", "its interval over documents, and so over shuffles, low end", "nats/token"),
    Column("across_high", "its interval over documents, and so over shuffles, high end", "nats/token"),
    Column("difference", "across − within, document by document", "nats/token"),
    Column("difference_low", "its interval over documents, and so over shuffles, low end", "nats/token"),
    Column("difference_high", "its interval over documents, and so over shuffles, high end", "nats/token"),
)


@dataclass(frozen=True)
class Case:
    """Axes of these layers that change places at one site, so many of every head."""

    where: Where
    layers: tuple[int, ...]
    moved: int

    def name(self, kind: str, deal: int) -> str:
        return f"{self.where} of {self.layers}, {self.moved} {kind}, {deal}"


@dataclass(frozen=True)
class HeadAxes:
    """ΔNLL of the same axes shuffled within their heads and across heads."""

    claim: ClassVar[Claim] = Claim(
        id="heads.axes",
        chapter="F",
        statement="Meaning is encoded in axis indices: shuffling axes across heads hurts more than within.",
        source="S3",
        definition=(
            "Change of the next-token loss when axes change places: within their head, or the same axes each to another head. At z, "
            "the heads' results before W_O, and on q alone, where q meets k; a few layers one at a time, and all at once; all axes, "
            f"and a quarter of them; {DEALS} shuffles in every document, others in each. The statistic is (across − within)/across of the summed costs of all of "
            "these, so that what costs most weighs most: the share of the cost that is due to crossing heads. (How axes are numbered within "
            "a head is a convention: W_V and W_O, or W_Q and W_K, could be renumbered together. What is shuffled here is one side.)"
        ),
        control="q and k shuffled alike within heads, which changes no score; a second shuffle within heads in place of the one across",
        rule=(
            f"At z and at q alone the share is asked to be {T.crossing_share}: across costs a quarter more than within. Supported: both "
            "intervals lie above it. Refuted: both lie below. Qualified: one lies above, the other does not. Undecided otherwise, and "
            f"where moving axes across heads costs less than {T.crossing_cost} nats on average, at z and at q."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 2 + len(cases(anatomy)) * len(KINDS) * DEALS

    def experiment(self, bench: "Bench") -> "Trials | None":
        if not bench.scored or not cases(bench.anatomy):
            return None
        anatomy = bench.anatomy
        every = _at(anatomy)

        def decided(trials: "Trials") -> bool:
            return all(_side(trials, every[where]) != "open" for where in SITES)

        return bench.compare(dict(_trials(anatomy)), decided)

    def conclude(self, evidence: Evidence) -> Finding:
        trials: Trials | None = evidence.found.get(self.claim.id)
        if trials is None:
            return unanswered(self.claim, _why(evidence.anatomy), COLUMNS)
        every = _at(evidence.anatomy)
        shares = {where: share(trials, every[where]) for where in SITES}
        sides = {where: _side(trials, every[where]) for where in SITES}
        verdict = _verdict(sides)
        rows = [_row(trials, case, evidence.anatomy) for case in cases(evidence.anatomy)]
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("(across − within)/across at z", *shares["z"]),
            n=trials.documents,
            controls=(
                Control("a second shuffle within heads instead", *_placebo(trials, every["z"])),
                Control("q and k alike within heads, nats a token", *trials.cost(ALIKE)),
            ),
            reading=_reading(sides, shares, rows),
            headline=_headline(shares),
            table=Table.of(COLUMNS, rows),
            quantities=tuple(_quantity(where, rows, evidence.anatomy) for where in SITES),
            notes=(f"{trials.looks} of 3 looks were taken, intervals at {trials.level:.1%}",),
        )


def cases(anatomy: "Anatomy") -> list[Case]:
    """Single layers with all axes moved, then all layers at once with all and with a quarter; none for a single head."""
    if anatomy.n_heads < 2 or anatomy.k < 2:
        return []
    layers = layers_of(anatomy)
    whole = tuple(range(anatomy.layers))
    places: list[tuple[tuple[int, ...], int]] = [((layer,), anatomy.k) for layer in layers] if len(layers) > 1 else []
    places += [(whole, anatomy.k)] + [(whole, max(2, anatomy.k // 4))] * (anatomy.k > 2)
    return [Case(where, chosen, moved) for where in SITES for chosen, moved in places]


def _at(anatomy: "Anatomy") -> dict[Where, list[Case]]:
    return {where: [case for case in cases(anatomy) if case.where == where] for where in SITES}


def _trials(anatomy: "Anatomy") -> Iterator[tuple[str, tuple["Edit", ...]]]:
    from armillary.edits import Shuffle, within

    for case in cases(anatomy):
        for kind, deal in product(KINDS, range(DEALS)):
            yield case.name(kind, deal), tuple(_shuffle(anatomy, case, at, kind, deal) for at in case.layers)
    alike = (within(anatomy.n_kv_heads, anatomy.k, 7 + at) for at in range(anatomy.layers))
    yield ALIKE, tuple(Shuffle(at, order, "qk") for at, order in enumerate(alike))


def _shuffle(anatomy: "Anatomy", case: Case, layer: int, kind: str, deal: int) -> "Edit":
    from armillary.edits import across, within
    from armillary.probes.grid.document_shuffles import Dealt

    made = across if kind == "across" else within
    # The same seeds for both kinds: the same axes move, in every document.
    first = 1_000_000 * deal + layer
    return Dealt(layer, lambda n: made(anatomy.n_heads, anatomy.k, 1000 * n + first, case.moved), case.where)


def _rows(trials: "Trials", some: Sequence[Case], kind: str, deals: Sequence[int] = range(DEALS)) -> list[int]:
    return [1 + trials.names.index(case.name(kind, deal)) for case in some for deal in deals]


def _cost(trials: "Trials", rows: list[int]) -> tuple[float, float, float]:
    """Mean nats a token of these trials."""
    return trials.interval(lambda loss, count: _above(loss, rows) / np.maximum(count, 1e-300))


def _above(loss: Floats, rows: list[int]) -> Floats:
    return np.asarray(loss[:, rows].mean(1) - loss[:, 0])


def share(trials: "Trials", some: Sequence[Case]) -> tuple[float, float, float]:
    """(across − within)/across of summed costs, with its interval."""
    inside, outside = (_rows(trials, some, kind) for kind in KINDS)
    return trials.interval(lambda loss, count: _ratio(_above(loss, inside), _above(loss, outside)))


def _placebo(trials: "Trials", some: Sequence[Case]) -> tuple[float, float, float]:
    one, other = (_rows(trials, some, "within", [deal]) for deal in range(DEALS))
    return trials.interval(lambda loss, count: _ratio(_above(loss, one), _above(loss, other)))


def _ratio(inside: Floats, outside: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((outside - inside) / outside)


def _side(trials: "Trials", some: Sequence[Case]) -> str:
    """On which side of the threshold the share lies: above, below, open, or idle where nothing is at stake."""
    _, least, most = _cost(trials, _rows(trials, some, "across"))
    if most < T.crossing_cost:
        return "idle"
    _, low, high = share(trials, some)
    # A ratio to a cost that may be nothing has no interval worth the name.
    if not least > 0 or np.isnan([low, high]).any():
        return "open"
    return "above" if low > T.crossing_share else "below" if high < T.crossing_share else "open"


def _verdict(sides: dict[Where, str]) -> Verdict:
    found = list(sides.values())
    if found.count("above") == 2:
        return "supported"
    if "above" in found:
        return "qualified"
    return "refuted" if found.count("below") == 2 else "undecided"


def _row(trials: "Trials", case: Case, anatomy: "Anatomy") -> dict[str, Any]:
    inside, outside = (_rows(trials, [case], kind) for kind in KINDS)
    found = {
        "within": _cost(trials, inside),
        "across": _cost(trials, outside),
        "difference": trials.interval(
            lambda loss, count: (_above(loss, outside) - _above(loss, inside)) / np.maximum(count, 1e-300)
        ),
    }
    row: dict[str, Any] = {"layer": _named(case, anatomy), "where": case.where, "moved": case.moved}
    for name, (value, low, high) in found.items():
        row |= {name: value, f"{name}_low": _known(low), f"{name}_high": _known(high)}
    return row


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _named(case: Case, anatomy: "Anatomy") -> str:
    return f"L{case.layers[0]}" if len(case.layers) == 1 and anatomy.layers > 1 else "all"


def _why(anatomy: "Anatomy") -> str:
    if anatomy.n_heads < 2 or anatomy.k < 2:
        return (
            f"A layer has {anatomy.n_heads} head{'s' * (anatomy.n_heads > 1)} of {anatomy.k} axes here, so there is no other head, or "
            "no other place, for an axis to go to; a model with several heads would decide."
        )
    return "This model foretells no next token, so a shuffle has no cost; a causal model with a language-model head would decide."


SAID = {"z": "at the heads' results", "q": "on queries alone"}


def _reading(
    sides: dict[Where, str], shares: dict[Where, tuple[float, float, float]], rows: list[dict[str, Any]]
) -> str:
    most, told = max(row["moved"] for row in rows), []
    for where in SITES:
        mine = [row for row in rows if row["where"] == where]
        alone = [row for row in mine if row["layer"] != "all"] or mine
        inside, outside = (float(np.mean([row[kind] for row in alone])) for kind in KINDS)
        whole = next(row for row in mine if row["layer"] == "all" and row["moved"] == most)
        what = (
            f"{SAID[where]} a shuffle of one layer costs {inside:.2g} nats within heads and {outside:.2g} across, of all layers "
            f"{whole['within']:.2g} and {whole['across']:.2g}"
        )
        crossing = (
            ": nothing is at stake" if sides[where] == "idle" else f": {_signed(shares[where][0])} of it for crossing"
        )
        told.append(what + crossing)
    if "open" in sides.values():
        told.append("more text would decide")
    elif set(sides.values()) == {"idle"}:
        told.append("a model whose heads matter to its loss would decide")
    text = "; ".join(told) + "."
    return text[0].upper() + text[1:]


def _signed(value: float) -> str:
    return f"{value:+.0%}".replace("-", "−")


def _headline(shares: dict[Where, tuple[float, float, float]]) -> str:
    said = [f"{_signed(shares[where][0])} {SAID[where]}" for where in SITES if np.isfinite(shares[where][0])]
    if not said:
        return "Shuffled axes cost nothing, within heads and across"
    return "Of a shuffle's cost, crossing heads makes " + " and ".join(said)


def _quantity(where: Where, rows: list[dict[str, Any]], anatomy: "Anatomy") -> Quantity:
    mine = [row for row in rows if row["where"] == where and row["moved"] == anatomy.k]
    values, low, high, inside = (
        np.array([np.nan if row[key] is None else row[key] for row in mine], dtype=float)
        for key in ("across", "across_low", "across_high", "within")
    )
    return Quantity(
        f"cost of shuffling axes {SAID[where]}, across heads",
        "all axes of the layer named, mean of the shuffles; the same axes within their heads beside it",
        "nats/token",
        ("layer",),
        {"layer": [row["layer"] for row in mine]},
        values,
        low,
        high,
        controls={"within heads": inside},
        theory={"no change: 0": np.zeros(len(mine))},
    )

"""Do the gradients of one head's work reach only its own slices?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.grid.unanswered import unanswered
from armillary.probes.machinery.evidence import RANDOM, Evidence, Floats
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.sphere.scaling import layers_of
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.coupling import Coupling
    from armillary.probes.machinery.bench import Bench

LAYERS, HEADS, DOCUMENTS = 3, 4, 12
PASSES = 1.5  # forward and back over half of the text
COLUMNS = (
    Column("head", "the head that is silenced"),
    Column("coupling", "|g − g'|/|g| of the loss gradient at the other heads' slices of its layer, median of them"),
    Column("low", "its 95 % interval over documents, low end"),
    Column("high", "its 95 % interval over documents, high end"),
    Column("cosine", "cosine of g and g', median of them"),
    Column("earlier", "coupling of heads of earlier layers, median; empty where none was looked at"),
    Column("later", "the same of later layers"),
    Column("cost", "what silencing the head costs", "nats/token"),
)
DIRECT = (
    Column("head", "the head whose result is differentiated"),
    Column("own", "length of the gradient at its own slices: W_Q, and W_K and W_V of its group"),
    Column("foreign", "largest length at another head's slice of W_Q, or another group's of W_K and W_V, over its own"),
    Column(
        "earlier",
        "largest length at a head of an earlier layer that was looked at, over its own; of each layer's first head",
    ),
)


@dataclass(frozen=True, eq=False)
class Gradients:
    model: "Coupling | None"
    twin: "Coupling | None"
    direct: tuple[dict[str, Any], ...]
    documents: int


@dataclass(frozen=True)
class HeadGradients:
    """∂(head h)/∂(slice h'), and what silencing head h' does to the loss gradient of slice h."""

    claim: ClassVar[Claim] = Claim(
        id="heads.gradients",
        chapter="F",
        statement="Gradients of one head's work reach only its own slices, so heads learn independently.",
        source="S3",
        definition=(
            "(a) The gradient of a random sum of one head's results at the slices of W_Q, W_K and W_V of its layer: 0 at other "
            "heads' slices by the chain rule, exact by construction; heads of a group share W_K and W_V. (b) The loss gradient g of a "
            "head's slices (W_Q, and W_K and W_V where no other head shares them), and g' when another head of the layer is silenced: "
            "the coupling is |g − g'|/|g|, squares summed over documents, each a batch of its own. The statistic is the coupling of "
            "the median pair of heads of one layer."
        ),
        control="random initialisation, where heads write little",
        rule=(
            f"Supported: (a) holds and the coupling's interval lies below {T.coupling_none}: what a head learns is nine tenths its own "
            f"affair. Refuted: (a) fails, or the interval lies above {T.coupling_half}: half of what a head is told depends on a single "
            "neighbour. Qualified otherwise: the zero of the chain rule holds and independence does not. Undecided for a model that "
            "foretells no next token or has one head a layer."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        if anatomy.n_heads < 2 or not anatomy.causal:
            return 1.0
        return PASSES * (2 + len(silenced(anatomy)) + len(silenced(anatomy, middle=True)))

    def experiment(self, bench: "Bench") -> Gradients:
        from armillary.probes.grid.coupling import derivatives, measure

        windows, layers = bench.text.windows[:DOCUMENTS], layers_of(bench.anatomy, LAYERS)
        batches = bench.batches(windows)
        direct = tuple(derivatives(bench.anatomy, batches[0], layers))
        if not bench.scored or bench.anatomy.n_heads < 2:
            return Gradients(None, None, direct, len(windows))
        model = measure(bench, batches, layers, silenced(bench.anatomy))
        few = silenced(bench.anatomy, middle=True)
        twin = measure(bench.arm(RANDOM), batches, layers, few) if bench.twin is not None else None
        return Gradients(model, twin, direct, len(windows))

    def conclude(self, evidence: Evidence) -> Finding:
        found: Gradients | None = evidence.found.get(self.claim.id)
        if found is None:
            return unanswered(self.claim, "No text was read; give some.", COLUMNS)
        direct = Table.of(DIRECT, found.direct)
        if found.model is None:
            why = "has one head a layer" if evidence.anatomy.n_heads < 2 else "foretells no next token"
            reading = (
                f"This model {why}, so no neighbour can change what the loss asks of a head; that one head's result does not depend on "
                "another's slices is exact here too. A causal model with several heads would decide."
            )
            return unanswered(self.claim, reading, DIRECT, direct)
        statistic = _median(evidence, found.model.neighbours())
        foreign = max((row["foreign"] for row in found.direct), default=0.0)
        verdict = _verdict(foreign, statistic)
        rows = [_row(evidence, found.model, at) for at in range(len(found.model.silenced))]
        controls = (Control(RANDOM, *_median(evidence, found.twin.neighbours())),) if found.twin else ()
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(
                "change of a head's loss gradient when a neighbour is silenced, median pair", *statistic
            ),
            n=found.documents,
            controls=controls,
            reading=_reading(evidence.anatomy, foreign, statistic[0], rows, found),
            headline=f"Silencing a neighbour changes a head's loss gradient by {statistic[0]:.0%}, although its result does not "
            "depend on the neighbour's slices",
            table=Table.of(COLUMNS, rows),
            quantities=_quantities(found.model),
            more_tables={"direct": direct},
        )


def silenced(anatomy: "Anatomy", middle: bool = False) -> tuple[tuple[int, int], ...]:
    """A few heads of a few layers, spread over both; with `middle`, of the middle one of them alone."""
    layers = layers_of(anatomy, LAYERS)
    layers = (layers[len(layers) // 2],) if middle else layers
    most = min(HEADS, anatomy.n_heads)
    heads = sorted({round(i * (anatomy.n_heads - 1) / max(1, most - 1)) for i in range(most)})
    return tuple((layer, head) for layer in layers for head in heads)


def _ratio(stats: Floats) -> Floats:
    """|g − g'|/|g| from (|g|², ⟨g, g'⟩, |g'|²) along the last axis; NaN of a gradient that vanishes."""
    away = np.maximum(stats[..., 0] - 2 * stats[..., 1] + stats[..., 2], 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sqrt(away / stats[..., 0]))


def _cosine(stats: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(stats[..., 1] / np.sqrt(stats[..., 0] * stats[..., 2]))


def _median(evidence: Evidence, stats: Floats) -> tuple[float, float, float]:
    """Of the pairs [document, pair, 3], with its interval over documents."""
    return evidence.interval(stats, lambda drawn: np.nanmedian(_ratio(drawn), axis=1))


def _verdict(foreign: float, statistic: tuple[float, float, float]) -> Verdict:
    if foreign > 0:
        return "refuted"
    _, low, high = statistic
    if np.isnan([low, high]).any():
        return "undecided"
    return "supported" if high < T.coupling_none else "refuted" if low > T.coupling_half else "qualified"


def _cell(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _row(evidence: Evidence, found: "Coupling", at: int) -> dict[str, Any]:
    layer, head = found.silenced[at]
    value, low, high = _median(evidence, found.pairs(at))
    sums = found.products[:, at].sum(0)
    across = {
        name: [
            _ratio(sums[i])
            for i, other in enumerate(found.layers)
            if (other < layer if name == "earlier" else other > layer)
        ]
        for name in ("earlier", "later")
    }
    losses = found.losses.sum(0)
    return {
        "head": f"L{layer}H{head}",
        "coupling": _cell(value),
        "low": _cell(low),
        "high": _cell(high),
        "cosine": _cell(float(np.nanmedian(_cosine(found.pairs(at).sum(0))))),
        **{name: _cell(float(np.nanmedian(values))) if values else None for name, values in across.items()},
        "cost": float((losses[2 + at] - losses[1]) / max(losses[0], 1.0)),
    }


def _reading(anatomy: "Anatomy", foreign: float, coupling: float, rows: list[dict[str, Any]], found: Gradients) -> str:
    if foreign > 0:
        return f"A head's result depends on another head's slices by {foreign:.2g} of its own: by the chain rule it cannot; this is a bug."
    strongest = max(rows, key=lambda row: row["coupling"] or 0.0)
    told = (
        "A head's result has derivative 0 at other heads' slices of its layer, exact by construction"
        + (" (but for W_K and W_V, which the heads of a group share)" if anatomy.n_kv_heads < anatomy.n_heads else "")
        + f"; yet silencing one neighbour changes what the loss asks of a head by {coupling:.0%} in the median pair "
        f"({strongest['head']} moves the others by {strongest['coupling'] or 0.0:.0%})"
    )
    for name in ("earlier", "later"):
        values = [row[name] for row in rows if row[name] is not None]
        told += f", of heads in {name} layers by {np.median(values):.0%}" if values else ""
    reach = [row["earlier"] for row in found.direct if row["earlier"] is not None]
    if reach:
        told += f"; and a head's result does reach into earlier layers' slices, with up to {max(reach):.2g} times its own gradient"
    return told + "."


def _quantities(found: "Coupling") -> tuple[Quantity, ...]:
    """What silencing each chosen head does to every head of the layers looked at."""
    values = _ratio(found.products.sum(0)).reshape(len(found.silenced), -1)
    heads = found.products.shape[3]
    names = [f"L{layer}H{head}" for layer in found.layers for head in range(heads)]
    rows = [f"L{layer}H{head}" for layer, head in found.silenced]
    # A silenced head gets no gradient through its own result: its own entry is no coupling.
    for i, name in enumerate(rows):
        values[i, names.index(name)] = np.nan
    return (
        Quantity(
            "change of the loss gradient of a head's slices",
            "|g − g'|/|g| at the head across when the head down is silenced; a head's own entry is left empty",
            "relative change",
            ("silenced", "head"),
            {"silenced": rows, "head": names},
            values,
        ),
    )

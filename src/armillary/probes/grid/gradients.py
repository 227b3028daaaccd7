"""Do the gradients of one head's result reach only its own slices?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import RANDOM, AnyInstrument, Evidence, Floats, Interval, T, spread_layers
from armillary.probes.machinery.tables import cells, interval_cells, table
from armillary.probes.machinery.verdicts import missing_interval, undecided
from armillary.results import Claim, Control, Finding, Statistic, Table, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.coupling import Coupling, Derivative
    from armillary.probes.machinery.bench import Bench

LAYERS, HEADS, DOCUMENTS = 3, 4, 12
PASSES = 1.5  # forward and backward over half of the text


@dataclass(frozen=True, eq=False)
class GradientResult:
    model: "Coupling | None"
    twin: "Coupling | None"
    direct: "tuple[Derivative, ...]"
    documents: int


@dataclass(frozen=True)
class HeadGradients:
    """∂(head h)/∂(slice h'), and how silencing head h' changes the loss gradient of slice h."""

    claim: ClassVar[Claim] = Claim(
        id="heads.gradients",
        chapter="F",
        statement="Gradients of one head's work reach only its own slices, so heads learn independently.",
        source="S3",
        definition=(
            "(a) The gradient of a random sum of one head's results at the slices of W_Q, W_K and W_V of its layer. It "
            "is 0 at other heads' slices by the chain rule, exact by construction; heads of a group share W_K and W_V. "
            "(b) The loss gradient g of a head's slices (W_Q, and W_K and W_V where no other head shares them), and g' "
            "when another head of the layer is silenced, that is, its result is set to zero. The coupling is |g − "
            "g'|/|g|, squares summed over documents, each a batch of its own. The statistic is the coupling of the "
            "median pair of heads of one layer."
        ),
        control="random initialisation, where heads write little",
        rule=(
            f"Supported if (a) holds and the coupling's interval lies below {T.coupling_none}: the gradient of a head "
            "depends on a neighbour by less than a tenth. Refuted if (a) fails, or if the interval lies above "
            f"{T.coupling_half}: a single neighbour changes half of the gradient. Qualified otherwise: the zero of the "
            "chain rule holds, independence does not. Undecided if there are too few documents, no next-token loss, or "
            "one head per layer."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        if anatomy.n_heads < 2 or not anatomy.causal:
            return 1.0
        return PASSES * (2 + len(silenced(anatomy)) + len(silenced(anatomy, middle=True)))

    def experiment(self, bench: "Bench") -> GradientResult:
        from armillary.probes.grid.coupling import derivatives, measure_coupling

        windows, layers = bench.text.windows[:DOCUMENTS], spread_layers(bench.anatomy, LAYERS)
        batches = bench.batches(windows)
        direct = tuple(derivatives(bench.anatomy, batches[0], layers))
        if not bench.scored or bench.anatomy.n_heads < 2:
            return GradientResult(None, None, direct, len(windows))
        model = measure_coupling(bench, batches, layers, silenced(bench.anatomy))
        few = silenced(bench.anatomy, middle=True)
        twin = measure_coupling(bench.arm(RANDOM), batches, layers, few) if bench.twin is not None else None
        return GradientResult(model, twin, direct, len(windows))

    def conclude(self, evidence: Evidence, result: GradientResult) -> Finding:
        from armillary.probes.grid.coupling import derivative_table

        direct, model = derivative_table(result.direct), result.model
        if model is None:
            what = "has one head per layer" if evidence.anatomy.n_heads < 2 else "predicts no next token"
            reading = (
                f"This model {what}, so the effect of a neighbour on the loss gradient cannot be measured. That one "
                "head's result does not depend on another's slices is exact here too. A causal model with several "
                "heads would decide."
            )
            return undecided(self.claim, Why.NOT_APPLICABLE, reading, direct)
        statistic = _median(evidence, model.neighbours())
        foreign = max((row.foreign for row in result.direct), default=0.0)
        verdict = _verdict(foreign, statistic)
        each = np.array([_median(evidence, model.pairs(at)) for at in range(len(model.silenced))])
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=missing_interval(*statistic) if verdict == "undecided" else None,
            statistic=Statistic(
                "change of a head's loss gradient when a neighbour is silenced, median pair", *statistic
            ),
            n=result.documents,
            controls=(Control(RANDOM, *_median(evidence, result.twin.neighbours())),) if result.twin else (),
            reading=_reading(evidence.anatomy, foreign, statistic[0], each[:, 0], result, model),
            headline=f"Silencing a neighbour changes a head's loss gradient by {say(statistic[0], '.0%')}, although "
            "its result does not depend on the neighbour's slices",
            table=_table(model, each),
            quantities=(model.map(),),
            more_tables={"direct": direct},
        )


def silenced(anatomy: "Anatomy", middle: bool = False) -> tuple[tuple[int, int], ...]:
    """Some heads of some layers, spread over both; with `middle`, of the middle one of these layers alone."""
    layers = spread_layers(anatomy, LAYERS)
    layers = (layers[len(layers) // 2],) if middle else layers
    most = min(HEADS, anatomy.n_heads)
    heads = sorted({round(i * (anatomy.n_heads - 1) / max(1, most - 1)) for i in range(most)})
    return tuple((layer, head) for layer in layers for head in heads)


def _median(evidence: Evidence, stats: Floats) -> Interval:
    """Of the pairs [document, pair, 3], with its interval over documents."""
    from armillary.probes.grid.coupling import relative_change

    return evidence.interval(stats, lambda drawn: np.nanmedian(relative_change(drawn), axis=1))


def _verdict(foreign: float, statistic: Interval) -> Verdict:
    if foreign > 0:
        return "refuted"
    _, low, high = statistic
    if np.isnan([low, high]).any():
        return "undecided"
    return "supported" if high < T.coupling_none else "refuted" if low > T.coupling_half else "qualified"


def _table(model: "Coupling", each: Floats) -> Table:
    return table(
        cells("head", "the head that is silenced", model.names),
        interval_cells(
            "coupling", "|g − g'|/|g| of the loss gradient at the other heads of its layer, median", each, ends=""
        ),
        cells("cosine", "cosine of g and g', median of them", model.cosines()),
        cells("earlier", "coupling of heads of earlier layers, median; empty where none", model.in_layers(later=False)),
        cells("later", "coupling of heads of later layers, median; empty where none", model.in_layers(later=True)),
        cells("cost", "change of the loss when the head is silenced", model.costs(), "nats/token"),
    )


def _reading(
    anatomy: "Anatomy", foreign: float, coupling: float, each: Floats, result: GradientResult, model: "Coupling"
) -> str:
    if foreign > 0:
        return (
            f"The gradient of a head's result at another head's slices is {say(foreign, '.2g')} of its own. The chain "
            "rule makes it 0: this is a bug."
        )
    strongest = int(np.nanargmax(each)) if np.isfinite(each).any() else 0
    text = (
        f"Silencing one neighbour changes the loss gradient of a head by {say(coupling, '.0%')} in the median pair "
        f"(most by {model.names[strongest]}: {say(each[strongest], '.0%')})"
    )
    for name, values in (("earlier", model.in_layers(later=False)), ("later", model.in_layers(later=True))):
        known = [value for value in values if not np.isnan(value)]
        text += f"; of heads in {name} layers by {say(float(np.median(known)), '.0%')}" if known else ""
    shared = " (except W_K and W_V, which heads of a group share)" if anatomy.n_kv_heads < anatomy.n_heads else ""
    text += f". A head's result has derivative 0 at other heads' slices of its layer{shared}, exact by construction"
    earlier = [row.earlier for row in result.direct if not np.isnan(row.earlier)]
    if earlier:
        text += f"; at slices of earlier layers its gradient is up to {say(max(earlier), '.2g')} times that at its own"
    return f"{text}."

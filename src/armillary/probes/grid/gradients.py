"""Do the gradients of one head's result reach only its own slices?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import (
    RANDOM,
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    between,
    cells,
    interval_cells,
    missing_interval,
    over_twins,
    spread_layers,
    table,
    undecided,
    weighed,
)
from armillary.probes.machinery.verdicts import FIVE_SHOWN
from armillary.results import Claim, Control, Finding, Part, Rewording, RuleChange, Statistic, Table, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.backpropagation.coupling import Coupling, Derivative
    from armillary.probes.machinery.bench import Bench

LAYERS, HEADS, DOCUMENTS = 3, 4, 12
PASSES = 1.5  # forward and backward over half of the text
TWINS = 5  # untrained models; in each, one head per layer is silenced


@dataclass(frozen=True, eq=False)
class GradientResult:
    model: "Coupling | None"
    twins: "Mapping[str, Coupling]"
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
        question=(
            "When one head is switched off, do the gradients of its neighbours change? If not, each head learns by "
            "itself."
        ),
        definition=(
            "How much a head's gradient changes when a neighbour in its layer is silenced (its result is set to "
            "zero), compared with how much the neighbour writes.\n"
            "(a) Own slices: the gradient of a random sum of one head's results, at the slices of W_Q, W_K and W_V "
            "of its layer. At other heads' slices it is exactly 0 by the chain rule. Heads of a group share W_K and "
            "W_V.\n"
            "(b) Independence: g is the loss gradient of a head's slices (W_Q, and W_K and W_V where no other head "
            "shares them), and g' is the same with another head of the layer silenced. The coupling is |g − g'|/|g| "
            "divided by |w|/|x|, where |w| is the length of what the silenced head writes and |x| that of the "
            "stream. If a head that writes 1 % of the stream changes a gradient by 1 %, the coupling is 1. Squares "
            "are summed over documents, each a batch of its own.\n"
            "The statistic is the coupling of the median pair of heads of one layer. A head that writes nothing has "
            "no coupling."
        ),
        control="random initialisation (five twins of a small model, one head per layer silenced)",
        rule=(
            "Two parts; the weaker decides.\n"
            "Part 1, own slices.\n"
            "Supported if the gradients at other heads' slices are 0.\n"
            "Refuted otherwise.\n"
            "Part 2, independent. The coupling's whole interval is compared with two limits.\n"
            f"Supported if it lies below {T.coupling_none}: what a neighbour writes hardly matters to a gradient.\n"
            f"Refuted if it lies above {T.coupling_half}: a gradient changes by at least half of the share that a "
            "single neighbour writes.\n"
            "Qualified if it lies between the two.\n"
            "Undecided if it spans either limit, or if no head writes anything.\n"
            "Undecided with too few documents, without a next-token loss, or with one head per layer."
        ),
        kind="behaviour",
        changes=(
            RuleChange(
                "2026-11-16",
                "The change is divided by what the silenced head writes. Heads of untrained models write little and "
                "had all come out as independent, eight models of eight.",
            ),
            FIVE_SHOWN,
        ),
        rewordings=(
            Rewording("2026-11-18", "9d7526bc7552", 2),
            Rewording("2026-11-18", "4f7e4b6fb292", 2),
            Rewording("2026-11-19", "6aedc37f53ab", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        if anatomy.n_heads < 2 or not anatomy.causal:
            return 1.0
        return PASSES * (2 + len(silenced(anatomy)) + TWINS * (1 + len(silenced(anatomy, 1)))) + 1 + TWINS

    def experiment(self, bench: "Bench") -> GradientResult:
        from armillary.probes.grid.backpropagation.coupling import derivatives, measure_coupling

        windows, layers = bench.text.windows[:DOCUMENTS], spread_layers(bench.anatomy, LAYERS)
        batches = bench.batches(windows)
        direct = tuple(derivatives(bench.anatomy, batches[0], layers))
        if not bench.scored or bench.anatomy.n_heads < 2:
            return GradientResult(None, {}, direct, len(windows))
        model = measure_coupling(bench, batches, layers, silenced(bench.anatomy))
        few = silenced(bench.anatomy, 1)
        twins = {arm: measure_coupling(bench.arm(arm), batches, layers, few) for arm in bench.twins[:TWINS]}
        return GradientResult(model, twins, direct, len(windows))

    def conclude(self, evidence: Evidence, result: GradientResult) -> Finding:
        from armillary.probes.grid.backpropagation.coupling import derivative_table

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
        random = over_twins([_median(evidence, twin.neighbours()) for twin in result.twins.values()]).tolist()
        each = np.array([_median(evidence, model.pairs(at)) for at in range(len(model.silenced))])
        parts = (_own_slices(evidence.anatomy, result), _independent(statistic, random[0], each[:, 0], model))
        return Finding(
            claim=self.claim,
            **weighed(parts),
            statistic=Statistic(
                "change of a head's loss gradient when a neighbour is silenced, over the share of the stream that the "
                "neighbour writes, median pair",
                *statistic,
            ),
            n=result.documents,
            controls=(Control(RANDOM, *random),) if result.twins else (),
            headline=f"A neighbour that writes 1 % of the stream changes a head's loss gradient by "
            f"{say(statistic[0], '.2g')} %, although the head's result does not depend on the neighbour's slices",
            table=_table(model, each),
            quantities=(model.map(),),
            more_tables={"direct": direct},
        )


def silenced(anatomy: "Anatomy", most: int = HEADS) -> tuple[tuple[int, int], ...]:
    """At most so many heads of some layers, spread over both."""
    most = min(most, anatomy.n_heads)
    heads = sorted({round(i * (anatomy.n_heads - 1) / max(1, most - 1)) for i in range(most)})
    return tuple((layer, head) for layer in spread_layers(anatomy, LAYERS) for head in heads)


def _median(evidence: Evidence, stats: Floats) -> Interval:
    """Of the pairs [document, pair, 5], with its interval over documents."""
    from armillary.probes.grid.backpropagation.coupling import median_coupling

    return evidence.interval(stats, median_coupling)


def _own_slices(anatomy: "Anatomy", result: GradientResult) -> Part:
    foreign = max((row.foreign for row in result.direct), default=0.0)
    statistic = Statistic("largest foreign gradient, over the own", foreign, foreign, foreign)
    if foreign > 0:
        text = (
            f"The gradient of a head's result at another head's slices is {say(foreign, '.2g')} of its own. The chain "
            "rule makes it 0: this is a bug."
        )
        return Part("own slices", "refuted", text, statistic)
    shared = " (except W_K and W_V, which heads of a group share)" if anatomy.n_kv_heads < anatomy.n_heads else ""
    text = f"A head's result has derivative 0 at other heads' slices of its layer{shared}, exact by construction"
    earlier = [row.earlier for row in result.direct if not np.isnan(row.earlier)]
    if earlier:
        text += f"; at slices of earlier layers its gradient is up to {say(max(earlier), '.2g')} times that at its own"
    return Part("own slices", "supported", f"{text}.", statistic)


def _independent(coupling: Interval, random: float, each: Floats, model: "Coupling") -> Part:
    name = "independent"
    if np.isnan(coupling[0]):
        reading = "No silenced head writes anything, so no coupling can be computed."
        return Part(name, "undecided", reading, Statistic("coupling", *coupling), why=Why.UNDEFINED)
    verdict = between(coupling, refuted=T.coupling_half, supported=T.coupling_none)
    strongest = int(np.nanargmax(each))
    text = (
        f"Silencing a neighbour that writes 1 % of the stream changes a head's loss gradient by "
        f"{say(coupling[0], '.2g')} %, in the median pair (at most by {say(each[strongest], '.2g')} %, "
        f"for {model.names[strongest]}); at random initialisation by {say(random, '.2g')} %. The median "
        f"head writes {say(float(np.median(model.shares())), '.2g')} of the stream, and silencing it changes a "
        f"neighbour's gradient by {say(float(np.nanmedian(model.changes())), '.2g')} of its length"
    )
    for layers, values in (("earlier", model.in_layers(later=False)), ("later", model.in_layers(later=True))):
        known = [value for value in values if not np.isnan(value)]
        text += f", that of heads in {layers} layers by {say(float(np.median(known)), '.2g')}" if known else ""
    why = missing_interval(*coupling) if verdict == "undecided" else None
    return Part(name, verdict, f"{text}.", Statistic("coupling of the median pair", *coupling), why=why)


def _table(model: "Coupling", each: Floats) -> Table:
    return table(
        cells("head", "the head that is silenced", model.names),
        interval_cells(
            "coupling",
            "change of the loss gradient at the other heads of its layer over `writes`, median",
            each,
            ends="",
        ),
        cells("change", "|g − g'|/|g| itself, median", model.changes()),
        cells("writes", "length of what it writes over that of the stream", model.shares()),
        cells("cosine", "cosine of g and g', median of them", model.cosines()),
        cells("earlier", "change at heads of earlier layers, median; empty where none", model.in_layers(later=False)),
        cells("later", "change at heads of later layers, median; empty where none", model.in_layers(later=True)),
        cells("cost", "change of the loss when the head is silenced", model.costs(), "nats/token"),
    )

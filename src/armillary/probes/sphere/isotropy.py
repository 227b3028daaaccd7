"""Does the norm make the cloud of tokens more isotropic, and do attention and the feed-forward structure it again?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.instruments.write_samples import WRITE_SAMPLES
from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    SHUFFLED,
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    over_twins,
    undecided,
    weakest,
)
from armillary.probes.machinery.verdicts import more_text
from armillary.probes.sphere.across_sites import defined_median, drawn_interval
from armillary.probes.sphere.symmetry.cycle import WRITE, Cycle, X, Y, Z, cycle, sublayers
from armillary.probes.sphere.symmetry.cycle_parts import (
    SHARE,
    StationChange,
    both_part,
    both_shares,
    change_part,
    maps_part,
    norm_part,
    step_limit,
)
from armillary.probes.sphere.symmetry.cycle_views import cycle_drawing, cycle_table, error_line, error_table
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Why

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench
    from armillary.probes.sphere.symmetry.rotations import RotationErrors

GAINED, PROJECTION = "the norm with its gain symmetrises", "the projection alone symmetrises"
# S3, section 2: 'this paper exclusively analyzes the pre-LN variant'.
POST = (
    "S3 speaks of models with a norm before each sublayer alone. In this one a norm follows each sublayer: the cycle "
    "begins with the sublayer, and the norm before it has ended the one before."
)


@dataclass(frozen=True)
class Isotropy:
    """The participation ratio at every station of the cycle x → z → y → write."""

    claim: ClassVar[Claim] = Claim(
        id="cycle.isotropy",
        chapter="A",
        statement="A block symmetrises, then structures: the norm makes the cloud of tokens more isotropic, attention "
        "and the feed-forward make it less so.",
        source="S3",
        definition=(
            "Isotropy is the participation ratio of a cloud of tokens over its number of axes: (Σλ)²/Σλ²/d of the "
            "covariance's eigenvalues λ, 1 where all axes are equally strong, 1/d where there is one. Σλ² comes from "
            "pairs of tokens of different documents, so that few tokens do not look like few axes. It is taken at four "
            "stations of every sublayer (attention or feed-forward): x before its norm, z on the sphere, y after gain "
            "and shift (what the sublayer reads), and what the sublayer writes; the same ordinary tokens everywhere. "
            "The statistic is the share of sublayers in which y is more isotropic than x and the write less than y, "
            "both by a factor that untrained models do not reach there, with the whole interval; its upper end adds "
            "the sublayers whose intervals leave that open. "
            "Mean cosine and the share of the strongest axis are in the table. In a post-norm model, which the source "
            "leaves out, the norm that a sublayer reads is the one that ended the sublayer before. The source also "
            "says it of the maps themselves: a map f treats all directions alike if ‖f(xR) − f(x)R‖/‖f(x)‖ is 0 for a "
            "rotation R, one that leaves the vector (1, …, 1) in place under LayerNorm; for an unrelated result it is "
            "√2."
        ),
        control=(
            "random initialisation (all twins), sublayer by sublayer; shuffled text; γ = 1 and β = 0 (z in place of "
            "y); for the maps: the twins' Gaussian weights"
        ),
        rule=(
            "The norm symmetrises at a sublayer if the ratio of y's participation ratio to x's lies above 1 and above "
            "what an untrained model shows there, with the whole interval. A sublayer structures if the ratio of the "
            "write's to y's lies below 1 and below an untrained model's. What an untrained model shows is an interval "
            "over twins of the ratio's logarithm. Parts: 'both at one sublayer', supported if both happen at "
            f"{T.sites_most:.0%} of sublayers, refuted if they could at most at {T.sites_few:.0%}, qualified in "
            "between, undecided if intervals that span their limit could change that. 'The projection alone "
            "symmetrises', from the ratio of z's participation ratio to x's, which decides if it is weaker: the source "
            "says it of the projection, not of the gain. It is supported if it does so at the median sublayer and "
            f"fails at most at {T.sites_few:.0%} of sublayers, refuted if it fails at the median one and happens at "
            f"most at {T.sites_few:.0%}, qualified if it happens and fails at more than {T.sites_few:.0%} each, "
            "undecided otherwise. 'The norm with its gain symmetrises' and "
            "'sublayers structure', by the same rule, tell which step is missing; they do not decide. Two parts by "
            "definition, which decide if they are weaker: 'the bare norm treats all directions alike', supported if "
            "its error under a rotation is rounding. 'Sublayers do not': supported if the error of the median sublayer "
            f"lies above {T.rotation_unlike} (half of √2), refuted below; Gaussian weights show it too, so it is not "
            "learned."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-16",
                "The statistic counts a sublayer only if both factors lie beyond untrained models, as the parts do; "
                "before, it counted any change, and most sublayers of an untrained model had one. No part changed.",
            ),
            RuleChange(
                "2026-11-16",
                "Twins are compared by the logarithm of the ratio. By the ratio itself their interval reached below 0 "
                "in one sublayer of some models, and planted writes along one axis were missed there (2 of 20).",
            ),
            RuleChange(
                "2026-11-18",
                "Both steps at one sublayer decide, and the statistic counts whole intervals, as the parts do. It "
                "counted values: 6 of 16 sublayers of builtin:llama did both, where a part said that 3 lower isotropy "
                "at all. The weaker of two separate parts decided: MiniLM was qualified with a statistic of 0, and "
                "became refuted.",
            ),
            RuleChange(
                "2026-11-18",
                "The projection alone must symmetrise too, which is what the source says. The control γ = 1 had "
                "decided nothing: builtin:gpt was qualified with a factor of 1.35 by the norm with its gain, where the "
                "projection alone has 0.93.",
            ),
            RuleChange(
                "2026-11-18",
                "Single steps are decided by the median sublayer, and by the sublayers that surely do or do not follow "
                "it, as in the claims about feed-forward layers. Before, sublayers whose intervals left it open could "
                "turn the part: on builtin:llama the projection symmetrises at none of 16 sublayers and lowers "
                "isotropy at the median one (0.95), and yet 3 to 4 of 10 seeds left the claim undecided.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (SAMPLES, WRITE_SAMPLES)

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.sphere.symmetry.rotations import passes

        return passes(anatomy)

    def experiment(self, bench: "Bench") -> "dict[str, RotationErrors]":
        from armillary.probes.sphere.symmetry.rotations import sublayer_errors

        return {arm: sublayer_errors(bench.arm(arm)) for arm in (MODEL, *bench.twins)}

    def conclude(self, evidence: Evidence, result: "dict[str, RotationErrors]") -> Finding:
        steps = sublayers(evidence.anatomy)
        if not steps:
            return undecided(self.claim, Why.NOT_APPLICABLE, "No sublayer of this model reads a norm.")
        model, twins = cycle(evidence, MODEL, described=True), [cycle(evidence, arm) for arm in evidence.twins]
        raised, lowered = _change(evidence, model, twins, Y, X), _change(evidence, model, twins, WRITE, Y)
        bare = _change(evidence, model, twins, Z, X)
        both = both_part(raised, lowered, steps)
        what = "The projection alone raises isotropy before"
        projected = change_part(PROJECTION, bare, steps, what, _gained(bare, raised))
        deciding = (
            both,
            projected,
            norm_part(evidence),
            maps_part(evidence, result),
        )
        # The two steps by themselves cannot be weaker than both at one sublayer.
        verdict, why = weakest(deciding)
        parts = (
            both,
            change_part(GAINED, raised, steps, "The norm with its gain raises isotropy before"),
            change_part("sublayers structure", lowered, steps, "The write is less isotropic than what is read at"),
            *deciding[1:],
        )
        order = (POST,) if evidence.anatomy.order == "post" else ()
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(SHARE, *_shares(evidence, model, raised, lowered)),
            n=model.tokens,
            controls=_controls(evidence, model, twins, raised, lowered),
            reading=" ".join((*(part.reading for part in parts), *order)) + more_text(why),
            headline=headline(raised, bare, lowered),
            table=cycle_table(evidence, model, raised, bare, lowered),
            quantities=(cycle_drawing(evidence, model, twins), error_line(evidence, result)),
            more_tables={"rotations": error_table(evidence, result)},
            why=why,
            parts=parts,
            limits=(step_limit(projected, bare),) if twins and np.isfinite(bare.middle[0, 0]) else (),
        )


def _ratio(of: Cycle, after: int, before: int) -> Floats:
    """[draw, sublayer]: the isotropy of one station over that of another."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(of.participation[..., after] / of.participation[..., before])


def _factors(evidence: Evidence, of: Cycle, after: int, before: int) -> Floats:
    """[sublayer, (value, low, high)] of the ratio."""
    return np.array([drawn_interval(evidence, column) for column in _ratio(of, after, before).T])


def _change(evidence: Evidence, model: Cycle, twins: Sequence[Cycle], after: int, before: int) -> StationChange:
    changes = _factors(evidence, model, after, before)
    untrained = np.full_like(changes, np.nan)
    if twins:
        # A factor varies by factors: as a plain number, twins of 0.2 and 0.6 would let the next one be below 0.
        with np.errstate(invalid="ignore"):
            untrained = np.exp(over_twins(np.log([_factors(evidence, twin, after, before) for twin in twins])))
    middle = _middle(evidence, model, after, before)
    middles = [_middle(evidence, twin, after, before) for twin in twins]
    with np.errstate(invalid="ignore"):
        usual = np.exp(over_twins(np.log(middles))) if twins else np.full_like(middle, np.nan)
    return StationChange(changes, untrained, len(twins), before == X, middle, usual)


def _middle(evidence: Evidence, of: Cycle, after: int, before: int) -> Floats:
    """[1, (value, low, high)] of the ratio at the median sublayer."""
    return np.array([drawn_interval(evidence, defined_median(_ratio(of, after, before)))])


def _shares(evidence: Evidence, of: Cycle, raised: StationChange, lowered: StationChange, read: int = Y) -> Interval:
    """The statistic, of the model or of a control."""
    return both_shares(raised, lowered, _factors(evidence, of, read, X), _factors(evidence, of, WRITE, read))


def _controls(
    evidence: Evidence, model: Cycle, twins: Sequence[Cycle], raised: StationChange, lowered: StationChange
) -> tuple[Control, ...]:
    def share(of: Cycle, read: int = Y) -> Interval:
        return _shares(evidence, of, raised, lowered, read)

    # Where another initialisation is expected may reach beyond what a share can be.
    controls = [Control(RANDOM, *over_twins([share(t) for t in twins]).clip(0, 1).tolist())] if twins else []
    if SHUFFLED in evidence[SAMPLES]:
        controls.append(Control(SHUFFLED, *share(cycle(evidence, SHUFFLED))))
    return (*controls, Control("γ = 1, β = 0", *share(model, Z)))


def _gained(bare: StationChange, raised: StationChange) -> str:
    return " The gain symmetrises, not the projection." if bare.median < 1 < raised.median else ""


def headline(raised: StationChange, bare: StationChange, lowered: StationChange) -> str:
    """Each step may be common where both together are rare: the number of sublayers that do both comes first."""
    up, alone, down = (change.sure_and_possible[0] for change in (raised, bare, lowered))
    beyond = " beyond untrained models" if raised.twins else ""
    return (
        f"At {(up & down).sum()} of {len(up)} sublayers the norm with its gain makes the cloud of tokens more "
        f"isotropic and the sublayer less so{beyond} (the norm at {up.sum()}, its projection alone at {alone.sum()}, "
        f"the sublayer at {down.sum()})"
    )

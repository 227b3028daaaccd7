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
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Why

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench
    from armillary.probes.sphere.symmetry.rotations import RotationErrors

GAINED, PROJECTION = "the norm with its gain symmetrises", "the projection alone symmetrises"
# S3, section 2: 'this paper exclusively analyzes the pre-LN variant'.
POST = (
    "S3 is about models with a norm before each sublayer. In this one a norm follows each sublayer, so the norm that "
    "a sublayer reads is the one that ended the previous sublayer."
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
        question=(
            "Does a norm spread tokens more evenly over all directions? And does what attention or the feed-forward "
            "then adds lie in fewer directions?"
        ),
        definition=(
            "How evenly a cloud of tokens spreads over all axes (isotropy), at four stations of every sublayer "
            "(attention or feed-forward): x before its norm, z on the sphere, y after gain and shift (what the "
            "sublayer reads), and the write (what it adds). The same ordinary tokens are used at every station.\n"
            "Isotropy is the participation ratio over the number of axes: (Σλ)²/Σλ²/d of the covariance's eigenvalues "
            "λ. It is 1 if all axes are equally strong and 1/d if there is only one. Σλ² comes from pairs of tokens "
            "of different documents, so that few tokens do not look like few axes.\n"
            "The statistic is the share of sublayers in which y is more isotropic than x, and the write less "
            "isotropic than y. Both changes must exceed those of untrained models at that sublayer, with the whole "
            "interval. The upper end of its interval also counts the sublayers whose intervals leave this open.\n"
            "In a post-norm model, which the source leaves out, the norm that a sublayer reads is the one that ended "
            "the previous sublayer. Mean cosine and the share of the strongest axis are in the table.\n"
            "The source makes the same claim about the maps themselves. A map f treats all directions alike if "
            "rotating its input rotates its output: ‖f(xR) − f(x)R‖/‖f(x)‖ is then 0. For an unrelated result it is "
            "√2. Under LayerNorm the rotations R leave the vector (1, …, 1) in place."
        ),
        control=(
            "random initialisation (all twins), sublayer by sublayer; shuffled text; γ = 1 and β = 0 (z in place of "
            "y); for the maps: the twins' Gaussian weights"
        ),
        rule=(
            "Each step is a ratio of two isotropies. The norm symmetrises at a sublayer if the ratio of y to x is "
            "above 1 and above that of untrained models at this sublayer. The sublayer structures if the ratio of its "
            "write to y is below 1 and below that of untrained models there. 'Above' and 'below' refer to whole "
            "intervals; that of untrained models is taken over twins, of the ratio's logarithm. Sublayers at which "
            "nothing varies are left out. The weakest of parts 1, 2, 5 and 6 decides.\n"
            "Part 1, both steps at one sublayer.\n"
            f"Supported if both happen at {T.sites_most:.0%} of sublayers or more.\n"
            f"Refuted if, given the intervals, both could happen at {T.sites_few:.0%} of sublayers at most.\n"
            f"Qualified if both happen at more than {T.sites_few:.0%} of sublayers, and could happen at fewer than "
            f"{T.sites_most:.0%}.\n"
            "Undecided otherwise.\n"
            "Part 2, the projection alone symmetrises: the source says it of the projection, not of the gain. A "
            "sublayer passes if the ratio of z to x is above 1 and above that of untrained models, and fails if it is "
            "below either. The ratio at the median sublayer is judged in the same way.\n"
            f"Supported if the median passes, and at most {T.sites_few:.0%} of sublayers fail.\n"
            f"Refuted if the median fails, and at most {T.sites_few:.0%} of sublayers pass.\n"
            f"Qualified if more than {T.sites_few:.0%} of sublayers pass, and more than {T.sites_few:.0%} fail.\n"
            "Undecided otherwise.\n"
            "Parts 3 and 4, the norm with its gain symmetrises, and sublayers structure, follow the rule of part 2. "
            "They show which step is missing and decide nothing. Parts 1 to 4 are undecided without untrained twins.\n"
            "Part 5, by definition: the bare norm treats all directions alike.\n"
            f"Supported if its error under a rotation, at the median norm, is rounding (at most {T.roundings:g} "
            "rounding errors of float64).\n"
            "Refuted if it is more.\n"
            "Part 6, sublayers do not treat all directions alike.\n"
            f"Supported if the error of the median sublayer is above {T.rotation_unlike} (half of √2).\n"
            "Refuted if it is below.\n"
            "Undecided if its interval spans that limit. Gaussian weights show such an error too, so it is not "
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
        rewordings=(
            Rewording("2026-11-18", "12e183707fff", 5),
            Rewording("2026-11-18", "a747f99a0b2b", 5),
            Rewording("2026-11-19", "20d3638bdf22", 5),
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
        what = "The projection alone multiplies isotropy by"
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
            change_part(GAINED, raised, steps, "The norm with its gain multiplies isotropy by"),
            change_part(
                "sublayers structure",
                lowered,
                steps,
                "From reading to writing, a sublayer multiplies isotropy by",
            ),
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
    beyond = ", beyond untrained models" if raised.twins else ""
    return (
        f"At {(up & down).sum()} of {len(up)} sublayers the norm with its gain makes the cloud of tokens more "
        f"isotropic and the sublayer less so{beyond} (the norm at {up.sum()}, its projection alone at {alone.sum()}, "
        f"the sublayer at {down.sum()})"
    )

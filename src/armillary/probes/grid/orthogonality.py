"""Are heads pockets in which vectors are not orthogonal?"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import (
    MODEL,
    NAN3,
    RANDOM,
    SHUFFLED,
    AnyInstrument,
    Evidence,
    Flags,
    Interval,
    T,
    above,
    beats,
    missing_interval,
    name_heads,
    spread_layers,
    undecided,
    weighed,
)
from armillary.results import Claim, Control, Finding, Part, Rewording, RuleChange, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.spaces.cosine_ratios import CosineRatios, SpaceSums
    from armillary.probes.machinery.bench import Bench

LAYERS = 8


@dataclass(frozen=True)
class Orthogonality:
    """|cos| of token pairs in the full space and in each head's, against random projections of the same vectors."""

    claim: ClassVar[Claim] = Claim(
        id="heads.orthogonality",
        chapter="F",
        statement="Heads are pockets where vectors are not orthogonal.",
        source="S3",
        question=(
            "Random vectors in many dimensions are nearly at right angles. Are the vectors of different words in a "
            "head less so, by more than its small number of axes explains?"
        ),
        definition=(
            "How far from orthogonal are the vectors of different words? The mean |cos| is taken between vectors of "
            "different words from different documents, first tokens left out: of the heads' input (d axes), and of "
            "every head's q, k and v (k axes; after the projection, before any rotation or q/k-norm; mean of the "
            "three).\n"
            "With fewer axes |cos| is larger anyway: random directions of n axes have Γ(n/2)/(√π Γ((n+1)/2)) ≈ "
            "√(2/πn), so going from d to k axes raises it by √(d/k).\n"
            "The statistic is the median head's |cos| over that of random projections of the same vectors to k axes: "
            "what a head has learned beyond having fewer axes. It is also taken with the mean vector removed, "
            "because a direction that all tokens share is not a relation between them."
        ),
        control="random initialisation (all twins); shuffled text; the full space",
        rule=(
            "Three parts; the weakest decides. A number lies above or below a limit only if its whole interval "
            "does.\n"
            "Part 1, the full space is nearly orthogonal.\n"
            f"Supported if the |cos| of the median layer lies below {T.orthogonal_ratio} times that of random "
            "directions of d axes.\n"
            "Refuted if it lies above.\n"
            "Part 2, fewer axes raise |cos|, by law.\n"
            "Supported if the |cos| of random projections to k axes is larger than that of the full space.\n"
            "Refuted if it is smaller.\n"
            "Part 3, heads go beyond fewer axes. A head has two ratios to random projections: with the mean vector, "
            f"and with the mean vector removed. It is a pocket if both are significantly above {T.pocket_ratio} (at "
            f"most {T.false_discovery:.0%} false discoveries over heads, Benjamini–Hochberg).\n"
            f"Supported if both ratios of the median head lie above {T.pocket_ratio}, and the first also above that "
            "of untrained models.\n"
            f"Refuted if either ratio of the median head lies below {T.pocket_ratio} and at most {T.sites_few:.0%} of "
            "heads are pockets, or if the first is no larger than untrained models reach.\n"
            f"Qualified if either ratio lies below {T.pocket_ratio}, the first lies above that of untrained models, "
            f"and more than {T.sites_few:.0%} of heads are pockets; these are named.\n"
            "Every part is undecided where an interval spans its limit, or with too few documents.\n"
            "No single model can show whether pockets are of use: that needs models with one head of full width, "
            "trained in the laboratory."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-16",
                "Random projections of the same vectors decide, with several untrained models: they had shown as much "
                "as heads (SmolLM2 5.9 and 5.6 times random directions), and untrained models had been qualified.",
            ),
            RuleChange(
                "2026-11-18",
                "Where some heads go beyond and the median one spans the end of untrained models, the second part is "
                "undecided; it had been refuted.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "a49288bc8d9a", 2),
            Rewording("2026-11-18", "b42dff4e99ec", 2),
            Rewording("2026-11-18", "6c468ca0b23e", 2),
            Rewording("2026-11-19", "5d8c7df19336", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.machinery.plan import arms_of

        return float(arms_of(anatomy))

    def experiment(self, bench: "Bench") -> "SpaceSums | None":
        from armillary.probes.grid.spaces.cosine_ratios import SpaceSums
        from armillary.probes.grid.spaces.token_pairs import sample_vectors, space_sums

        layers, groups = spread_layers(bench.anatomy, LAYERS), bench.corpus.groups
        arms = {arm: sample_vectors(bench.arm(arm), layers) for arm in (MODEL, *bench.twins, SHUFFLED)}
        model = arms[MODEL]
        documents = len(set(model.documents.tolist()))
        if documents < 2 or len(set(model.words.tolist())) < 2:
            return None
        raw = {
            arm: {layer: space_sums(vectors, layer, groups, False) for layer in layers}
            for arm, vectors in arms.items()
            if len(set(vectors.words.tolist())) > 1
        }
        centred = {layer: space_sums(model, layer, groups, True) for layer in layers}
        return SpaceSums(raw, centred, len(model.words), documents)

    def conclude(self, evidence: Evidence, result: "SpaceSums | None") -> Finding:
        from armillary.probes.grid.spaces.cosine_ratios import CosineRatios, pocket_heads

        if result is None:
            reading = "There are no two different words from two documents to compare. Give more text."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading)
        ratios = CosineRatios(evidence.anatomy, result, evidence.seed)
        excess, centred = ratios.excess(result.raw[MODEL]), ratios.excess(result.centred)
        pocket = pocket_heads(excess) & pocket_heads(centred)
        statistic, also = (ratios.interval(np.median(draws, axis=1)) for draws in (excess, centred))
        random = evidence.over_twins(ratios.median_excess)
        parts = (
            _full_space(ratios),
            _fewer_axes(ratios),
            _beyond(statistic, also, random, len(evidence.twins), _flags(ratios, pocket)),
            Part("it is of use", "undecided", USE, asserted=False, why=Why.NO_CONTROL),
        )
        twins = [
            np.median(ratios.heads(result.raw[arm])[0].reshape(len(ratios.layers), -1), 1) for arm in evidence.twins
        ]
        return Finding(
            claim=self.claim,
            **weighed(parts),
            statistic=Statistic("|cos| in the median head, over random projections of the same vectors", *statistic),
            n=result.tokens,
            controls=(
                Control(RANDOM, *random),
                Control(SHUFFLED, *(ratios.median_excess(SHUFFLED) if SHUFFLED in result.raw else NAN3)),
                Control("with the mean vector removed", *also),
            ),
            headline=f"|cos| in the median head is {say(statistic[0], '.2g')} times that of random projections of the "
            f"same vectors to as many axes (untrained: {say(random[0], '.2g')} times)",
            table=ratios.head_table(excess, centred, pocket),
            quantities=ratios.quantities(np.mean(twins, axis=0)),
            more_tables={"full space": ratios.full_table()},
        )


USE = (
    "Whether a single dot product over all d axes would do worse is a question for models trained with one head of "
    "full width. The laboratory can answer it, this model cannot."
)


def _flags(ratios: "CosineRatios", pocket: Flags) -> Flags:
    """[layer, head] of the whole model."""
    flags = np.zeros((ratios.anatomy.layers, ratios.anatomy.n_heads), dtype=bool)
    flags[ratios.layers] = pocket.reshape(len(ratios.layers), -1)
    return flags


def _full_space(ratios: "CosineRatios") -> Part:
    full = ratios.interval(np.median(ratios.space(ratios.sums.raw[MODEL], "full"), axis=1) / ratios.law_d)
    side = above(full, T.orthogonal_ratio)
    return Part(
        "the full space is nearly orthogonal",
        "undecided" if side is None else "refuted" if side else "supported",
        f"|cos| between two words is {say(full[0], '.2g')} times that of random directions, in the full space of d "
        "axes.",
        Statistic("|cos| in the median layer's full space, over random directions of d axes", *full),
        why=missing_interval(*full) if side is None else None,
    )


def _fewer_axes(ratios: "CosineRatios") -> Part:
    random, full = (ratios.space(ratios.sums.raw[MODEL], name) for name in ("random", "full"))
    raised = ratios.interval(np.median(random / np.maximum(full, 1e-300), axis=1))
    side = above(raised, 1.0)
    return Part(
        "fewer axes raise |cos|",
        "undecided" if side is None else "supported" if side else "refuted",
        f"Random projections of the same vectors to k axes have {say(raised[0], '.2g')} times that |cos| (random "
        f"directions, by law, {say(math.sqrt(ratios.anatomy.d / ratios.anatomy.k), '.2g')} times): that is not "
        "learned.",
        Statistic("|cos| of random projections, over that of the full space", *raised),
        why=missing_interval(*raised) if side is None else None,
    )


def _beyond(statistic: Interval, centred: Interval, random: Interval, twins: int, pocket: Flags) -> Part:
    sides = (above(statistic, T.pocket_ratio), above(centred, T.pocket_ratio), beats(statistic, random, twins))
    verdict: Verdict = "undecided"
    if all(sides):
        verdict = "supported"
    elif np.isnan([*statistic, *centred]).any():
        verdict = "undecided"
    elif False in sides:
        some = pocket.mean() > T.sites_few
        verdict = "refuted" if not some or sides[2] is False else "qualified" if sides[2] else "undecided"
    which = f" ({name_heads(pocket)})" if pocket.any() else ""
    return Part(
        "heads go beyond fewer axes",
        verdict,
        f"The median head has {say(statistic[0], '.2g')} times the |cos| of such projections, with the mean vector "
        f"removed {say(centred[0], '.2g')} times; an untrained model has {say(random[0], '.2g')} times, at most "
        f"{say(random[2], '.2g')}. Heads that go beyond fewer axes: {pocket.sum()}{which}.",
        Statistic("|cos| in the median head, over random projections", *statistic),
        why=missing_interval(*statistic, *centred) if verdict == "undecided" else None,
    )

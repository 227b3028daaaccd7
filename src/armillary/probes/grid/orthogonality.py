"""Are heads pockets in which vectors are not orthogonal?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import MODEL, RANDOM, SHUFFLED, AnyInstrument, Evidence, Flags, Floats, T, spread_layers
from armillary.probes.machinery.intervals import Interval
from armillary.probes.machinery.verdicts import missing_interval, name_heads, undecided
from armillary.results import Claim, Control, Finding, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.cosine_ratios import CosineRatios, SpaceSums
    from armillary.probes.machinery.bench import Bench

LAYERS = 8


@dataclass(frozen=True)
class Orthogonality:
    """|cos| of token pairs in the full space and in each head's, against random directions of as many axes."""

    claim: ClassVar[Claim] = Claim(
        id="heads.orthogonality",
        chapter="F",
        statement="Heads are pockets where vectors are not orthogonal.",
        source="S3",
        definition=(
            "Mean |cos| between vectors of different words from different documents, first tokens left out: of the "
            "heads' input (d axes), and of q, k and v of every head (k axes; after projection, before any rotation or "
            "q/k-norm). Random directions of n axes have Γ(n/2)/(√π Γ((n+1)/2)) ≈ √(2/πn), so fewer axes alone make "
            "|cos| larger, by √(d/k). A head's ratio is relative to the law of k axes, mean of q, k and v: it measures "
            "what goes beyond that. The statistic is the ratio of the median head. Also reported is the ratio with the "
            "mean vector removed: a direction that all tokens share is not a relation between them."
        ),
        control=(
            "the full space, over the law of d axes; random projections of the same vectors to k axes; random "
            "initialisation; shuffled text"
        ),
        rule=(
            f"A head is a pocket if its ratio significantly exceeds {T.pocket_ratio} (Benjamini–Hochberg). Supported "
            f"if at least {T.sites_most:.0%} of heads are pockets and exceed it with the mean removed too, while the "
            "full space is nearly orthogonal (the whole interval of the median layer's ratio below "
            f"{T.orthogonal_ratio}). Refuted if at most {T.sites_few:.0%} of heads are pockets: then fewer axes alone "
            "explain |cos|. Qualified otherwise. Undecided if there are too few documents for an interval."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 3.0

    def experiment(self, bench: "Bench") -> "SpaceSums | None":
        from armillary.probes.grid.cosine_ratios import SpaceSums
        from armillary.probes.grid.token_pairs import sample_vectors, space_sums

        layers, groups = spread_layers(bench.anatomy, LAYERS), bench.corpus.groups
        arms = {arm: sample_vectors(bench.arm(arm), layers) for arm in (MODEL, RANDOM, SHUFFLED)}
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
        from armillary.probes.grid.cosine_ratios import CosineRatios, pocket_heads

        if result is None:
            reading = "There are no two different words from two documents to compare. Give more text."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading)
        ratios = CosineRatios(evidence.anatomy, result, evidence.seed)
        heads, centred = ratios.heads(MODEL), ratios.centred_heads()
        pocket = pocket_heads(heads)
        statistic = ratios.interval(np.median(heads, axis=1))
        full = ratios.interval(np.median(ratios.full(), axis=1))
        verdict = _verdict(pocket, centred, statistic, full)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=missing_interval(*statistic, *full) if verdict == "undecided" else None,
            statistic=Statistic("|cos| in the median head, over random directions of k axes", *statistic),
            n=result.tokens,
            controls=(
                Control("full space, over random directions of d axes", *full),
                Control(
                    "random heads on the same vectors", *ratios.interval(np.median(ratios.space("random"), axis=1))
                ),
                *(
                    Control(arm, *ratios.interval(np.median(ratios.heads(arm), axis=1)))
                    for arm in (RANDOM, SHUFFLED)
                    if arm in result.raw
                ),
            ),
            reading=_reading(ratios, pocket, centred, statistic[0], full[0]),
            headline=f"|cos| in the median head is {say(statistic[0], '.2g')} times that of random directions, in the "
            f"full space {say(full[0], '.2g')} times",
            table=ratios.head_table(heads, centred, pocket),
            quantities=ratios.quantities(heads),
            more_tables={"full space": ratios.full_table()},
        )


def _verdict(pocket: Flags, centred: Floats, statistic: Interval, full: Interval) -> Verdict:
    if np.isnan([*statistic, *full]).any():
        return "undecided"
    if pocket.mean() <= T.sites_few:
        return "refuted"
    also = (pocket & (centred > T.pocket_ratio)).mean() >= T.sites_most
    return "supported" if also and full[2] < T.orthogonal_ratio else "qualified"


def _reading(ratios: "CosineRatios", pocket: Flags, centred: Floats, ratio: float, full: float) -> str:
    flags = np.zeros((ratios.anatomy.layers, ratios.anatomy.n_heads), dtype=bool)
    flags[ratios.layers] = pocket.reshape(len(ratios.layers), -1)
    which = f" ({name_heads(flags)})" if 0 < pocket.mean() < T.sites_most else ""
    random = float(np.median(ratios.space("random")[0]))
    text = (
        f"|cos| between the vectors of two words is {say(ratio, '.2g')} times that of random directions in the median "
        f"head and {say(full, '.2g')} times in the full space; random heads on the same vectors: {say(random, '.2g')} "
        f"times. Pockets: {pocket.sum()} of {pocket.size} heads{which}, "
        f"{int((pocket & (centred > T.pocket_ratio)).sum())} of them also with the mean vector removed. Fewer axes "
        f"alone raise |cos| from {say(ratios.law_d, '.2g')} to {say(ratios.law_k, '.2g')}"
    )
    if full > T.orthogonal_ratio:
        text += ". The full space is not nearly orthogonal itself, so heads may inherit what they show"
    return f"{text}."

"""Do heads specialise on regions of the sphere that they read?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, T, undecided, weighed
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.regions.shares import RegionPasses
    from armillary.probes.machinery.bench import Bench


@dataclass(frozen=True)
class HeadRegions:
    """Variance of what heads do that regions of z explain on documents that did not define them."""

    claim: ClassVar[Claim] = Claim(
        id="heads.regions",
        chapter="F",
        statement="Heads specialise on different regions of the manifold.",
        source="S3 R",
        question=(
            "Does what a head does depend on where a token lies in the space, and do different heads work in "
            "different places?"
        ),
        kind="learned",
        definition=(
            "How much of what a head does depends on where the token lies? Tokens from the ninth of a window on are "
            "used, in up to eight layers.\n"
            "Regions: k-means divides the directions z that a layer's heads read into eight regions, on one half of "
            "the documents.\n"
            "What a head does is measured by three numbers, each as its rank among tokens: the length of its write, "
            "the entropy of its attention over the largest possible, and its mean score over the keys it sees. "
            "Effects of the token's position and frequency in the text are removed first (ranks, their squares and "
            "cubes).\n"
            "A head's share is the part of the remaining variance that the region's mean explains on the other half "
            "of the documents; mean of the three numbers. Regions, means and fits all come from the first half, so a "
            "meaningless partition explains nothing, or a little less. Then the halves change roles. The statistic "
            "is the median head's share.\n"
            "The agreement of two heads of a layer compares where they write much: the product of their mean writes "
            "by region, one from each half, over that of a head with itself. It is 1 for the same regions and 0 for "
            "unrelated ones."
        ),
        control=(
            "random partitions of equal sizes; random initialisation (all twins); position and frequency taken out"
        ),
        rule=(
            "Two parts; the weaker decides. The source asks this as an open question; the parts are its second "
            "answer. A number lies above or below a limit only if its whole interval does.\n"
            "Part 1, what heads do depends on the region.\n"
            f"Supported if the statistic lies above {T.regions_share}, above untrained models and above random "
            "partitions (the upper end of their interval).\n"
            "Refuted if it lies below what untrained models reach, or below the upper end of random partitions. Also "
            f"refuted if it lies below {T.regions_share} and at most {T.sites_few:.0%} of heads have a share of "
            f"{T.regions_share} or more that is significant (corrected for the number of heads, Benjamini–Hochberg).\n"
            f"Qualified if it lies below {T.regions_share} but above both controls, and more than {T.sites_few:.0%} "
            "of heads have such a share; these are named.\n"
            "Part 2, different heads, different regions.\n"
            f"Supported if the agreement, in the median layer, lies below {T.regions_alike}.\n"
            "Refuted if it lies above.\n"
            "Every part is undecided where an interval spans its limit. Part 1 is also undecided without untrained "
            "models, unless it is refuted. Part 2 is also undecided with one head per layer, or where no head writes "
            "more in some regions than in others.\n"
            f"Undecided with too little text: fewer than {T.regions_documents} documents, as under --quick, or fewer "
            f"than {T.tokens_least} tokens in a half of them. With few documents, regions of one half explain less of "
            "the other than they could."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "Eight documents were enough, as under --quick, but the statistic grows with their number: of the "
                "built-in model it is 0.03 with eight and 0.06 with twenty. A verdict now needs sixteen, where it is "
                "0.05.",
            ),
            RuleChange(
                "2026-11-18",
                "The rule says that a share below that of random partitions refutes, and that few significant heads "
                "refute where the median lies below the limit. The code had decided so before; no verdict changes.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "011d828e4407", 2),
            Rewording("2026-11-18", "50f27ce6cfb8", 2),
            Rewording("2026-11-18", "2ba5a9f99776", 2),
            Rewording("2026-11-19", "1b203b8cf90e", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.flow.controls import twins_for

        return 1.0 + twins_for(anatomy)

    def experiment(self, bench: "Bench") -> "RegionPasses | None":
        from armillary.probes.grid.regions.shares import region_passes

        return region_passes(bench)

    def conclude(self, evidence: Evidence, result: "RegionPasses | None") -> Finding:
        from armillary.probes.grid.regions.region_parts import RegionShares, region_parts
        from armillary.probes.grid.regions.region_tables import region_quantities, region_table, shares_table

        if result is None:
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, _missing(evidence))
        measured = RegionShares(result, evidence)
        parts = region_parts(measured)
        share = measured.median
        return Finding(
            claim=self.claim,
            **weighed(parts),
            statistic=Statistic("share of variance that regions explain on other documents, median head", *share),
            n=len(result.places),
            controls=(Control(RANDOM, *measured.untrained), Control("random partitions", *measured.random)),
            headline=f"Regions explain {say(share[0], '.0%')} of what the median head does on other documents "
            f"(untrained: {say(measured.untrained[0], '.0%')}); {measured.heads.sum()} of {measured.heads.size} heads "
            "depend on them",
            table=shares_table(measured),
            quantities=region_quantities(measured),
            more_tables={"regions": region_table(measured, result.arms[MODEL])},
        )


def _missing(evidence: Evidence) -> str:
    from armillary.probes.grid.regions.readings import region_documents

    assert evidence.corpus is not None, "heads.regions reads text"
    documents = region_documents(evidence.corpus)
    if documents < T.regions_documents:
        return (
            f"The text has {documents} documents of nine or more tokens; a verdict needs {T.regions_documents}. With "
            "fewer, regions of one half explain less of the other than they could. Give more documents, or more "
            "--tokens; --quick alone reads too few."
        )
    return (
        f"Each half of the documents needs {T.tokens_least} tokens from the ninth of a window on, to have regions of "
        "its own. Give more text, or longer documents."
    )

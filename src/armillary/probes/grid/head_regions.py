"""Do heads specialise on regions of the sphere that they read?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, T, undecided, weighed
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Why, say

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
        kind="learned",
        definition=(
            "In up to eight layers, k-means cuts the directions z that a layer's heads read on one half of the "
            "documents into eight regions. What a head does at a token is measured by three numbers, each as its rank "
            "among tokens: the length of its write, the entropy of its attention over the largest, and its mean score "
            "over the keys it sees; tokens from the ninth of a window on. Position and frequency of the token in the "
            "text are taken out first (ranks, their squares and cubes). On the other half, the share of the remaining "
            "variance that the region's mean explains. Regions, means and fits all come from the first half, so a "
            "partition without meaning explains nothing, or a little less; both halves take their turn. A head's share "
            "is the mean of its three; the statistic is the median head's. The agreement of two heads of a layer "
            "compares where they write much: the product of their mean writes by region, one from each half, over that "
            "of a head with itself. It is 1 for the same regions and 0 for unrelated ones."
        ),
        control="random partitions of equal sizes; random initialisation (all twins); position and frequency taken out",
        rule=(
            "Two parts, the weaker decides. The source asks it as an open question; the parts are its second answer. "
            "'What heads do depends on the region': supported if the statistic's interval lies above "
            f"{T.regions_share}, above untrained models and above random partitions (upper ends); refuted if it lies "
            "below what untrained models reach, below the upper end of random partitions, or below "
            f"{T.regions_share} while at most {T.sites_few:.0%} of heads have such a share that is significant "
            "(Benjamini–Hochberg over heads); qualified if more heads do, which are then named, while the median lies "
            "below. 'Different heads, different regions': supported if the "
            f"agreement's interval, median layer, lies below {T.regions_alike}; refuted if above. Undecided where an "
            "interval spans its limit, with one head per layer, or with too little text: fewer than "
            f"{T.regions_documents} documents, as under --quick, or fewer than {T.tokens_least} tokens in a half of "
            "them. With few documents, regions of one half explain less of the other than they could."
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

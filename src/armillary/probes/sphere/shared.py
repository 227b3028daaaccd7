"""Do all layers share one space, or has each layer a canvas of its own?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.machinery import MODEL, NAN3, AnyInstrument, Evidence, T, weighed
from armillary.probes.sphere.gains.shared_axes import axis_overlap, gain_likeness
from armillary.probes.sphere.gains.shared_parts import UNIT, axes_part, gain_part, swap_part
from armillary.probes.sphere.gains.shared_views import headline, likeness_table, shared_lines, swap_table
from armillary.results import Claim, Control, Finding, RuleChange, Statistic

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench
    from armillary.probes.sphere.gains.gain_swaps import Swaps


@dataclass(frozen=True)
class Shared:
    """Gains and shifts of two layers change places."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.shared",
        chapter="A",
        statement="All layers share one vector space: neighbouring layers can exchange their norms' gains and shifts.",
        source="S0 against S3",
        definition=(
            "S0 says that the norms create a consistent vector space across all layers; S3 says that each norm's γ and "
            "β define a canvas of its own for each step. If the space is shared, two layers can exchange γ and β. The "
            "statistic is the change of the next-token loss when the norms of two neighbouring layers do so, at the "
            "median of three pairs spread over the depth; pairs further apart are drawn. Beside it, from weights and "
            "states: the correlation over axes of two layers' γ and of their β; and how far the strongest d/16 axes of "
            "z at two layers coincide, taken between the two halves of the documents."
        ),
        control=(
            "the same layers with the axes of their own γ and β permuted; for correlations permuted axes, for "
            "principal axes random ones and the halves of one layer. At random initialisation γ is 1 and β is 0, so "
            "neither an exchange nor a permutation changes anything"
        ),
        rule=(
            f"A pair shares its space if the exchange costs less than {T.shared_cost} nats per token, and less than "
            "the permutation, with whole intervals (corrected for the number of pairs). Supported if every pair does; "
            "refuted if at every pair the exchange costs more than the permutation; qualified if neither can be; "
            "undecided if intervals leave it open. A pair at which neither costs that much says nothing; without any "
            "other pair the claim is undecided. Documents are read in three parts, until that is settled. Ours, and "
            f"deciding nothing: neighbours' γ, and their β if there is one, correlate above {T.shared_half}; the "
            f"overlap of neighbours' axes is above {T.shared_half} of that of the two halves of one layer."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-16",
                "Qualified as soon as neither extreme is possible any more: changed after a first result was seen. "
                "builtin:gpt was undecided and became qualified; the limits did not move.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (COVARIANCES,)

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.sphere.gains.gain_swaps import passes

        return passes(anatomy)

    def experiment(self, bench: "Bench") -> "Swaps | None":
        """None where nothing can be exchanged, or where an exchange has no cost."""
        from armillary.probes.sphere.gains.gain_swaps import swap_gains

        return swap_gains(bench) if bench.scored and bench.anatomy.layers > 1 else None

    def conclude(self, evidence: Evidence, result: "Swaps | None") -> Finding:
        gains, overlap = gain_likeness(evidence), axis_overlap(evidence, MODEL)
        parts = (swap_part(result, evidence.anatomy), gain_part(gains), axes_part(overlap))
        median, permuted = (NAN3, NAN3) if result is None else (result.median("swap"), result.median("permute"))
        controls = [Control("permuted γ and β", *permuted)]
        if result is not None and result.far:
            last = result.far[-1]
            controls.append(Control(f"exchange of {last.name}", *result.cost(last)))
        return Finding(
            claim=self.claim,
            **weighed(parts, more=True),
            statistic=Statistic("cost of exchanging γ and β of neighbouring layers, median pair", *median, UNIT),
            n=0 if result is None else int(result.trials.count.sum()),
            controls=tuple(controls),
            headline=headline(result, gains),
            table=likeness_table(gains, overlap) if result is None else swap_table(result, evidence.anatomy),
            quantities=shared_lines(result, gains, overlap),
            more_tables={} if result is None else {"likeness": likeness_table(gains, overlap)},
        )

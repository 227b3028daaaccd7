"""Do all layers share one space, or has each layer a canvas of its own?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.machinery import MODEL, NAN3, AnyInstrument, Evidence, T, weighed
from armillary.probes.sphere.gains.shared_axes import axis_overlap, gain_likeness
from armillary.probes.sphere.gains.shared_parts import UNIT, axes_part, gain_part, swap_part
from armillary.probes.sphere.gains.shared_views import headline, likeness_table, shared_lines, swap_table
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic

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
        question=(
            "If all layers use the same axes for the same things, two neighbouring layers can exchange the gains and "
            "shifts of their norms. Does the model still predict as well after such an exchange?"
        ),
        definition=(
            "The change of the next-token loss when two neighbouring layers exchange the gains γ and shifts β of "
            "their norms. If all layers share one space, this should cost little. The statistic is the median of "
            "three pairs spread over the depth. Pairs further apart are shown in the figure.\n"
            "S0 says that norms create a consistent vector space across all layers. S3 says that each norm's γ and β "
            "define a separate canvas for each step.\n"
            "Also measured, from weights and states: the correlation over axes of two layers' γ, and of their β; and "
            "how much the strongest d/16 principal axes of tokens after a norm overlap between two layers (d is the "
            "width of the model), those of each layer taken from another half of the documents."
        ),
        control=(
            "the same layers with the axes of their own γ and β permuted. For correlations: permuted axes. For "
            "principal axes: random ones, and the two halves of one layer. At random initialisation γ is 1 and β is "
            "0, so neither an exchange nor a permutation changes anything"
        ),
        rule=(
            f"For each pair of neighbouring layers, the cost of the exchange is compared with {T.shared_cost} nats per "
            "token and with the cost of the permutation. A pair shares its space if the exchange costs less than "
            "both. 'More' and 'less' refer to whole intervals, corrected for the number of pairs.\n"
            "Supported if every pair shares its space.\n"
            "Refuted if at every pair the exchange costs more than the permutation, and its interval is not wholly "
            f"below {T.shared_cost} nats.\n"
            f"Qualified if neither is possible any more: at one pair the exchange costs more than {T.shared_cost} nats "
            f"or more than the permutation; and at one pair (the same or another) it costs less than {T.shared_cost} "
            "nats or less than the permutation.\n"
            "Undecided if intervals leave it open or are missing.\n"
            f"A pair is left out if neither the exchange nor the permutation costs as much as {T.shared_cost} nats, "
            "and intervals do not show which of the two costs more. If no pair is left, the claim is undecided. It "
            "does not apply to a model of one layer, or to one that predicts no next token. Documents are read in "
            "three parts, until the verdict is settled.\n"
            "Two parts are ours and decide nothing: the γ of neighbouring layers (and their β, if any) correlate "
            f"above {T.shared_half}; and their strongest axes overlap by more than {T.shared_half} of what the two "
            "halves of one layer do."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-16",
                "Qualified as soon as neither extreme is possible any more: changed after a first result was seen. "
                "builtin:gpt was undecided and became qualified; the limits did not move.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "c6676195cc3e", 1),
            Rewording("2026-11-18", "5a4f64a920a8", 1),
            Rewording("2026-11-19", "85a2425ecfdb", 1),
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

"""Do normalised features have length √d?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Flags, Floats, T, mean, name_sites
from armillary.probes.machinery.tables import cells, interval_cells, line, site_table
from armillary.probes.machinery.verdicts import missing_interval
from armillary.probes.sphere.across_sites import across_sites, arm_controls, arm_lines, by_site, decided, flagged
from armillary.results import Claim, Control, Finding, Quantity, Rewording, RuleChange, Statistic, Table, Verdict, say


@dataclass(frozen=True)
class Radius:
    """The length of every token after each norm, compared with what the norm's ε allows."""

    claim: ClassVar[Claim] = Claim(
        id="sphere.radius",
        chapter="A",
        statement="Normalised features have length √d.",
        source="S0 S1 S2 S3",
        question=(
            "After a norm, does every token have a vector of the same length, √d? If so, tokens lie on a sphere."
        ),
        definition=(
            "The length of a token's vector after a norm, compared with √d. z is the norm's output before gain and "
            "shift, d the width of the model, and r = ‖z‖/√d.\n"
            f"The statistic is the share of tokens with |r − 1| ≤ {T.radius_within:.0%}, at the norm where this "
            "share is smallest.\n"
            "Theory: a norm divides by √(v + ε), where v is the token's variance (LayerNorm) or mean square "
            "(RMSNorm). So r should be √(v/(v + ε))."
        ),
        control="the lengths of the same tokens before the norm; random initialisation; shuffled text",
        rule=(
            f"At each norm, the share of tokens with |r − 1| ≤ {T.radius_within:.0%} is compared with "
            f"{T.radius_share:.0%}. A norm passes if the whole interval of this share is at least "
            f"{T.radius_share:.0%}, and fails if it is below.\n"
            "Supported if every norm passes.\n"
            f"Qualified if some norms fail, but more than {T.sites_few:.0%} pass. The reading names those that fail.\n"
            f"Refuted if at most {T.sites_few:.0%} of norms pass. Also refuted if, at any norm, r differs from theory, "
            f"or the module's output from γz + β, by more than {T.roundings:.0f} rounding errors (4 for the output of "
            "a half-precision module).\n"
            f"Undecided if norms whose interval spans {T.radius_share:.0%} or is missing could change the verdict.\n"
            "Any norm with a small ε passes, trained or not."
        ),
        kind="definition",
        changes=(
            RuleChange("2026-11-16", "a norm passes or fails with its whole interval; before, its value alone decided"),
        ),
        rewordings=(
            Rewording("2026-11-18", "6782b5fa086d", 1),
            Rewording("2026-11-19", "64f52a483e94", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (LENGTHS,)

    def conclude(self, evidence: Evidence) -> Finding:
        near = evidence[LENGTHS][MODEL].sums("near")
        shares = by_site(evidence, near)
        value, low, high = across_sites(evidence, near, summary=np.min)
        passes, may_pass = shares[:, 1] >= T.radius_share, ~(shares[:, 2] < T.radius_share)
        failing = flagged(evidence.sites, shares[:, 0] < T.radius_share)
        wrong = _wrong_norms(evidence)
        verdict: Verdict = "refuted" if wrong else decided(_verdict, (passes,), (may_pass,))
        controls = _controls(evidence)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("tokens within 1 % of √d, worst site", value, low, high),
            n=evidence.tokens,
            controls=controls,
            reading=_reading(evidence, verdict, value, controls[0].value, failing, wrong),
            headline=_headline(verdict, value, failing, wrong),
            table=_table(evidence, shares),
            quantities=_quantities(evidence, shares),
            why=missing_interval(*shares[:, 1:].ravel()) if verdict == "undecided" else None,
        )


def _wrong_norms(evidence: Evidence) -> list[str]:
    """Sites whose radius or module output differs from theory by more than rounding explains."""
    import torch

    lengths, dtype = evidence[LENGTHS][MODEL], evidence.anatomy.dtype
    rounding = T.roundings * torch.finfo(torch.float32).eps
    # A half-precision module rounds its output once or twice; 64 of its roundings would be half the value.
    model_rounding = (T.roundings if dtype in (torch.float32, torch.float64) else 4) * torch.finfo(dtype).eps
    gaps, deviations = lengths.extremes("radius_error")[:, 1], np.array(lengths.deviations())
    return flagged(evidence.sites, (gaps > rounding) | (deviations > model_rounding))


def _verdict(passes: Flags) -> Verdict:
    if passes.mean() <= T.sites_few:
        return "refuted"
    return "supported" if passes.all() else "qualified"


def _table(evidence: Evidence, shares: Floats) -> Table:
    lengths, norms = evidence[LENGTHS][MODEL], evidence.anatomy.norms.values()
    radius, edges = lengths.sums("radius").sum(1), lengths.extremes("radius")
    deviation = np.sqrt(np.maximum(radius[:, 2] / radius[:, 0] - mean(radius) ** 2, 0))
    first, massive = (mean(lengths.sums("radius", [kind]).sum(1)) for kind in (1, 2))
    near = arm_lines(evidence, LENGTHS, lambda arm: mean(evidence[LENGTHS][arm].sums("near").sum(1)))
    at_random = near.get(RANDOM, np.full(len(evidence.sites), np.nan))
    return site_table(
        evidence.sites,
        cells("norm", "layernorm or rmsnorm", [norm.kind for norm in norms]),
        cells("eps", "the norm's ε", [norm.eps for norm in norms]),
        cells("mean_radius", "mean of ‖z‖/√d over all tokens", mean(radius), "√d"),
        cells("sd_radius", "standard deviation of ‖z‖/√d", deviation, "√d"),
        cells("min_radius", "smallest ‖z‖/√d", edges[:, 0], "√d"),
        cells("max_radius", "largest ‖z‖/√d", edges[:, 1], "√d"),
        cells("share_short", "share of tokens with ‖z‖/√d < 0.99", mean(lengths.sums("short").sum(1))),
        interval_cells("share_near", "share of tokens within 1 % of √d", shares),
        cells("theory_gap", "largest |‖z‖/√d − sqrt(v/(v+ε))|", lengths.extremes("radius_error")[:, 1], "√d"),
        cells("module_gap", "largest relative |module output − (γz + β)| on sampled tokens", lengths.deviations()),
        cells("first_radius", "mean of ‖z‖/√d at the first position", first, "√d"),
        cells("massive_radius", "mean of ‖z‖/√d of tokens with a massive activation; empty if none", massive, "√d"),
        cells(
            "share_before",
            "share of tokens whose length before the norm is within 1 % of the site's median",
            mean(lengths.sums("before_near").sum(1)),
        ),
        cells("random_share_near", "share_near at random initialisation, mean over untrained twins", at_random),
    )


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    before = across_sites(evidence, evidence[LENGTHS][MODEL].sums("before_near"))
    others = arm_controls(
        evidence, LENGTHS, lambda arm: across_sites(evidence, evidence[LENGTHS][arm].sums("near"), summary=np.min)
    )
    return (Control("before the norm (share within 1 % of the median length)", *before), *others)


def _reading(
    evidence: Evidence, verdict: Verdict, value: float, before: float, failing: list[str], wrong: list[str]
) -> str:
    if wrong:
        return f"At {name_sites(wrong)} the module does not compute the norm that its weights and ε describe."
    exact = "This follows from the norm's formula; only ε can shorten a token."
    share = f"{say(value, '.1%')} of tokens have length √d to within 1% at the worst norm. Before the norm, "
    share += f"{say(before, '.1%')} of tokens are within 1% of the median length (median site)."
    if verdict == "undecided":
        return f"{share} The intervals of some norms span {T.radius_share:.0%}. Give more text."
    if failing:
        return f"{share} ε shortens tokens at {len(failing)} of {len(evidence.sites)} norms ({name_sites(failing)})."
    short = float(mean(evidence[LENGTHS][MODEL].sums("short").sum((0, 1))))
    return f"{share} {exact} Share of tokens shorter than 0.99 √d, over all norms: {say(short, '.2g')}."


def _headline(verdict: Verdict, value: float, failing: list[str], wrong: list[str]) -> str:
    if wrong:
        return f"The module does not compute the norm that its weights describe, at {name_sites(wrong)}"
    if not failing:
        return f"Every norm puts its tokens on the sphere: {say(value, '.1%')} within 1 % of √d at the worst site"
    return f"ε shortens tokens: at the worst site {say(value, '.1%')} are within 1 % of √d ({name_sites(failing)} fail)"


def _quantities(evidence: Evidence, shares: Floats) -> tuple[Quantity, ...]:
    sites, lengths = evidence.sites, evidence[LENGTHS][MODEL]
    radius = by_site(evidence, lengths.sums("radius"))
    controls = arm_lines(evidence, LENGTHS, lambda arm: mean(evidence[LENGTHS][arm].sums("radius").sum(1)))
    before = {"before the norm": mean(lengths.sums("before_near").sum(1))}
    theory = {"√d": np.ones(len(sites))}
    return (
        line("mean radius", "mean of ‖z‖/√d over tokens", "√d", "site", sites, radius, controls, theory),
        line("share within 1 % of √d", "share of tokens with |r − 1| ≤ 0.01", "share", "site", sites, shares, before),
    )

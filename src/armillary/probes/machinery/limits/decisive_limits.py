"""Which of a rule's numbers decided? Every finding gets its limits here, the one that decided first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from armillary.probes.machinery.instrument import RANDOM
from armillary.results import Control, Finding, Limit, Part, Prediction, Statistic
from armillary.results.limit import Side

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

_ORDER = ("failed", "refuted", "undecided", "qualified", "supported")


@dataclass(frozen=True)
class Against:
    """An end of a control's interval as a limit, and what must be added to it."""

    control: str
    end: Literal["low", "value", "high"] = "high"
    margin: float = 0.0


@dataclass(frozen=True)
class Rule:
    """One comparison of a claim's rule: the statistic of `part` with a number, or with a control."""

    side: Side
    limit: float | Against
    meaning: str
    part: str = ""
    own: bool = False
    """Compare the claim's statistic, also where the part has another."""
    decides: Literal["supported", "refuted"] = "supported"


Rules = dict[str, tuple[Rule, ...]]

above, below = partial(Rule, "above"), partial(Rule, "below")
refuted_above, refuted_below = partial(above, decides="refuted"), partial(below, decides="refuted")
trained = partial(above, Against(RANDOM), "above untrained models")


def rounding(anatomy: "Anatomy") -> float:
    import torch

    from armillary.flow.laws import ROUNDINGS

    return float(ROUNDINGS[anatomy.dtype] * torch.finfo(anatomy.dtype).eps)


def with_limits(finding: Finding, anatomy: "Anatomy") -> Finding:
    """The finding with the numbers that decide it; those that only its probe knows are there already."""
    from armillary.probes.machinery.limits.comparisons import OWN, predictions, rules

    # A finding that measured nothing was compared with nothing.
    if not np.isfinite(finding.statistic.value):
        return finding
    parts = {part.name: part for part in finding.parts}
    own = OWN.get(finding.id)
    compared = [replace(rule, own=rule.own or rule.part == own) for rule in rules(anatomy).get(finding.id, ())]
    limits = [limit for rule in compared if (limit := _limit(rule, finding, parts))]
    limits += finding.limits
    prediction: Prediction | None = finding.prediction or predictions(anatomy).get(finding.id)
    return replace(finding, limits=tuple(_deciding_first(finding, limits)), prediction=prediction)


def _limit(rule: Rule, finding: Finding, parts: dict[str, Part]) -> Limit | None:
    """None where the part, its number or the control is missing."""
    part = parts.get(rule.part)
    if rule.part and (part is None or (part.verdict == "undecided" and part.statistic is None and not rule.own)):
        return None
    measured = None if part is None or rule.own else part.statistic
    if part is not None and measured is None and not rule.own:
        return None
    value = rule.limit
    if isinstance(value, Against):
        control = next((c for c in finding.controls if c.name == value.control), None)
        value = _end(control, value)
    if not np.isfinite(value) or (measured is not None and not np.isfinite(measured.value)):
        return None
    if measured is not None and _same(measured, finding.statistic):
        measured = None
    return Limit(float(value), rule.side, rule.meaning, rule.decides, rule.part, measured)


def _end(control: Control | None, against: Against) -> float:
    if control is None:
        return np.nan
    end: float = getattr(control, against.end)
    return (end if np.isfinite(end) else control.value) + against.margin


def _same(a: Statistic, b: Statistic) -> bool:
    """The same measurement under two names: two bootstraps never give one interval by chance."""
    return (a.value, a.low, a.high) == (b.value, b.low, b.high) and a.low < a.high


def _deciding_first(finding: Finding, limits: Sequence[Limit]) -> list[Limit]:
    """Limits of the weakest parts that the source asserts first; among them those that the verdict follows from, and of
    these the claim's own number before that of a part."""
    asserted = [part for part in finding.parts if part.asserted]
    verdict = min((part.verdict for part in asserted), key=_ORDER.index, default=finding.verdict)
    names = {part.name for part in asserted if part.verdict == verdict} or {""}

    def rank(limit: Limit) -> tuple[bool, int, bool]:
        return limit.part not in names, _fit(limit, finding, verdict), limit.measured is not None

    return sorted(limits, key=rank)


def _fit(limit: Limit, finding: Finding, verdict: str) -> int:
    """How well a comparison explains a verdict: 0 is best."""
    measured = finding.statistic if limit.measured is None else limit.measured
    holds = limit.holds(measured.value)
    if verdict == "undecided":
        return 0 if measured.low <= limit.value <= measured.high else 1
    if verdict == "supported":
        return 0 if holds and limit.decides == "supported" else 1
    if limit.decides == "refuted":
        return 0 if holds and verdict == "refuted" else 2
    # What a refuted claim fails comes after what refutes it.
    return 3 if holds else 0 if verdict == "qualified" else 1

"""What did a study find? Read from its folder: each arm's learning rates, losses, cost, and difference to the first."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from armillary.errors import ArmillaryError
from armillary.lab import forms
from armillary.lab.forms import read_form
from armillary.lab.study.conclusions.decisions import Decision, StudyEvidence
from armillary.lab.study.conclusions.lab_claims import LAB_CLAIMS
from armillary.lab.study.conclusions.paired_runs import PairedComparison, at_last_rate, compare
from armillary.lab.study.cost import at_equal, by_best, median_cost
from armillary.lab.study.design import CAUTIONS, UNDECIDING
from armillary.lab.study.end_states.state_folders import EndState, read_geometry
from armillary.lab.study.queue import MANIFEST, read_runs

# A learning rate is usable if its worst seed is within this many nats of the arm's best rate.
USABLE = 0.1


@dataclass(frozen=True)
class ArmOutcome:
    """One arm of a study."""

    name: str
    prediction: str
    rates: dict[float, float]
    """Learning rate → loss of the worst tuning seed; infinite where a run diverged."""
    rate: float | None
    """The rate of the paired runs."""
    losses: dict[int, float | None]
    """Seed → loss at the end; None where the run diverged."""
    best: float
    """Mean over seeds of the lowest loss during training."""
    seconds: float
    parameters: int
    curves: tuple[tuple[tuple[int, float | None], ...], ...]
    guess: float
    """Loss of a uniform guess."""
    flops: float = math.nan
    """Per token of training; NaN where runs have not recorded it."""
    step_seconds: float = math.nan

    @property
    def loss(self) -> float:
        known = [loss for loss in self.losses.values() if loss is not None]
        return fmean(known) if known else math.nan

    @property
    def usable(self) -> tuple[float, ...]:
        """Learning rates near the best one."""
        best = min(self.rates.values(), default=math.inf)
        return tuple(sorted(rate for rate, loss in self.rates.items() if loss <= best + USABLE and loss < math.inf))

    @property
    def sensitivity(self) -> float:
        """Mean over the tried rates of the loss beyond the best one's (Wortsman et al. 2023, arXiv 2309.14322); a run
        that diverged counts as a uniform guess."""
        known = [loss for loss in self.rates.values() if loss < math.inf]
        return fmean(min(loss, self.guess) for loss in self.rates.values()) - min(known) if known else math.nan

    @property
    def breadth(self) -> float:
        """Largest usable rate over the smallest."""
        return self.usable[-1] / self.usable[0] if self.usable else math.nan


@dataclass(frozen=True)
class StudyOutcome:
    """A study's arms, the first one the reference, and each other arm's paired difference to it."""

    name: str
    manifest: dict[str, Any]
    arms: tuple[ArmOutcome, ...]
    comparisons: tuple[PairedComparison, ...]
    rows: tuple[dict[str, Any], ...] = ()
    """All finished runs."""
    notes: tuple[str, ...] = ()
    """Lines that are damaged."""
    geometry: Mapping[str, EndState] = field(default_factory=dict)
    """Arm → its surveyed end state."""
    beside: "tuple[StudyOutcome, ...]" = ()
    """Studies whose arms are judged together with these."""

    @property
    def paired(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if not row["tuning"]]

    def at_equal(self, cost: str) -> dict[str, PairedComparison]:
        """Arm → its difference at equal cost, 'flops' or 'step_seconds'; without arms that have not recorded it."""
        return {comparison.arm: comparison for comparison in at_equal(self.paired, self.reference.name, cost)}

    def by_best(self) -> dict[str, PairedComparison]:
        """Arm → its difference by the best checkpoints."""
        return {comparison.arm: comparison for comparison in by_best(self.paired, self.reference.name)}

    def verdicts(self) -> dict[str, Decision]:
        """Claim → what this study and those beside it say about it; empty for a study that decides none."""
        claims = [claim for claim in LAB_CLAIMS if self.name in (claim.study, *claim.also)]
        size = _size_name(self)
        if size in UNDECIDING:
            return {claim.id: Decision("undecided", f"A study of size {size} decides nothing.", ()) for claim in claims}
        return {claim.id: claim.decide(pooled(self._of((claim.study, *claim.also)))) for claim in claims}

    def _of(self, names: Sequence[str]) -> "list[StudyOutcome]":
        """This study and those beside it that have these names, in the names' order."""
        studies = [study for study in (self, *self.beside) if study.name in names]
        return sorted(studies, key=lambda study: names.index(study.name))

    @property
    def reference(self) -> ArmOutcome:
        return self.arms[0]

    def compared(self, arm: str) -> PairedComparison | None:
        return next((comparison for comparison in self.comparisons if comparison.arm == arm), None)

    def pairing(self, arm: str) -> float:
        """Share of the variance of a difference that the shared order of the text takes away; NaN below three pairs."""
        losses, base = next(a.losses for a in self.arms if a.name == arm), self.reference.losses
        pairs = [(losses[s], base[s]) for s in losses.keys() & base.keys() if None not in (losses[s], base[s])]
        if len(pairs) < 3:
            return math.nan
        a, b = np.array(pairs, dtype=float).T
        return float(1 - (a - b).var(ddof=1) / (a.var(ddof=1) + b.var(ddof=1)))


def pooled(studies: Sequence[StudyOutcome]) -> StudyEvidence:
    """The runs of several studies of one size with the same reference; an arm of two studies counts in the first."""
    rows: list[dict[str, Any]] = []
    arms: dict[str, Any] = {}
    for study in studies:
        rows += [row for row in study.rows if row["arm"] not in arms]
        arms |= {name: arm for name, arm in study.manifest["arms"].items() if name not in arms}
    return StudyEvidence(studies[0].reference.name, rows, arms)


def together(folders: Sequence[Path]) -> StudyOutcome:
    """The study in the first folder, judged together with those in the others."""
    first, *others = map(outcome, folders)
    for folder, other in zip(folders[1:], others, strict=True):
        for what, ours, theirs in (
            ("size", _size_name(first), _size_name(other)),
            ("reference arm", first.reference.name, other.reference.name),
        ):
            if ours != theirs:
                raise ArmillaryError(
                    f"{folders[0]} has {what} {ours!r} and {folder} has {theirs!r}: losses of these two cannot be "
                    "compared. Show them one by one."
                )
    names = [study.name for study in (first, *others)]
    if len(set(names)) < len(names):
        raise ArmillaryError(f"several of the folders hold the study {max(names, key=names.count)}; give one of each.")
    return replace(first, beside=tuple(others))


def _size_name(study: StudyOutcome) -> str:
    return str(study.manifest.get("size", {}).get("name", ""))


def outcome(folder: Path) -> StudyOutcome:
    """Everything a study's folder says; runs that are missing are left out."""
    path = folder / MANIFEST
    if not os.path.lexists(path):
        raise ArmillaryError(f"{folder} holds no study: {MANIFEST} is missing; give the --out of `lab run`.")
    manifest = read_form(path, forms.MANIFEST, "run the study again")
    name = manifest["study"]
    predictions = {arm: entry["prediction"] for arm, entry in manifest["arms"].items()}
    caution = CAUTIONS.get(manifest.get("size", {}).get("name", ""))
    notes = [caution] if caution else []
    runs = read_runs(folder, notes.append)
    rows = at_last_rate(runs)
    if len(rows) < len(runs):
        notes.append(f"{len(runs) - len(rows)} paired runs are set aside: tuning gives their arms another rate now.")
    guess = math.log(manifest.get("size", {}).get("vocabulary", 8192))
    arms = [
        _arm(arm, prediction, [row for row in rows if row["arm"] == arm], guess)
        for arm, prediction in predictions.items()
    ]
    known = tuple(arm for arm in arms if arm.rates or arm.losses)
    if not known:
        raise ArmillaryError(f"{folder} has no finished run yet; `armillary lab run {name} --out {folder}` makes them.")
    paired = [row for row in rows if not row["tuning"]]
    comparisons = compare(paired, known[0].name) if paired else []
    return StudyOutcome(name, manifest, known, tuple(comparisons), tuple(rows), tuple(notes), read_geometry(folder))


def _arm(name: str, prediction: str, rows: Sequence[dict[str, Any]], guess: float) -> ArmOutcome:
    rates: dict[float, float] = {}
    for row in rows:
        if row["tuning"]:
            loss = math.inf if row["diverged"] else row["loss"]
            rates[row["rate"]] = max(loss, rates.get(row["rate"], loss))
    paired = [row for row in rows if not row["tuning"]]
    best = [row["best"] for row in paired if row["best"] is not None]
    return ArmOutcome(
        name=name,
        prediction=prediction,
        rates=dict(sorted(rates.items())),
        rate=paired[0]["rate"] if paired else None,
        losses={row["seed"]: row["loss"] for row in paired},
        best=fmean(best) if best else math.nan,
        seconds=median(row["seconds"] for row in rows) if rows else math.nan,
        parameters=rows[0]["parameters"] if rows else 0,
        curves=tuple(tuple((step, loss) for step, loss in row["curve"]) for row in paired),
        guess=guess,
        flops=median_cost(rows, name, "flops"),
        step_seconds=median_cost(rows, name, "step_seconds"),
    )

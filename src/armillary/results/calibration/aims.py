"""Is the instrument good enough? What was aimed at, and where it was missed."""

from collections.abc import Iterator
from dataclasses import dataclass

from armillary.results.calibration.counts import Calibration, Counts, commonest
from armillary.results.claim import Claim, Verdict

# Named beforehand: a claim about training may be supported on one untrained model in twenty, as any test at 5 %;
# nineteen of twenty planted effects must be found, and nineteen of twenty verdicts must be the same over seeds.
FALSE_SUPPORT = 0.05
POWER = 0.95
AGREEMENT = 0.95


@dataclass(frozen=True)
class Aim:
    """One aim, and every place where it was missed."""

    aim: str
    checked: int
    """How many claims, planted models or settings it was checked on; 0 says nothing about it."""
    missed: tuple[str, ...]

    @property
    def met(self) -> bool:
        return self.checked > 0 and not self.missed


def aims(calibration: Calibration) -> list[Aim]:
    return [_false_support(calibration), _power(calibration), _agreement(calibration)]


def _false_support(calibration: Calibration) -> Aim:
    learned = [claim for claim, kind in calibration.kinds.items() if kind == "learned"]
    measured = [(claim, counts) for claim in learned if (counts := calibration.untrained(claim)) is not None]
    missed = [
        f"{claim} (supported {counts.of('supported')} of {counts.n})"
        for claim, counts in measured
        if counts.of("supported") > FALSE_SUPPORT * counts.n
    ]
    aim = f"no claim about training supported on more than {FALSE_SUPPORT:.0%} of untrained models"
    return Aim(aim, len(measured), tuple(missed))


def _power(calibration: Calibration) -> Aim:
    checked, missed = 0, []
    for case in calibration.cases:
        counts = calibration.planted(case.name).get(case.matters)
        if counts is None:
            continue
        checked += 1
        if counts.of(case.verdict) < POWER * counts.n:
            missed.append(f"{case.name} ({case.verdict} {counts.of(case.verdict)} of {counts.n})")
    return Aim(f"planted effects found in {POWER:.0%} at the strength that matters", checked, tuple(missed))


def _agreement(calibration: Calibration) -> Aim:
    checked, missed = 0, []
    for model, text, tokens in settings(calibration):
        equal, n = agreement(calibration, model, text, tokens)
        if tokens != calibration.study.tokens[0] or n == 0:
            continue
        checked += 1
        if equal < AGREEMENT * n:
            missed.append(f"{model} on {text} ({equal} of {n} verdicts)")
    return Aim(f"{AGREEMENT:.0%} of verdicts equal over seeds at the main budget", checked, tuple(missed))


def settings(calibration: Calibration) -> Iterator[tuple[str, str, int]]:
    """(model, text, tokens) of the surveys over seeds."""
    study = calibration.study
    return ((model, text, tokens) for model in study.models for text in study.texts for tokens in study.tokens)


def agreement(calibration: Calibration, model: str, text: str, tokens: int) -> tuple[int, int]:
    """How many verdicts are their claim's commonest one at this text and budget, and of how many."""
    mine = [
        counts
        for counts in calibration.counts
        if (counts.part, counts.subject, counts.text, counts.tokens) == ("seeds", model, text, tokens)
    ]
    return sum(commonest(counts)[1] for counts in mine), sum(counts.n for counts in mine)


def by_text(calibration: Calibration, claim: str, model: str) -> dict[str, Verdict]:
    """Text → the commonest verdict at the main budget: a verdict turns with the text where these differ."""
    main = calibration.study.tokens[0]
    return {counts.text: commonest(counts)[0] for counts in calibration.seeds(claim, model) if counts.tokens == main}


def turning(calibration: Calibration | None, claim: Claim) -> str:
    """A sentence where the claim's verdict turned with the text on a model of the calibration; else nothing."""
    if calibration is None or not calibration.current(claim):
        return ""
    turned = []
    for model in calibration.study.models:
        texts = by_text(calibration, claim.id, model)
        if len(set(texts.values())) > 1:
            turned.append(f"{model}: {', '.join(f'{verdict} on {text}' for text, verdict in texts.items())}")
    return f"This verdict can turn with the text ({'; '.join(turned)})." if turned else ""


def by_budget(calibration: Calibration, claim: str, model: str) -> dict[int, Verdict]:
    """Tokens → the commonest verdict on the first text."""
    main = calibration.study.texts[0]
    return {counts.tokens: commonest(counts)[0] for counts in calibration.seeds(claim, model) if counts.text == main}


def main_counts(calibration: Calibration, claim: str, model: str) -> Counts | None:
    """Over seeds, at the first text and the main budget."""
    study = calibration.study
    where = (study.texts[0], study.tokens[0])
    mine = (c for c in calibration.seeds(claim, model) if (c.text, c.tokens) == where)
    return next(mine, None)

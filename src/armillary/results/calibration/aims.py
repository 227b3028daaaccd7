"""Is the instrument good enough? What was aimed at, and where it was missed."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from armillary.results.calibration.counts import Calibration, Counts, commonest, in_words
from armillary.results.claim import Claim, Verdict

# Named beforehand: a claim about training may be supported on one untrained model in twenty, as any test at 5 %;
# nineteen of twenty planted effects must be found, and nineteen of twenty verdicts must be the same over seeds.
FALSE_SUPPORT = 0.05
POWER = 0.95
AGREEMENT = 0.95
# One seed of ten may differ: with so few seeds, nineteen of twenty can be asked of all claims together only.
EACH_AGREEMENT = 0.9
DECIDED: tuple[Verdict, ...] = ("supported", "qualified", "refuted")


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
    return [_false_support(calibration), _power(calibration), _agreement(calibration), _each_agreement(calibration)]


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


def _each_agreement(calibration: Calibration) -> Aim:
    main = calibration.study.tokens[0]
    seed_counts = [
        counts for counts in calibration.counts if (counts.part, counts.tokens) == ("seeds", main) and counts.n
    ]
    missed = [
        f"{counts.claim} of {counts.subject} on {counts.text} "
        f"({', '.join(f'{verdict} {n}' for verdict, n in counts.verdicts.items())})"
        for counts in seed_counts
        if commonest(counts)[1] < EACH_AGREEMENT * counts.n
    ]
    aim = f"each claim's verdict equal with {EACH_AGREEMENT:.0%} of seeds, on each model and text at the main budget"
    return Aim(aim, len(seed_counts), tuple(missed))


def settings(calibration: Calibration) -> Iterator[tuple[str, str, int]]:
    """(model, text, tokens) of the surveys over seeds."""
    study = calibration.study
    return ((model, text, tokens) for model in study.models for text in study.texts for tokens in study.tokens)


def agreement(calibration: Calibration, model: str, text: str, tokens: int) -> tuple[int, int]:
    """How many verdicts are their claim's commonest one at this text and budget, and of how many."""
    model_counts = _over_claims(calibration, model, text, tokens)
    return sum(commonest(counts)[1] for counts in model_counts), sum(counts.n for counts in model_counts)


def silent(calibration: Calibration, model: str, text: str, tokens: int) -> dict[str, int]:
    """Why → how many runs could not have given a verdict at this text and budget."""
    total: Counter[str] = Counter()
    for counts in _over_claims(calibration, model, text, tokens):
        total.update(counts.silent or {})
    return dict(total.most_common())


def _over_claims(calibration: Calibration, *setting: str | int) -> list[Counts]:
    every = (counts for counts in calibration.counts if counts.part == "seeds")
    return [counts for counts in every if (counts.subject, counts.text, counts.tokens) == setting]


def by_text(calibration: Calibration, claim: str, model: str) -> dict[str, Counts]:
    """Text → the counts at the main budget."""
    main = calibration.study.tokens[0]
    return {counts.text: counts for counts in calibration.seeds(claim, model) if counts.tokens == main}


def turned(calibration: Calibration, claim: str, model: str) -> dict[str, str]:
    """Text → its verdict, where the verdict turned with the text; else nothing.

    A text on which it is undecided, or on which two verdicts tie, turns nothing: the seed decides there.
    """
    leading = {text: commonest(counts)[0] for text, counts in by_text(calibration, claim, model).items()}
    decided = {text: verdicts[0] for text, verdicts in leading.items() if verdicts in {(v,) for v in DECIDED}}
    return dict(decided) if len(set(decided.values())) > 1 else {}


def turning(calibration: Calibration | None, claim: Claim, verdict: Verdict, of_text: bool = True) -> str:
    """A sentence where the claim's verdict turned with the text on a model of the calibration; else nothing.

    A finding that is undecided has no verdict that could turn, and one from a stored table depends on no text.
    """
    if calibration is None or verdict not in DECIDED or not of_text or not calibration.current(claim):
        return ""
    each = {model: turned(calibration, claim.id, model) for model in calibration.study.models}
    turns = [
        f"{model}: {', '.join(f'{v} on {text}' for text, v in texts.items())}" for model, texts in each.items() if texts
    ]
    return f"This verdict can turn with the text ({'; '.join(turns)})." if turns else ""


def by_budget(calibration: Calibration, claim: str, model: str) -> dict[int, str]:
    """Tokens → the commonest verdict on the first text."""
    main = calibration.study.texts[0]
    return {counts.tokens: in_words(counts) for counts in calibration.seeds(claim, model) if counts.text == main}


def main_counts(calibration: Calibration, claim: str, model: str) -> Counts | None:
    """Over seeds, at the first text and the main budget."""
    study = calibration.study
    where = (study.texts[0], study.tokens[0])
    matching = (c for c in calibration.seeds(claim, model) if (c.text, c.tokens) == where)
    return next(matching, None)

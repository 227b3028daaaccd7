"""How often did each verdict come out? The runs of a study, counted by claim and setting."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from armillary.errors import OutputError
from armillary.results.calibration.run_list import CalibrationStudy, PartName, Planted, Task
from armillary.results.calibration.runs import CalibrationRun
from armillary.results.calibration.wilson import wilson
from armillary.results.claim import VERDICTS, Claim, Verdict, Why

# Such a run read too little, or the claim is not about such a model: it says nothing of the rule.
SILENT = (Why.TOO_LITTLE_TEXT, Why.NO_INTERVAL, Why.NOT_APPLICABLE, Why.NO_CHECKPOINTS, Why.NOT_AFFORDED)


@dataclass(frozen=True)
class Counts:
    """How often each verdict of one claim came out in one setting."""

    claim: str
    part: PartName
    subject: str
    verdicts: Mapping[Verdict, int]
    text: str = ""
    tokens: int = 0
    strength: float = 1.0
    silent: Mapping[str, int] | None = None
    """Why → runs that could not have given a verdict, which `verdicts` leaves out. None in an older file, which
    counted them as undecided."""

    @property
    def n(self) -> int:
        """Runs that could have given a verdict."""
        return sum(self.verdicts.values())

    @property
    def apart(self) -> int:
        """Runs that could not."""
        return sum((self.silent or {}).values())

    def of(self, verdict: Verdict) -> int:
        return self.verdicts.get(verdict, 0)

    def rate(self, verdict: Verdict) -> tuple[float, float, float]:
        """The share of a verdict, with Wilson's interval."""
        hits, n = self.of(verdict), self.n
        return (hits / n if n else float("nan"), *wilson(hits, n))


def commonest(counts: Counts) -> tuple[tuple[Verdict, ...], int]:
    """The verdicts that came out most often, several where they tie, and how often each did.

    >>> commonest(Counts("a.b", "seeds", "m", {"refuted": 2, "supported": 2, "undecided": 1}))
    (('supported', 'refuted'), 2)
    """
    most = max(counts.verdicts.values(), default=0)
    return tuple(verdict for verdict in VERDICTS if most and counts.of(verdict) == most), most


def in_words(counts: Counts) -> str:
    """The commonest verdict; a tie as such.

    >>> in_words(Counts("a.b", "seeds", "m", {"refuted": 5, "undecided": 5}))
    'refuted 5, undecided 5'
    """
    verdicts, most = commonest(counts)
    if len(verdicts) == 1:
        return verdicts[0]
    return ", ".join(f"{verdict} {most}" for verdict in verdicts) or "no verdict possible"


def summed(several: Sequence[Counts]) -> Counts:
    """All of them together, whatever their subjects."""
    total: Counter[Verdict] = Counter()
    silent: Counter[str] = Counter()
    for counts in several:
        total.update(counts.verdicts)
        silent.update(counts.silent or {})
    ordered = {verdict: total[verdict] for verdict in VERDICTS if total[verdict]}
    known = all(counts.silent is not None for counts in several)
    return replace(several[0], subject="", text="", verdicts=ordered, silent=dict(silent) if known else None)


@dataclass(frozen=True)
class UntrainedReading:
    """What the reading of a claim about training says where there was no training."""

    claim: str
    verdict: Verdict
    subject: str
    seed: int
    reading: str


@dataclass(frozen=True)
class Calibration:
    """The counts of a study, and how it was made."""

    study: CalibrationStudy
    counts: tuple[Counts, ...]
    kinds: Mapping[str, str]
    """Claim → kind, in the order of the chapters."""
    cases: tuple[Planted, ...] = ()
    readings: tuple[UntrainedReading, ...] = ()
    runs: int = 0
    errors: tuple[str, ...] = ()
    """Runs that raised: the task, and what it raised."""
    rules_version: str = ""
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Architecture → the untrained models' layers, width and heads."""
    rules: Mapping[str, str] = field(default_factory=dict)
    """Claim → digest of its rule when it was measured."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Text → digest of what was read; empty in an older file."""

    def current(self, claim: Claim) -> bool:
        """Was the claim measured by its rule of today, in whatever words?"""
        return claim.id in self.rules and claim.same_rule(self.rules[claim.id])

    def in_words_of(self, claims: Iterable[Claim]) -> "Calibration":
        """With the digests of today's words where the rule is the same."""
        known = {claim.id: claim.rule_digest for claim in claims if self.current(claim)}
        return replace(self, rules={**self.rules, **known})

    def untrained(self, claim: str) -> Counts | None:
        """On all untrained models."""
        untrained = [counts for counts in self.counts if counts.part == "untrained" and counts.claim == claim]
        return summed(untrained) if untrained else None

    def seeds(self, claim: str, model: str) -> list[Counts]:
        """Over seeds, by text and budget."""
        by_seed = (counts for counts in self.counts if counts.part == "seeds" and counts.claim == claim)
        return [counts for counts in by_seed if counts.subject == model]

    def planted(self, case: str) -> dict[float, Counts]:
        """Strength → counts, of one planted model."""
        planted = (counts for counts in self.counts if counts.part == "planted" and counts.subject == case)
        return {counts.strength: counts for counts in planted}

    def in_order(self, claims: Sequence[str]) -> "Calibration":
        """With the claims in this order; one that is not named any more is left out."""
        kinds = {claim: self.kinds[claim] for claim in claims if claim in self.kinds}
        return replace(
            self,
            study=replace(self.study, claims=tuple(kinds)),
            kinds=kinds,
            counts=tuple(counts for claim in kinds for counts in self.counts if counts.claim == claim),
            cases=tuple(case for claim in kinds for case in self.cases if case.claim == claim),
            readings=tuple(reading for claim in kinds for reading in self.readings if reading.claim == claim),
        )


def count_runs(
    runs: Sequence[CalibrationRun], study: CalibrationStudy, kinds: Mapping[str, str], cases: Sequence[Planted] = ()
) -> Calibration:
    """The calibration that follows from runs; `kinds` and `cases` say what the claims and planted models are."""
    seen: dict[tuple[str, PartName, str, str, int, float], Counter[Verdict]] = {}
    silent: dict[tuple[str, PartName, str, str, int, float], Counter[str]] = {}
    # In the order of the study, whatever order the runs ended in.
    order = {task.key: place for place, task in enumerate(study.tasks(cases))}
    finished = sorted((run for run in runs if not run.error), key=lambda run: order[run.task.key])
    for claim in kinds:
        for run in finished:
            if claim not in run.claims:
                continue
            setting, outcome = (claim, *_setting(run.task)), run.claims[claim]
            verdicts, apart = seen.setdefault(setting, Counter()), silent.setdefault(setting, Counter())
            # A planted effect has to be found: a run that could not find it counts against the instrument.
            if run.task.part != "planted" and outcome.why in _SILENT_NAMES:
                apart[str(outcome.why)] += 1
            else:
                verdicts[outcome.verdict] += 1
    counts = [
        Counts(*setting[:3], {v: verdicts[v] for v in VERDICTS if verdicts[v]}, *setting[3:], dict(silent[setting]))
        for setting, verdicts in seen.items()
    ]
    return Calibration(
        study=study,
        counts=tuple(counts),
        kinds=kinds,
        cases=tuple(case for case in cases if case.claim in kinds),
        readings=tuple(_readings(finished, kinds)),
        runs=len(runs),
        errors=tuple(f"{run.task.key}: {run.error}" for run in runs if run.error),
    )


def joined(earlier: Calibration, later: Calibration) -> Calibration:
    """Two calibrations that were made alike, as one; a claim of both counts as in the later one.

    A later one of planted models alone leaves what the earlier one found on untrained models and over seeds.
    """
    planted_alone = not later.study.untrained and not later.study.seeds
    if planted_alone and (other := [c for c, rule in later.rules.items() if earlier.rules.get(c) != rule]):
        raise OutputError(f"{', '.join(other)}: the rule was changed since the whole study; make that again.")
    alike = ("planted",) if planted_alone else ("models", "architectures", "untrained", "seeds", "planted", "texts")
    for name in (*alike, "tokens", "quick"):
        if getattr(earlier.study, name) != getattr(later.study, name):
            before, after = getattr(earlier.study, name), getattr(later.study, name)
            raise OutputError(f"the calibrations differ in {name} ({before} and {after}); make both alike.")
    known = earlier.texts.keys() & later.texts.keys() if not planted_alone else set()
    if other := sorted(name for name in known if earlier.texts[name] != later.texts[name]):
        raise OutputError(
            f"the calibrations read other texts under the same name ({', '.join(other)}); make both alike."
        )
    if earlier.shapes != later.shapes:
        raise OutputError("the calibrations differ in the untrained shapes; make both alike.")
    if planted_alone and (unknown := [claim for claim in later.kinds if claim not in earlier.kinds]):
        raise OutputError(f"{', '.join(unknown)}: only planted models were measured; make the whole study.")
    staying = [claim for claim in earlier.kinds if planted_alone or claim not in later.kinds]
    # A version is that of all rules together; by its digest a claim is known to stand or to be of an earlier rule.
    nameless = [claim for claim in staying if claim not in earlier.rules]
    if earlier.rules_version != later.rules_version and nameless:
        raise OutputError(
            "the calibrations differ in the rules' version, and the earlier one does not say by which rule it "
            f"measured {', '.join(nameless)}; make both alike."
        )
    again = [claim for claim in later.kinds if claim not in staying]
    # Counts of planted models come from the later calibration for all its claims.
    old = [c for c in earlier.counts if c.claim in staying and not (c.part == "planted" and c.claim in later.kinds)]
    return replace(
        later,
        study=replace(earlier.study, claims=(*staying, *again)),
        kinds={**{claim: earlier.kinds[claim] for claim in staying}, **later.kinds},
        rules={**earlier.rules, **later.rules},
        texts=earlier.texts if planted_alone else {name: earlier.texts[name] for name in known},
        counts=(*old, *later.counts),
        cases=(*(case for case in earlier.cases if case.claim not in later.kinds), *later.cases),
        readings=(*(reading for reading in earlier.readings if reading.claim in staying), *later.readings),
        runs=earlier.runs + later.runs,
        errors=(*earlier.errors, *later.errors),
    )


_SILENT_NAMES = tuple(why.name for why in SILENT)


def _setting(task: Task) -> tuple[PartName, str, str, int, float]:
    """Untrained models are counted together whatever text they read."""
    if task.part == "untrained":
        return task.part, task.subject, "", task.tokens, task.strength
    return task.part, task.subject, task.text, task.tokens, task.strength


def _readings(runs: Sequence[CalibrationRun], kinds: Mapping[str, str]) -> Iterator[UntrainedReading]:
    """The first reading of every verdict in favour of a learned claim on an untrained model."""
    known: set[tuple[str, Verdict]] = set()
    for claim in (claim for claim, kind in kinds.items() if kind == "learned"):
        for run in runs:
            outcome = run.claims.get(claim)
            if run.task.part != "untrained" or outcome is None or outcome.verdict not in ("supported", "qualified"):
                continue
            if (claim, outcome.verdict) not in known:
                known.add((claim, outcome.verdict))
                yield UntrainedReading(claim, outcome.verdict, run.task.subject, run.task.seed, outcome.reading)

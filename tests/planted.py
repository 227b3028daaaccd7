"""The evidence that a survey would gather of planted models, and what it would conclude."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from armillary.anatomy import Anatomy
from armillary.flow import controls
from armillary.flow.tokens import Corpus
from armillary.probes import PROBES
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.instrument import AnyInstrument
from armillary.probes.machinery.probe import AnyProbe, Experimenter
from armillary.probes.machinery.shared_pass import gather
from armillary.results import VERDICTS, Finding
from armillary.specimens.planted import CASES
from armillary.specimens.planted import case as cases
from armillary.specimens.planted.case import Case, probe_of
from armillary.views.text.strip_scale import compared


def instruments_of(chapters: str) -> tuple[AnyInstrument, ...]:
    """What the probes of these chapters read."""
    probes = [probe for probe in PROBES if probe.claim.chapter in chapters]
    return tuple(dict.fromkeys(instrument for probe in probes for instrument in probe.instruments))


INSTRUMENTS = instruments_of("ABCDEFH")


def evidence(anatomy: Anatomy, text: Corpus, chapters: str = "ABCDEFH") -> Evidence:
    """What a survey of these chapters gathers with every instrument of the shared pass."""
    return gather(anatomy, text, instruments_of(chapters))


def weights(anatomy: Anatomy) -> Evidence:
    """What a survey of the weights alone gathers, untrained twins among it."""
    return gather(anatomy, None, ())


def concluded(probe: AnyProbe, gathered: Evidence) -> Finding:
    """What a probe concludes; one that experiments does so on a bench of its own."""
    if not isinstance(probe, Experimenter):
        return probe.conclude(gathered)
    bench = bench_of(gathered)
    bench.prove()
    result = probe.experiment(bench)
    bench.prove()
    return probe.conclude(gathered, result)


def bench_of(gathered: Evidence) -> Bench:
    assert gathered.corpus is not None
    return Bench(gathered.anatomy, gathered.corpus, gathered.untrained, gathered.seed)


@contextmanager
def twins_that_decide(probe: AnyProbe) -> Iterator[None]:
    """Two untrained models in place of five, unless the model must beat them: they are shown, and decide nothing.

    Most passes of a planted model are those of its untrained twins.
    """
    with pytest.MonkeyPatch.context() as patch:
        if probe.claim.kind != "learned":
            patch.setattr(controls, "TWINS", ((float("inf"), 2),))
        yield


def tried(probe: AnyProbe, anatomy: Anatomy, text: Corpus) -> Finding:
    """What a probe concludes from its instruments, or from its own passes."""
    with twins_that_decide(probe):
        return concluded(probe, gather(anatomy, text, probe.instruments))


def conclude(case: Case, seed: int = 0) -> Finding:
    """What a survey would conclude about the case's claim."""
    with twins_that_decide(probe_of(case.planted.claim)):
        return cases.conclude(case, seed=seed)


SECOND_READING = {
    *("cycle.isotropy", "sphere.contrast", "sphere.shared", "qk.subjects", "words.context", "stability.generation"),
    *("stability.positions", "ffn.store", "ffn.write", "heads.language", "heads.emerge", "heads.regions"),
    "axes.privileged",
}
"""Claims whose planted models are in the files tests/test_second_*.py."""


def first_reading(cases: Iterable[Case]) -> list[Case]:
    return [case for case in cases if case.planted.claim not in SECOND_READING]


def name_of(case: Case) -> str:
    return case.planted.name


def case_of(name: str) -> Case:
    return next(case for case in CASES if name_of(case) == name)


@cache
def finding_of(name: str) -> Finding:
    """What is concluded about a case, computed once for all tests of a file."""
    return conclude(case_of(name))


def disagreeing(finding: Finding) -> list[str]:
    """Comparisons that contradict the verdict of what they decide; the law is that there are none.

    What is supported lies on the right side of all its limits. What is refuted lies on the wrong side of one at least,
    because a rule may ask for several things.
    """
    verdicts = {"": finding.verdict} | {part.name: part.verdict for part in finding.parts}
    wrong, speaks_against = [], dict.fromkeys((limit.part for limit in finding.limits), False)
    for limit in finding.limits:
        measured = finding.statistic if limit.measured is None else limit.measured
        for_it = limit.holds(measured.value) == (limit.decides == "supported")
        speaks_against[limit.part] |= not for_it
        if verdicts[limit.part] == "supported" and not for_it:
            wrong.append(f"{limit.part or finding.id} is supported, and yet: {compared(finding, limit)}")
    refuted = [name for name, against in speaks_against.items() if verdicts[name] == "refuted" and not against]
    return wrong + [f"{name or finding.id} is refuted, and no limit says so" for name in refuted]


def resting_on_open_intervals(finding: Finding) -> list[str]:
    """Verdicts that rest on an interval across its limit; the law is that there are none.

    Supported needs every limit passed with the whole interval. Refuted needs one that fails, or one that refutes, with
    the whole interval. Qualified needs one that fails so, unless places are counted: then each of them has its own.
    """
    verdicts = {"": finding.verdict} | {part.name: part.verdict for part in finding.parts}
    sides: dict[str, list[tuple[str, bool | None]]] = {}
    for limit in finding.limits:
        measured = finding.statistic if limit.measured is None else limit.measured
        if limit.side == "at" or math.isnan(measured.low):
            continue
        ends = [bool(limit.holds(end)) for end in (measured.low, measured.high)]
        side = ends[0] if ends[0] == ends[1] else None
        sides.setdefault(limit.part, []).append((limit.decides, side))
    wrong = []
    for part, compared_ in sides.items():
        passed = [side for decides, side in compared_ if decides == "supported"]
        against = False in passed or ("refuted", True) in compared_
        name = f"{finding.id} {part}".strip()
        verdict, places = verdicts[part], name in BY_PLACE
        if (
            (verdict == "supported" and None in passed and not places)
            or (verdict == "refuted" and not against and not places)
            or (verdict == "qualified" and not against and None in passed and not places and name not in QUALIFIED)
        ):
            wrong.append(f"{finding.id}, {part or 'as a whole'}: {verdict} although an interval spans its limit")
    return wrong


BY_PLACE = {
    # Sites, heads or pairs of layers are compared one by one, each with its own interval, and counted; the statistic
    # shown beside the limit is that of the median one.
    "sphere.shared neighbours can exchange gains and shifts",
    "others.brody one query attends to all keys alike",
    # No rise of the size that matters: the whole interval lies within ±0.05, and early heads are counted.
    "vo.subjects more so than earlier heads",
}

QUALIFIED = {
    # The median block or sublayer supports and refutes; where some places surely hold and others surely do not, the
    # part is qualified wherever the median lies.
    "cycle.isotropy the projection alone symmetrises",
    "others.anisotropy a narrow cone",
}


def whole(finding: Finding) -> None:
    """Every cell is a number or a word, every column is described, and the interval contains the value."""
    assert finding.verdict in VERDICTS and finding.reading and finding.headline
    assert (finding.why is not None) == (finding.verdict == "undecided")
    for table in (finding.table, *finding.more_tables.values()):
        assert all(column.meaning for column in table.columns)
        for cell in (cell for row in table.rows for cell in row):
            assert not (isinstance(cell, float) and math.isnan(cell)), finding.claim.id
    if finding.verdict != "undecided":
        assert finding.controls and finding.quantities and finding.table.rows and finding.n > 0
        assert finding.statistic.low <= finding.statistic.value + 1e-9
        assert finding.statistic.value <= finding.statistic.high + 1e-9
    assert not disagreeing(finding)
    assert not resting_on_open_intervals(finding)
    assert finding.plot() is not None

"""Does a survey of the default model still give the verdicts and numbers that a person last read?"""

import json
import re

import pytest
from golden.make import GOLDEN, SETTINGS, record
from golden.rules import FLOORS, LOOSE, ROUNDING, SHARED, cells, expected, unsigned
from planted import disagreeing

import armillary
from armillary.probes import PROBES
from armillary.views.text.strip_scale import comparison

# At most this share of the numbers may be so uncertain that a change of 1 % of them is not noticed.
UNCERTAIN = 0.05


@pytest.fixture(scope="module")
def counts():
    return []


@pytest.fixture(scope="module")
def survey(counts):
    return armillary.survey(progress=False, tell=lambda s: counts.append(len(s)), **SETTINGS)


@pytest.fixture(scope="module")
def findings(survey):
    return list(survey)


def test_claims_are_told_one_by_one_after_the_plan(survey, counts):
    assert counts == list(range(len(survey) + 1))


def test_all_claims_are_here(findings):
    assert [finding.id for finding in findings] == [probe.claim.id for probe in PROBES]


def test_every_decided_finding_names_the_limit_that_decides(findings):
    """And the verdict lies on its side: what is supported beyond all its limits, what is refuted not beyond one."""
    for finding in findings:
        assert not disagreeing(finding)
        if finding.verdict not in ("undecided", "failed"):
            first = finding.limits[0]
            deciding = {part.verdict for part in finding.parts if part.name == first.part} or {finding.verdict}
            assert deciding == {finding.verdict}, f"{finding.id}: {comparison(finding)} does not decide it"
            assert comparison(finding)


def test_negative_numbers_are_told_with_a_minus(findings):
    text = " ".join(text for f in findings for text in (f.reading, f.headline, *f.notes))
    assert re.search(r"−\d", text)
    assert not re.search(r"(^|\s|\()-\d", text)


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text("utf-8"))


@pytest.fixture(scope="module")
def numbers(golden):
    return expected(golden["claims"])


def test_the_model_is_the_one(survey, golden):
    assert survey.model.fingerprint == golden["model"]


def test_the_verdicts_stand(findings, golden):
    verdicts = {claim: parts["verdict"] for claim, parts in golden["claims"].items()}
    assert {finding.id: finding.verdict for finding in findings} == verdicts


def test_the_numbers_stand(findings, numbers):
    measured = cells(record(findings))
    assert not set(numbers) - set(measured)
    assert not {name: (measured[name], number) for name, number in numbers.items() if not number.agrees(measured[name])}


def test_the_golden_numbers_agree_with_themselves(golden, numbers):
    assert all(numbers[name].agrees(cell) for name, cell in cells(golden["claims"]).items())


@pytest.mark.parametrize("factor", [1.01, 0.99])
def test_a_change_of_one_percent_is_noticed(golden, numbers, factor):
    """Every statistic, every control and every cell that is a mean or a ratio, one at a time."""
    decisive = {
        name: number
        for name, number in numbers.items()
        if number.rule in ("interval", "relative") and number.value and not name.endswith(("low", "high"))
    }
    blind = {name for name, number in decisive.items() if number.agrees(number.value * factor)}
    floored = {name for name in blind if _column(name) in FLOORS}
    assert blind - floored <= unsigned(golden["claims"])
    assert len(blind) < UNCERTAIN * len(decisive)
    assert len(decisive) > 2500


def test_a_change_of_a_count_a_flag_or_an_empty_cell_is_noticed(numbers):
    exact = [number for number in numbers.values() if number.rule == "exact"]
    assert len(exact) > 500
    for number in exact:
        if number.value is None:
            assert not number.agrees(0.0)
        else:
            assert not number.agrees(not number.value if isinstance(number.value, bool) else number.value + 1)
        assert number.value is None or not number.agrees(None)


def test_an_effect_is_not_taken_for_rounding(numbers):
    """What theory sets to 0 may have any size that rounding explains; a ten-thousandth is no rounding."""
    units = {"stability.prefix": 2.0**23, "stability.drift": 57.3}
    rounding = {name: number for name, number in numbers.items() if number.rule == "rounding"}
    assert len(rounding) > 200
    for name, number in rounding.items():
        assert not number.agrees(1e-4 * units.get(name.split("/")[0], 1.0)), name


def test_the_rules_name_numbers_that_exist(golden):
    named = {f"{claim}/{column}" for claim, parts in golden["claims"].items() for column in parts["columns"]}
    named |= {f"{claim}/statistic" for claim in golden["claims"]}
    named |= {f"{claim}/control/{name}" for claim, parts in golden["claims"].items() for name in parts["controls"]}
    shared = {f"{key.split('/')[0]}/{column}" for key, column in SHARED.items()}
    assert not {*ROUNDING, *FLOORS, *SHARED, *shared} - named
    assert all(any(key.endswith(end) for key in named) for end in LOOSE)


def _column(name):
    return f"{name.split('/')[0]}/{name.rsplit('/', 1)[1]}"

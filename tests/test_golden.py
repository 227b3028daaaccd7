"""Does a survey of the default model still say what it said when a person last read it?"""

import json
import math
import re

import pytest
from golden.make import GOLDEN, PARTS, numbers, verdicts

import armillary
from armillary.probes import PROBES

# Ten times the spread that four runs showed (threads, instruction sets); where they agreed to the bit, rounding.
SPREADS, ROUNDING = 10, 1e-6


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def surveys(told):
    return [
        armillary.survey(device="cpu", progress=False, tell=lambda s: told.append(len(s)), **part) for part in PARTS
    ]


@pytest.fixture(scope="module")
def findings(surveys):
    return [finding for survey in surveys for finding in survey]


def test_claims_are_told_one_by_one_after_the_plan(surveys, told):
    assert told == [count for survey in surveys for count in range(len(survey) + 1)]


def test_all_claims_are_here(findings):
    assert [finding.id for finding in findings] == [probe.claim.id for probe in PROBES]


def test_negative_numbers_are_told_with_a_minus(findings):
    told = " ".join(text for f in findings for text in (f.reading, f.headline, *f.notes))
    assert re.search(r"−\d", told)
    assert not re.search(r"(^|\s|\()-\d", told)


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text("utf-8"))


def test_the_model_is_the_one(surveys, golden):
    assert {survey.model["fingerprint"] for survey in surveys} == {golden["model"]}


def test_the_verdicts_stand(findings, golden):
    assert verdicts(findings) == golden["verdicts"]


def test_the_numbers_stand(findings, golden):
    found = numbers(findings)
    assert set(golden["numbers"]) <= set(found)
    wrong = {name: (found[name], row) for name, row in golden["numbers"].items() if not same(found[name], *row)}
    assert not wrong


def same(found, value, spread):
    if value is None or math.isnan(found):
        return value is None and math.isnan(found)
    return abs(found - value) <= SPREADS * spread + ROUNDING * abs(value)


@pytest.mark.parametrize("factor", [1.001, 0.999])
def test_a_number_that_moved_is_noticed(golden, factor):
    told = {name: row for name, row in golden["numbers"].items() if row[0]}
    blind = [name for name, (value, spread) in told.items() if same(value * factor, value, spread)]
    assert len(blind) < 0.1 * len(told)

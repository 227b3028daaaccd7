"""Does the default survey still say what it said when a person last read it?"""

import json
import math

import pytest
from golden.make import GOLDEN, numbers, verdicts

import armillary

# Ten times the spread that four runs showed (threads, instruction sets); where they agreed to the bit, rounding.
SPREADS, ROUNDING = 10, 1e-6


@pytest.fixture(scope="module")
def survey():
    return armillary.survey(progress=False)


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text("utf-8"))


def test_the_model_is_the_one(survey, golden):
    assert survey.model["fingerprint"] == golden["model"]


def test_the_verdicts_stand(survey, golden):
    assert verdicts(survey) == golden["verdicts"]


def test_the_numbers_stand(survey, golden):
    found = numbers(survey)
    assert set(found) == set(golden["numbers"])
    wrong = {
        name: (found[name], row["value"])
        for name, row in golden["numbers"].items()
        if not same(found[name], row["value"], row["spread"])
    }
    assert not wrong


def same(found, value, spread):
    if value is None or math.isnan(found):
        return value is None and math.isnan(found)
    # Sums that cancel (variance along 1 under LayerNorm) are rounding themselves: no digit of theirs is stable.
    if max(abs(found), abs(value)) < 1e-9:
        return True
    return found == value or abs(found - value) <= SPREADS * spread + ROUNDING * abs(value)


@pytest.mark.parametrize("factor", [1.001, 0.999])
def test_a_number_that_moved_is_noticed(golden, factor):
    moved = [
        name
        for name, row in golden["numbers"].items()
        if row["value"] and abs(row["value"]) > 1e-9 and not same(row["value"] * factor, row["value"], row["spread"])
    ]
    told = [name for name, row in golden["numbers"].items() if row["value"] and abs(row["value"]) > 1e-9]
    assert len(moved) > 0.9 * len(told)

"""Every statement of the sources has an answer on docs/coverage.md, and every claim its row in docs/prior-work.md."""

import json
import re
import runpy
from pathlib import Path

import pytest

from armillary.cli import main
from armillary.lab.study.arms import STUDIES
from armillary.probes import PROBES
from armillary.results.claim import SOURCES

DOCS = Path(__file__).parent.parent / "docs"
COVERAGE = runpy.run_path(str(DOCS / "coverage.py"))
DATA = json.loads(COVERAGE["DATA"].read_text("utf-8"))
ITEMS, PLANNED = DATA["items"], set(DATA["planned"])
REGISTERED = COVERAGE["registered"]()
PRIOR_WORK = (DOCS / "prior-work.md").read_text("utf-8")
WRITE = "run `make docs-coverage`"


def test_the_page_is_what_the_script_writes():
    assert COVERAGE["PAGE"].read_text("utf-8") == COVERAGE["rendered"](DATA, REGISTERED), WRITE


def test_no_claim_that_exists_is_marked_as_planned():
    marked = sorted(PLANNED & set(REGISTERED))
    assert not marked, f"{', '.join(marked)} exist now and lose the mark 'planned': {WRITE}"


def test_a_planned_claim_that_comes_to_exist_changes_the_page():
    data = {"planned": ["lab.x"], "items": [{"source": "S0", "section": "1", "says": "So.", "claims": ["lab.x"]}]}
    assert "`lab.x` (planned)." in COVERAGE["rendered"](data, {})
    assert "[`lab.x`](sphere.md)." in COVERAGE["rendered"](data, {"lab.x": "A"})


def test_every_claim_named_exists_or_is_planned():
    named = {claim for item in ITEMS for claim in item.get("claims", ())}
    assert named <= set(REGISTERED) | PLANNED
    assert named >= PLANNED, "a planned claim answers no statement"


@pytest.mark.parametrize("claim", [probe.claim for probe in PROBES], ids=lambda claim: claim.id)
def test_every_claim_of_a_source_answers_a_statement_of_it(claim):
    for source in re.findall(r"\bS\d\b", claim.source):
        answered = [item for item in ITEMS if item["source"] == source and claim.id in item.get("claims", ())]
        assert answered, f"no statement of {source} in docs/coverage.json names {claim.id}"


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["says"][:40])
def test_every_statement_has_an_answer(item):
    assert set(item) <= {"source", "section", "says", "note", *COVERAGE["ANSWERS"]}
    assert item["source"] in SOURCES
    assert item["section"]
    assert item["says"][-1] in ".?"
    assert any(item.get(kind) for kind in COVERAGE["ANSWERS"])
    assert set(item.get("studies", ())) <= set(STUDIES)
    assert {command.split()[0] for command in item.get("commands", ())} <= set(main.commands)
    assert all((DOCS / page).is_file() for page in item.get("pages", ()))
    assert COVERAGE["status"](item, PLANNED) in COVERAGE["STATUSES"]


def test_statements_are_told_apart():
    statements = [(item["source"], item["says"]) for item in ITEMS]
    assert len(set(statements)) == len(statements)
    assert {source for source, _ in statements} == set(SOURCES)


def test_status():
    def status(**item):
        return COVERAGE["status"](item, {"lab.x"})

    assert status(claims=["sphere.radius"]) == status(pages=["lab.md"], because="…") == "answered"
    assert status(claims=["sphere.radius", "lab.x"]) == status(commands=["paper"], missing="…") == "in part"
    assert status(claims=["lab.x"]) == status(claims=["lab.x"], missing="…") == "planned"
    assert status(because="…") == "cannot be decided"
    assert status(missing="…") == "not yet"


def test_prior_work_has_one_row_for_every_claim():
    rows = re.findall(r"^\| `([\w.-]+)` \|", PRIOR_WORK, re.MULTILINE)
    assert len(set(rows)) == len(rows)
    assert set(rows) == set(REGISTERED) | PLANNED


def test_prior_work_lists_every_work_that_it_cites_and_no_other():
    text, references = PRIOR_WORK.split("## References\n")
    cited = {match[0] for match in re.finditer(r"\b[^\W\d][\w-]+'? (19|20)\d\d\b", text)}
    listed = {
        f"{re.split('[, ]', entry)[0]} {re.search(r'(19|20)[0-9][0-9](?=[.])', entry)[0]}"
        for entry in re.findall(r"^- (.+)", references, re.MULTILINE)
    }
    assert cited == {entry.lstrip("'") for entry in listed}

"""The docs' verdicts are those that surveys gave, by the rules of today."""

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from armillary.anatomy.families import FAMILIES, MISSING
from armillary.probes import PROBES
from armillary.probes.machinery.limits.thresholds import RULES_VERSION
from armillary.results import Rewording, RuleChange

ROOT = Path(__file__).parent.parent
NUMBERS = runpy.run_path(str(ROOT / "docs" / "verdicts.py"))
STUDIES = runpy.run_path(str(ROOT / "docs" / "studies.py"))
STORE = json.loads(NUMBERS["STORE"].read_text("utf-8"))


@pytest.mark.parametrize("path", NUMBERS["PAGES"], ids=lambda path: path.name)
def test_pages_show_the_stored_numbers(path):
    page = path.read_text("utf-8")
    assert NUMBERS["rendered"](page, STORE) == page
    assert page.count("<!-- numbers ") == len(NUMBERS["BLOCK"].findall(page))


def test_every_claim_has_numbers_and_the_rule_that_decided_them():
    """A version is that of all rules together. By its digest a verdict is known to stand, or marked (below)."""
    assert {"builtin:gpt", "builtin:llama"} <= set(STORE) <= set(NUMBERS["MODELS"])
    for record in STORE.values():
        assert 1 <= int(record["rules"]) <= int(RULES_VERSION)
        assert list(record["claims"]) == [probe.claim.id for probe in PROBES]
        assert all(entry["rule"] for entry in record["claims"].values())


def test_some_claims_measured_anew_leave_the_others():
    """Also by a later version of the rules: what changed is marked, the rest stands."""
    old = STORE["builtin:gpt"]
    new = {**old, "rules": "99", "claims": {"sphere.radius": {**old["claims"]["sphere.radius"], "n": 7}}}
    both = NUMBERS["added"](old, new)
    assert both["rules"] == "99" and list(both["claims"]) == list(old["claims"])
    assert both["claims"]["sphere.radius"]["n"] == 7
    assert both["claims"]["sphere.plane"] == old["claims"]["sphere.plane"]


def test_a_verdict_of_an_earlier_rule_is_marked():
    """Wherever it is shown: in the table, in the readings, in a ledger and in a finding shown in full."""
    changed, current = json.loads(json.dumps(STORE)), json.loads(json.dumps(STORE))
    today = {probe.claim.id: probe.claim for probe in PROBES}
    for store, rule in ((changed, "another"), (current, today["sphere.radius"].rule_digest)):
        for record in store.values():
            record["claims"]["sphere.radius"]["rule"] = rule
    for what, times in (("A", 2 * len(STORE)), ("ledger sphere.radius", 1), ("finding sphere.radius", 1)):
        pages = ["".join(NUMBERS["block"](what, store)) for store in (changed, current)]
        earlier, now = (" ".join(page.split()).count("measured by an earlier rule") for page in pages)
        assert earlier - now == times
    for model, record in STORE.items():
        assert record["text"] and not re.search(r"\b0 (documents|tokens)", record["text"])
        for claim, entry in record["claims"].items():
            marked = "measured by an earlier rule" in NUMBERS["cell"](claim, entry)
            rule = today[claim]
            stands = rule.same_rule(entry["rule"]) and entry["changes"] == len(rule.changes)
            assert marked == (not stands), f"{model} {claim}"


def test_what_is_measured_again_after_a_change_are_the_claims_whose_rule_changed():
    """In its words, or on its list of changes alone; and a claim that was never measured."""
    record = json.loads(json.dumps(STORE["builtin:gpt"]))
    for probe in PROBES:
        claim = probe.claim
        record["claims"][claim.id] |= {"rule": claim.rule_digest, "changes": len(claim.changes)}
    assert NUMBERS["outdated"](record) == ""
    record["claims"]["words.travel"]["rule"] = "another"
    record["claims"]["sphere.plane"]["changes"] += 1
    del record["claims"]["ffn.store"]
    assert NUMBERS["outdated"](record) == "sphere.plane,words.travel,ffn.store"
    assert NUMBERS["outdated"](None).split(",") == [probe.claim.id for probe in PROBES]


def test_a_rule_in_other_words_is_not_measured_again():
    """A stored digest of earlier words counts as long as the claim lists it and no change of the rule has followed."""
    claim = next(probe.claim for probe in PROBES if probe.claim.changes)
    number = len(claim.changes)
    entry = {"rule": claim.rule_digest, "changes": number}
    is_current = NUMBERS["current"]
    reworded = replace(claim, rule="other words")
    listed = replace(reworded, rewordings=(Rewording("2026-11-18", claim.rule_digest, number),))
    changed = replace(listed, changes=(*claim.changes, RuleChange("2026-11-19", "a reason")))
    module = is_current.__globals__
    for rule, stands in ((claim, True), (reworded, False), (listed, True), (changed, False)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(module, "today", lambda rule=rule: {claim.id: rule})
            assert is_current(claim.id, entry) == stands
    # A verdict from before the last change of the rule, with the digest of words that the change left as they were.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(module, "today", lambda: {claim.id: listed})
        assert not is_current(claim.id, {**entry, "changes": number - 1})


def test_every_chapter_has_a_page():
    pages = "".join(path.read_text("utf-8") for path in NUMBERS["PAGES"])
    shown = set(re.findall(r"<!-- numbers ([A-H]) -->", pages))
    assert shown == {probe.claim.chapter for probe in PROBES}


def test_a_changed_number_changes_the_page():
    changed = json.loads(json.dumps(STORE))
    entry = changed["builtin:gpt"]["claims"]["attention.geodesic"]
    entry["statistic"] = [9.0, 8.0, 10.0]
    block = "".join(NUMBERS["block"]("B", changed))
    assert "9.0 [8.0, 10.0]" in block
    assert block != "".join(NUMBERS["block"]("B", STORE))


def test_the_studies_page_is_written_from_its_runs():
    assert STUDIES["PAGE"].read_text("utf-8") == STUDIES["page"](), "run python docs/studies.py"
    assert {path.name for path in STUDIES["FOLDER"].iterdir() if path.is_dir()} == set(STUDIES["folders"]())


def test_the_page_of_architectures_has_a_row_of_every_table():
    """`python bench/families.py > docs/families.md` makes it; README counts an architecture of two stacks once."""
    page = (ROOT / "docs" / "families.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| ([\w.-]+) \| (whole|in part|refused)", page, re.MULTILINE))
    read = {name for name, how in rows.items() if how != "refused"}
    ours = {family.model_type for family in FAMILIES}
    assert all(any(name == table or name.startswith(f"{table}-") for name in read) for table in ours)
    assert set(rows) - read == {name for name in MISSING if name not in ours}
    assert page.rstrip().endswith(f"of {len(rows)} models {len(read) - _parts(rows)} whole, {_parts(rows)} in part, "
                                  f"{len(rows) - len(read)} refused")  # fmt: skip
    known = {table.partition(".")[0] for table in ours if not table.startswith("armillary_")}
    assert f"**[{len(known)} architectures](docs/families.md)" in (ROOT / "README.md").read_text("utf-8")


def _parts(rows: dict[str, str]) -> int:
    return sum(how == "in part" for how in rows.values())

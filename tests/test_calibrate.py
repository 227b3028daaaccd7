"""The instrument's own error rate: Wilson's interval, studies that are stopped, tables, and the command."""

import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import folders
import pytest
import torch
from command import refused, run, works
from hypothesis import given
from hypothesis import strategies as st

from armillary import calibrate as study_module
from armillary.anatomy.read import read
from armillary.calibrate import calibrate
from armillary.errors import ArmillaryError, OutputError, TextError
from armillary.flow.controls import Twins, twin_seed
from armillary.probes import claims as list_claims
from armillary.probes.machinery.processes.workers import side_by_side
from armillary.results.calibration import CalibrationRun, CalibrationStudy, Outcome, Planted, RunsFile, Task, wilson
from armillary.results.calibration.aims import agreement, aims, by_text, turned, turning
from armillary.results.calibration.calibration_file import calibration_json, read_calibration, shipped
from armillary.results.calibration.counts import Calibration, count_runs, in_words, joined
from armillary.results.calibration.rate_tables import planted_table, rates_table, seeds_table, untrained_table
from armillary.results.claim import Claim, Rewording, RuleChange
from armillary.run import survey
from armillary.specimens import planted as planted_module
from armillary.specimens import untrained as untrained_module
from armillary.specimens.models.bag import bag, gaussian
from armillary.specimens.models.texts import corpus
from armillary.specimens.planted import CASES
from armillary.specimens.planted.case import Case, conclude, draw, sized
from armillary.specimens.untrained import SHAPES, untrained, untrained_seed
from armillary.views.text.calibration import calibration_text, claim_lines
from armillary.views.text.papers.trust import trust_page

DOCS = Path(__file__).parent.parent / "docs"


# Wilson's interval


def test_wilson_known_values():
    # Brown, Cai and DasGupta (2001), and R's binom.confint.
    assert wilson(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-7)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775328), abs=1e-7)
    assert wilson(50, 100) == pytest.approx((0.4038315, 0.5961685), abs=1e-7)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(7, 7)[1] == 1.0
    with pytest.raises(ValueError, match="11 of 10"):
        wilson(11, 10)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_ends_are_the_rates_that_a_score_test_just_accepts(share):
    hits, n = share
    low, high = wilson(hits, n)
    assert 0 <= low <= hits / n <= high <= 1
    for end in (low, high):
        assert (hits / n - end) ** 2 == pytest.approx(1.959963984540054**2 * end * (1 - end) / n, abs=1e-9)


# What a study consists of


def test_the_plan():
    study = CalibrationStudy(
        untrained=12, seeds=10, tokens=(2500, 1000), texts=("sample", "books"), claims=("a.b",), planted=3
    )
    cases = [Planted("one", "a.b", "supported"), Planted("two", "c.d", "refuted")]
    tasks = study.tasks(cases)
    assert len({task.key for task in tasks}) == len(tasks)
    parts = {part: [task for task in tasks if task.part == part] for part in ("untrained", "seeds", "planted")}
    assert sorted(task.seed for task in parts["untrained"]) == list(range(12))
    settings = [(task.subject, task.text) for task in parts["untrained"]]
    assert {pair: settings.count(pair) for pair in settings} == {
        (subject, text): 3 for subject in ("gpt", "llama") for text in ("sample", "books")
    }
    seeds = [(task.subject, task.text, task.tokens) for task in parts["seeds"]]
    assert all(seeds.count((model, text, 2500)) == 10 for model in study.models for text in study.texts)
    assert all(seeds.count((model, "sample", 1000)) == 3 for model in study.models)
    assert len(seeds) == 2 * (10 + 10 + 3)
    # A case of a claim that is not measured is left out.
    assert {(task.subject, task.strength) for task in parts["planted"]} == {("one", s) for s in (0.25, 0.5, 0.75, 1)}
    assert len(parts["planted"]) == 12
    assert CalibrationStudy.from_dict(json.loads(json.dumps(study.to_dict()))) == study


def test_untrained_models_never_meet_a_twin():
    """torch's generator takes 32 bits of a seed, so these must differ too."""
    ours = {untrained_seed(name, number) % 2**32 for name in SHAPES for number in range(200)}
    twins = {twin_seed(seed, index) % 2**32 for seed in range(200) for index in range(5)}
    assert len(ours) == 400
    assert not ours & twins
    assert not ours & set(range(1000))


@pytest.mark.parametrize("architecture", list(SHAPES))
def test_the_weights_are_no_twins(architecture):
    model = untrained(architecture, 3)
    assert not model.training
    again = untrained(architecture, 3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    others = [read(untrained(architecture, 4)), *Twins(read(model), 3)]
    assert len(others) == 6
    for other in others:
        assert not torch.equal(other.W_E, read(model).W_E)


@pytest.mark.parametrize("architecture", list(SHAPES))
def test_large_random_weights_are_not_learned(architecture):
    """Five times as large: attention is sharp and blocks write much. (All learned claims: tests/slow.)"""
    plain, large = untrained(architecture, 7), untrained(architecture, 7, times=5.0)
    for before, after in zip(plain.parameters(), large.parameters(), strict=True):
        assert torch.equal(after, before * (5 if before.ndim > 1 else 1))
    chosen = "sphere.direction,qk.related,qk.axes,rank.nullspace,heads.specialise,others.massive,others.anisotropy"
    words = untrained_module.tokenizer(architecture)
    findings = list(survey(large, tokenizer=words, claims=chosen, quick=True, progress=False))
    assert {finding.claim.kind for finding in findings} == {"learned"}
    assert not {finding.id: finding.verdict for finding in findings if finding.verdict in ("supported", "qualified")}


# A study that is stopped, with runs that take no time


SMALL = CalibrationStudy(untrained=4, seeds=2, planted=0, claims=("sphere.radius", "sphere.plane"))


class Killed(BaseException):
    """An exception that the package does not catch."""


class Fake:
    """A `measure` whose verdicts follow from the task, and that is killed at one of its calls."""

    def __init__(self, killed_at: int = 10**9, raises: int = 10**9) -> None:
        self.calls, self.killed_at, self.raises = 0, killed_at, raises

    def __call__(self, task: Task, study: CalibrationStudy, texts: dict[str, str]) -> CalibrationRun:
        self.calls += 1
        if self.calls == self.killed_at:
            raise Killed
        if self.calls == self.raises:
            return CalibrationRun(task, {}, 0.1, "ValueError: a run that raised")
        verdict = "supported" if (task.seed + len(task.subject)) % 3 else "qualified"
        return CalibrationRun(
            task, {claim: Outcome(verdict, None, 1.5, reading="One.\u2028Two.") for claim in study.claims}, 0.1
        )


def fake(monkeypatch, **how):
    replacement = Fake(**how)
    monkeypatch.setattr(study_module, "measure", replacement)
    return replacement


def outcome(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text("utf-8") for name in ("calibration.json", "rates.csv", "trust.md")}


@pytest.mark.parametrize("killed_at", [1, 3, 8])
def test_a_killed_study_goes_on_and_ends_the_same(tmp_path, monkeypatch, killed_at):
    whole = fake(monkeypatch)
    calibrate(SMALL, tmp_path / "whole")
    assert whole.calls == 8
    first = fake(monkeypatch, killed_at=killed_at)
    with pytest.raises(Killed):
        calibrate(SMALL, tmp_path / "killed")
    assert not (tmp_path / "killed" / "calibration.json").exists()
    second = fake(monkeypatch)
    calibrate(SMALL, tmp_path / "killed")
    assert (first.calls - 1) + second.calls == 8
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
    third = fake(monkeypatch)
    calibrate(SMALL, tmp_path / "killed")
    assert third.calls == 0
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")


def test_a_study_grows_in_its_folder(tmp_path, monkeypatch):
    fake(monkeypatch)
    calibrate(SMALL, tmp_path)
    more = fake(monkeypatch)
    grown, _ = calibrate(replace(SMALL, untrained=10, tokens=(2500, 1000)), tmp_path)
    assert more.calls == 6 + 4
    assert grown.untrained("sphere.plane").n == 10
    smaller, _ = calibrate(SMALL, tmp_path)
    assert smaller.untrained("sphere.plane").n == 4


def test_damaged_lines_are_named_and_their_runs_made_again(tmp_path, monkeypatch):
    fake(monkeypatch)
    whole, _ = calibrate(SMALL, tmp_path)
    path = tmp_path / "runs.jsonl"
    lines = path.read_text("utf-8").split("\n")
    lines[1] = lines[1][:-30]
    lines[3] = lines[3].replace('"verdict": "', '"verdict": "very ', 1)
    lines[4] = '{"task": {}}'
    # The last one as a kill leaves it: half, without its line break.
    path.write_text("\n".join(lines[:7]) + "\n" + lines[7][:40], "utf-8")
    again = fake(monkeypatch)
    calibration, damaged = calibrate(SMALL, tmp_path)
    assert again.calls == 4
    assert calibration == whole
    assert [sentence.split(" line ")[1][0] for sentence in damaged] == ["2", "4", "5", "8"]
    assert "there is no verdict 'very " in damaged[1] and "it lacks 'claims'" in damaged[2]
    # The half line did not swallow the run that was written after it.
    assert fake(monkeypatch).calls == 0
    assert len(RunsFile(tmp_path).runs) == 8


def test_a_run_that_raises_is_a_row_and_is_tried_again(tmp_path, monkeypatch):
    fake(monkeypatch, raises=2)
    calibration, _ = calibrate(SMALL, tmp_path)
    assert calibration.runs == 8
    assert len(calibration.errors) == 1 and "a run that raised" in calibration.errors[0]
    assert "Run without a result: seeds · " in calibration_text(calibration)
    retried = fake(monkeypatch)
    calibration, _ = calibrate(SMALL, tmp_path)
    assert retried.calls == 1 and not calibration.errors


def test_what_a_run_raises_becomes_its_error():
    measured = study_module.measure(Task("seeds", "builtin:none", 0, "sample", 100), SMALL, {})
    assert measured.error.startswith("ModelError: there is no builtin:none")
    assert not measured.claims
    assert CalibrationRun.parse(measured.line()) == measured


def test_progress_says_how_long_is_left(tmp_path, monkeypatch):
    fake(monkeypatch)
    reports = []
    calibrate(SMALL, tmp_path, tell=lambda done, total, left: reports.append((done, total, left)))
    assert [done for done, _, _ in reports] == list(range(9))
    assert all(total == 8 for _, total, _ in reports)
    assert math.isnan(reports[0][2]) and reports[-1][2] == 0 and all(left >= 0 for _, _, left in reports[1:])


# Folders and settings that cannot be


def test_other_studies_and_other_folders_are_refused(tmp_path, monkeypatch):
    fake(monkeypatch)
    calibrate(SMALL, tmp_path / "a")
    with pytest.raises(OutputError, match="holds another study: claims changed since; choose another folder"):
        calibrate(replace(SMALL, claims=("sphere.plane",)), tmp_path / "a")
    with pytest.raises(OutputError, match="another study: quick changed"):
        calibrate(replace(SMALL, quick=True), tmp_path / "a")
    text = tmp_path / "text.txt"
    text.write_text("\n---\n".join(f"Document {number}." for number in range(9)))
    read_also = replace(SMALL, texts=("sample", "text"))
    calibrate(read_also, tmp_path / "a", {"text": str(text)})
    text.write_text("\n---\n".join(f"Another document {number}." for number in range(9)))
    with pytest.raises(OutputError, match="another study: text 'text' changed"):
        calibrate(read_also, tmp_path / "a", {"text": str(text)})
    with pytest.raises(TextError, match="the text 'books' has no path"):
        calibrate(replace(SMALL, texts=("books",)), tmp_path / "a")
    monkeypatch.setattr(study_module, "RULES_VERSION", "next")
    with pytest.raises(OutputError, match="another study: rules changed"):
        calibrate(SMALL, tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "survey.json").write_text("{}")
    with pytest.raises(OutputError, match="files that are not a study's"):
        calibrate(SMALL, tmp_path / "b")
    (tmp_path / "a" / "study.json").write_text("[]")
    with pytest.raises(OutputError, match=r"study.json is damaged"):
        calibrate(SMALL, tmp_path / "a")


def test_code_that_changes_during_a_study_is_noticed(tmp_path, monkeypatch):
    fake(monkeypatch)
    digests = iter(["before", "after", "before"])
    monkeypatch.setattr(study_module, "code_digest", lambda: next(digests))
    with pytest.raises(OutputError, match="another study: code changed since"):
        calibrate(SMALL, tmp_path)
    assert not (tmp_path / "calibration.json").exists()


def test_the_digest_is_of_the_code_that_measures(tmp_path, monkeypatch):
    before = study_module.code_digest()
    copy = tmp_path / "armillary"
    shutil.copytree(Path(study_module.__file__).parent, copy, ignore=shutil.ignore_patterns("builtin", "__pycache__"))
    monkeypatch.setattr(study_module, "__file__", str(copy / "calibrate.py"))
    assert study_module.code_digest() == before
    (copy / "views" / "page.py").write_text("", "utf-8")
    assert study_module.code_digest() == before
    (copy / "probes" / "machinery" / "thresholds.py").write_text("", "utf-8")
    assert study_module.code_digest() != before


def test_nothing_to_run(tmp_path):
    with pytest.raises(ArmillaryError, match="there is nothing to run"):
        calibrate(replace(SMALL, untrained=0, seeds=0), tmp_path)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("there is nothing to run", ["--untrained", 0, "--seeds", 0, "--planted", 0]),
        ("--untrained -1 is negative", ["--untrained", -1]),
        ("--tokens 0 leaves nothing to read", ["--tokens", 0]),
        ("--workers 0 leaves no process to run", ["--workers", 0]),
        ("there is no claim 'sphere.radios'; did you mean 'sphere.radius'", ["--claims", "sphere.radios"]),
        ("there is no builtin:gtp", ["builtin:gtp"]),
        ("there is no text at nowhere.txt", ["--text", "nowhere.txt"]),
        ("every run reads the text again", ["--text", "-"]),
        ("two texts are called 'sample', the built-in one and other/sample.txt", ["--text", "other/sample.txt"]),
        ("two texts are called 'books', a/books.txt and b/books", ["--text", "a/books.txt", "--text", "b/books"]),
    ],
)
def test_bad_input(tmp_path, message, options):
    out = tmp_path / "out"
    refused(message, "calibrate", "--out", out, *options)
    assert not (out / "runs.jsonl").exists()


# Rates from a hand-made file


def line(part, subject, seed, verdicts, why=None, **more):
    task = {"part": part, "subject": subject, "seed": seed, "text": "", "tokens": 0, "strength": 1.0, **more}
    claims = {c: {"verdict": v, "why": why, "value": None, "reading": f"{c} {v}"} for c, v in verdicts.items()}
    return json.dumps({"task": task, "claims": claims, "seconds": 1, "error": ""}) + "\n"


HAND = CalibrationStudy(untrained=20, seeds=4, planted=5, tokens=(2500, 1000), texts=("sample", "books"), models=("m",),
             claims=("learned.one", "plain.two"))  # fmt: skip
KINDS = {"learned.one": "learned", "plain.two": "behaviour"}
CASE = Planted("a strong one", "learned.one", "supported", (0.5, 1.0), size="share of heads")


def hand_made(folder: Path) -> Calibration:
    """Of 20 untrained models: learned.one supported 2, qualified 1, refuted 17; plain.two supported on all."""
    rows = []
    for number in range(20):
        verdict = "supported" if number < 2 else "qualified" if number == 2 else "refuted"
        text = {"text": HAND.texts[number // 2 % 2], "tokens": 2500}
        verdicts = {"learned.one": verdict, "plain.two": "supported"}
        rows.append(line("untrained", ("gpt", "llama")[number % 2], number, verdicts, **text))
    for text, other in (("sample", "supported"), ("books", "refuted")):
        for seed in range(4):
            verdicts = {"learned.one": "undecided" if seed == 3 else other, "plain.two": "supported"}
            rows.append(line("seeds", "m", seed, verdicts, text=text, tokens=2500))
    for seed in range(2):
        verdicts = {"learned.one": "undecided", "plain.two": "supported"}
        rows.append(line("seeds", "m", seed, verdicts, text="sample", tokens=1000))
    for strength, hits in ((0.5, 2), (1.0, 4)):
        for seed in range(5):
            verdict = "supported" if seed < hits else "refuted"
            rows.append(line("planted", CASE.name, seed, {"learned.one": verdict}, strength=strength))
    (folder / "runs.jsonl").write_text("".join(reversed(rows)), "utf-8")
    runs = RunsFile(folder)
    assert not runs.damaged
    tasks = HAND.tasks([CASE])
    assert not runs.missing(tasks) and len(runs.runs) == len(tasks)
    return replace(count_runs(runs.finished(tasks), HAND, KINDS, [CASE]), rules_version="7", date="2026-01-02")


def test_the_tables_of_a_hand_made_file(tmp_path):
    calibration = hand_made(tmp_path)
    assert untrained_table(calibration).rows == (
        ("learned.one", "learned", 20, 2, 1, 17, 0, "0.100 [0.028, 0.301]"),
        ("plain.two", "behaviour", 20, 20, 0, 0, 0, "1.00 [0.84, 1.00]"),
    )
    assert planted_table(calibration).rows == (
        ("a strong one", "learned.one", "supported", "2 of 5", "4 of 5", "0.800 [0.376, 0.964]"),
    )
    assert seeds_table(calibration).rows == (
        ("learned.one", "m", "supported", "3 of 4", "books: refuted", "1,000: undecided"),
        ("plain.two", "m", "supported", "4 of 4", "same", "same"),
    )
    rates = rates_table(calibration).records()
    mine = [r for r in rates if (r["claim"], r["subject"], r["verdict"]) == ("learned.one", "gpt", "supported")]
    assert [(r["count"], r["n"], r["rate"], r["tokens"]) for r in mine] == [(1, 10, 0.1, 2500)]
    assert (mine[0]["low"], mine[0]["high"]) == wilson(1, 10)
    # Each setting's rates add up to 1.
    assert sum(r["rate"] for r in rates) == pytest.approx(len(rates) / 5)


def test_aims_and_agreement(tmp_path):
    calibration = hand_made(tmp_path)
    false_support, power, agree, each = aims(calibration)
    assert false_support.missed == ("learned.one (supported 2 of 20)",) and false_support.checked == 1
    assert power.missed == ("a strong one (supported 4 of 5)",)
    assert agreement(calibration, "m", "sample", 2500) == (7, 8)
    assert agreement(calibration, "m", "sample", 1000) == (4, 4)
    assert agree.missed == ("m on sample (7 of 8 verdicts)", "m on books (7 of 8 verdicts)")
    assert (each.checked, each.missed) == (
        4,
        ("learned.one of m on sample (supported 3, undecided 1)", "learned.one of m on books (refuted 3, undecided 1)"),
    )
    texts = by_text(calibration, "learned.one", "m")
    assert {text: in_words(counts) for text, counts in texts.items()} == {"sample": "supported", "books": "refuted"}
    assert turned(calibration, "learned.one", "m") == {"sample": "supported", "books": "refuted"}
    assert [(r.claim, r.verdict, r.seed) for r in calibration.readings] == [
        ("learned.one", "supported", 0),
        ("learned.one", "qualified", 2),
    ]


def test_one_in_twenty_is_allowed_and_nothing_measured_is_no_success(tmp_path):
    calibration = hand_made(tmp_path)
    counts = tuple(
        replace(c, verdicts={"supported": 1, "refuted": 19} if c.subject == "gpt" else {"refuted": 0})
        for c in calibration.counts
        if c.part == "untrained"
    )
    false_support, power, agree, each = aims(replace(calibration, counts=counts))
    assert false_support.met
    assert not power.met and not power.missed and not power.checked
    assert not agree.met and not agree.checked
    assert not each.met and not each.checked


def few_documents(texts=("sample", "books"), seeds=10) -> Calibration:
    """On sample the claim is refuted 5 and undecided 5; on books no run could decide; 3 of 4 models decided nothing."""
    study = CalibrationStudy(untrained=4, seeds=seeds, planted=1, models=("m",), texts=texts, claims=("learned.one",))
    case = Planted("weak", "learned.one", "supported", (1.0,))
    none = Outcome("undecided", "NO_INTERVAL")

    def outcome(task: Task) -> Outcome:
        if task.part == "untrained":
            return Outcome("refuted") if task.seed == 0 else Outcome("undecided", "NOT_APPLICABLE")
        if task.part == "planted" or task.text == "books":
            return none
        return Outcome("refuted") if task.seed < 5 else Outcome("undecided", "SPANS_LIMIT")

    runs = [CalibrationRun(task, {"learned.one": outcome(task)}) for task in study.tasks([case])]
    return count_runs(runs, study, {"learned.one": "learned"}, [case])


def test_runs_that_could_give_no_verdict_are_counted_apart():
    calibration = few_documents()
    untrained = calibration.untrained("learned.one")
    assert untrained is not None
    assert (untrained.n, untrained.apart, untrained.silent) == (1, 3, {"NOT_APPLICABLE": 3})
    assert untrained_table(calibration).rows == (("learned.one", "learned", 1, 0, 0, 1, 0, 3, "0.000 [0.000, 0.793]"),)
    # No run on books could decide: that is no agreement.
    assert agreement(calibration, "m", "books", 2500) == (0, 0)
    assert agreement(calibration, "m", "sample", 2500) == (5, 10)
    # A planted effect must be found, whatever the reason.
    assert aims(calibration)[1].missed == ("weak (supported 0 of 1)",)
    page = " ".join(trust_page(calibration).split())
    assert "m on books, 2,500 tokens: no verdicts" in page and "for an interval 10)" in page
    assert "counted before reasons were stored" not in page
    old = replace(calibration, counts=tuple(replace(counts, silent=None) for counts in calibration.counts))
    assert "counted before reasons were stored" in " ".join(trust_page(old).split())


def test_a_tie_is_a_tie():
    calibration = few_documents()
    assert seeds_table(calibration).rows == (
        ("learned.one", "m", "refuted 5, undecided 5", "5 of 10", "books: no verdict possible"),
    )
    lines = claim_lines(calibration, "learned.one")
    assert "m: refuted 5, undecided 5" in lines and not any("turns" in line for line in lines)
    assert aims(calibration)[3].missed == ("learned.one of m on sample (refuted 5, undecided 5)",)


def test_a_text_that_can_decide_nothing_is_refused(tmp_path, monkeypatch):
    calls = fake(monkeypatch)
    text = tmp_path / "text.txt"
    text.write_text("\n---\n".join(f"Document {number}." for number in range(7)))
    with pytest.raises(TextError, match=r"gives 7 documents within 2500 tokens, and an interval needs 8: no run"):
        calibrate(replace(SMALL, texts=("sample", "text")), tmp_path / "out", {"text": str(text)})
    assert not calls.calls and not (tmp_path / "out").exists()


def test_what_is_said_of_a_claim(tmp_path):
    calibration = hand_made(tmp_path)
    assert claim_lines(calibration, "learned.one") == [
        "on 20 untrained models: supported 2, qualified 1, refuted 17",
        "planted as supported: found in 4 of 5 at strength 1, 2 of 5 at strength 0.5",
        "m: supported with 3 of 4 seeds",
        "m: turns with the text: sample supported, books refuted",
    ]
    claim = Claim("plain.two", "A", "statement", "S1", "definition", "control", "rule")
    lines = ["on 20 untrained models: supported 20, qualified 0", "m: supported with 4 of 4 seeds"]
    earlier = "measured on 2026-01-02 by an earlier rule: these numbers are not those of today's rule"
    calibration = replace(calibration, rules={"plain.two": claim.rule_digest})
    assert claim_lines(calibration, "plain.two", claim) == lines
    for name in ("definition", "control", "rule"):
        assert claim_lines(calibration, "plain.two", replace(claim, **{name: "another"})) == [*lines, earlier]
    assert claim_lines(calibration, "plain.two", replace(claim, statement="another")) == lines
    assert claim_lines(calibration, "plain.two", replace(claim, question="What?")) == lines
    # Other words for the same rule leave its numbers standing; words that are not listed, or a change since, do not.
    listed = replace(claim, rule="another", rewordings=(Rewording("2026-11-18", claim.rule_digest, 0),))
    assert claim_lines(calibration, "plain.two", listed) == lines
    assert claim_lines(replace(calibration, rules={"plain.two": "unlisted"}), "plain.two", listed)[-1] == earlier
    since = replace(listed, changes=(RuleChange("2026-11-19", "a reason"),))
    assert claim_lines(calibration, "plain.two", since)[-1] == earlier
    assert claim_lines(replace(calibration, rules={}), "plain.two", listed)[-1] == earlier
    assert claim_lines(calibration, "another", claim) == []


def test_the_page_names_what_was_measured_by_an_earlier_rule(tmp_path):
    claim = Claim("plain.two", "A", "statement", "S1", "definition", "control", "rule")
    calibration = replace(hand_made(tmp_path), rules={"plain.two": claim.rule_digest})
    assert "earlier rule" not in trust_page(calibration, [claim])
    page = trust_page(calibration, [replace(claim, rule="another"), replace(claim, id="new.one")])
    assert "the rule of today: `plain.two`." in " ".join(page.split())
    assert "Not calibrated yet: `new.one`." in page


def test_printed_and_as_a_page(tmp_path):
    calibration = hand_made(tmp_path)
    text = calibration_text(calibration, 120)
    assert "40 runs · 20 untrained models (gpt, llama) · m over 4 seeds" in text and "rules 7 · 2026-01-02" in text
    assert "Aim missed: no claim about training supported on more than 5% of untrained models: 1 of 1: learned" in text
    assert "m on sample, 2,500 tokens: 7 of 8 verdicts (87.5%)" in text
    page = trust_page(calibration)
    assert "| learned.one | learned | 20 | 2 | 1 | 17 | 0 | 0.100 [0.028, 0.301] |" in page
    assert "- `learned.one`, qualified (gpt, seed 2): learned.one qualified" in page
    assert "What the strength is a share of:\n\n- a strong one: share of heads\n" in page
    assert page.endswith("\n") and "\n\n\n" not in page
    assert all(len(row) <= 120 for row in page.split("\n") if not row.startswith("|"))


def test_stored_and_read_again(tmp_path):
    calibration = hand_made(tmp_path)
    path = tmp_path / "calibration.json"
    path.write_text(calibration_json(calibration), "utf-8")
    assert read_calibration(tmp_path) == calibration
    assert "learned.one" in works("show", tmp_path).stdout
    assert works("show", tmp_path, "plain.two").stdout.startswith("on 20 untrained models: supported 20")
    assert works("show", tmp_path, "--json").stdout == calibration_json(calibration)
    refused("has no claim 'plain.too'; did you mean 'plain.two'", "show", tmp_path, "plain.too")
    for content, message in (
        ("{", "is not JSON"),
        ("{}", "is not a calibration of schema 1"),
        (calibration_json(calibration).replace('"readings"', '"others"'), "is damaged .readings is missing"),
    ):
        path.write_text(content, "utf-8")
        refused(message, "show", tmp_path)


# Planted models


def radius(eps: float, seed: int):
    return bag(gaussian(seed=seed), eps=eps), corpus(12, 30, seed=seed)


RADIUS = sized("radius, a large ε", "sphere.radius", "refuted", "ε", radius)


def test_a_planted_case_is_concluded_like_a_survey():
    finding = conclude(RADIUS, 0.5, 3)
    assert (finding.id, finding.verdict) == ("sphere.radius", "refuted")
    torch.manual_seed(99)
    assert conclude(RADIUS, 0.5, 3).statistic == finding.statistic


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.planted.name)
def test_every_draw_is_another_one(case):
    """The text is another one, or the weights are where the claim reads no text; the same seed gives the same."""
    first, again, other = (drawn(case, seed) for seed in (4, 4, 5))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def drawn(case: Case, seed: int) -> torch.Tensor:
    anatomy, text = draw(case, case.planted.strengths[0], seed)
    if text is None:
        return torch.cat([parameter.flatten() for parameter in anatomy.model.parameters()])
    return torch.tensor([token for window in text.windows for token in window.ids])


def test_planted_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(planted_module, "CASES", (RADIUS,))
    study = CalibrationStudy(untrained=0, seeds=0, planted=1, claims=("sphere.radius",))
    calibration, _ = calibrate(study, tmp_path)
    assert not calibration.errors
    strengths = calibration.planted("radius, a large ε")
    assert {strength: counts.n for strength, counts in strengths.items()} == {0.25: 1, 0.5: 1, 0.75: 1, 1.0: 1}
    assert strengths[1.0].of("refuted") == 1
    assert aims(calibration)[1].met


# The command


TINY = {"gpt": {"layers": 1, "width": 16, "heads": 2, "feed_forward": 32},
        "llama": {"layers": 1, "width": 16, "heads": 2, "kv_heads": 2, "feed_forward": 32}}  # fmt: skip
FEW = ["--untrained", 2, "--seeds", 0, "--planted", 0, "--claims", "sphere.radius,sphere.ellipsoid,sphere.plane"]


def test_the_command(tmp_path, monkeypatch):
    for module in (untrained_module, study_module):
        monkeypatch.setattr(module, "SHAPES", TINY)
    # On a busy machine it says how far it is; here nothing may be on standard error.
    monkeypatch.setattr(sys.modules["armillary.cli.calibrate"], "LINE_EVERY_S", math.inf)
    done = works("calibrate", "--out", tmp_path / "c", *FEW, "--tokens", 1200, "--workers", 1)
    output = " ".join(done.stdout.split())
    assert "2 untrained models (gpt of 1 layer and width 16, llama of" in output and "sphere.plane" in output
    calibration = read_calibration(tmp_path / "c")
    assert not calibration.errors and calibration.runs == 2
    radius = calibration.untrained("sphere.radius")
    assert radius is not None and radius.n == 2
    # LayerNorm has the plane by construction, RMSNorm does not.
    by_architecture = {c.subject: c.verdicts for c in calibration.counts if c.claim == "sphere.plane"}
    assert by_architecture == {"gpt": {"supported": 1}, "llama": {"refuted": 1}}
    shown = works("show", tmp_path / "c").stdout
    assert shown.split("Files:")[0] == done.stdout.split("Files:")[0]
    again = works("calibrate", "--out", tmp_path / "c", *FEW, "--tokens", 1200, "--workers", 1, "--json")
    assert json.loads(again.stdout)["runs"] == 2
    refused("holds another study: claims", "calibrate", "--out", tmp_path / "c", *FEW, "--claims", "A")


def test_failed_runs_end_with_3(tmp_path, monkeypatch):
    fake(monkeypatch, raises=1)
    result = run("calibrate", "--out", tmp_path, *FEW, "--workers", 1)
    assert result.exit_code == 3
    assert result.stderr == "armillary: 1 of 2 runs failed; the same command tries them again.\n"


def test_interrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(study_module, "_make", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    result = run("calibrate", "--out", tmp_path, *FEW, "--workers", 1)
    assert result.exit_code == 130
    assert result.stderr == "armillary: interrupted; finished runs are kept; repeat the command to continue.\n"


def test_work_in_processes():
    before = dict(os.environ)
    assert sorted(side_by_side([1, 4, 9], math.sqrt, 2)) == [1, 2, 3]
    assert all(os.environ.get(name) == before.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"))
    with pytest.raises(ArmillaryError, match="a worker process died, probably for lack of memory"):
        list(side_by_side([1], os._exit, 2))
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_workers_give_the_same(tmp_path):
    """Processes of their own, started by the command as a user would."""
    claims = ("sphere.radius", "sphere.concentration")
    calibrate(CalibrationStudy(untrained=2, seeds=0, planted=0, tokens=(1200,), claims=claims), tmp_path / "one")
    options = [*FEW[:-1], ",".join(claims), "--tokens", 1200, "--workers", 2, "--out", tmp_path / "two"]
    subprocess.run([sys.executable, "-m", "armillary", "calibrate", *map(str, options)], check=True)
    first, second = (RunsFile(tmp_path / name).runs for name in ("one", "two"))
    assert first.keys() == second.keys() and len(first) == 2
    for key, measured in first.items():
        assert not measured.error
        assert second[key].claims == measured.claims


@pytest.mark.slow
def test_ctrl_c_keeps_finished_runs_and_leaves_no_process(tmp_path):
    command = [sys.executable, "-m", "armillary", "calibrate", "--out", str(tmp_path), "--untrained", "40"]
    command += ["--seeds", "0", "--claims", "sphere.radius", "--tokens", "1000", "--workers", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        runs = tmp_path / "runs.jsonl"
        while process.poll() is None and not (runs.exists() and runs.read_bytes()):
            time.sleep(0.2)
        # As a terminal does: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.endswith("armillary: interrupted; finished runs are kept; repeat the command to continue.\n")
    assert "Traceback" not in errors
    stored = RunsFile(tmp_path)
    assert 0 < len(stored.runs) < 40 and not stored.damaged
    ends = time.monotonic() + 20
    while _lives(process.pid):
        assert time.monotonic() < ends
        time.sleep(0.1)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# What the package shows


def test_the_shipped_calibration_and_the_page_are_one():
    calibration = shipped()
    assert calibration is not None
    assert (DOCS / "trust.md").read_text("utf-8") == trust_page(calibration, list_claims())


def test_a_claim_says_how_often_it_was_right(monkeypatch):
    calibration = shipped()
    assert calibration is not None
    claim = next(iter(calibration.kinds))
    # Words wrap at the width of the terminal.
    output = " ".join(works("claims", claim).stdout.split())
    assert "calibrated on " in output and " untrained models: supported " in output
    monkeypatch.setattr(
        "armillary.results.calibration.calibration_file.shipped", lambda: replace(calibration, rules={})
    )
    assert "by an earlier rule" in " ".join(works("claims", claim).stdout.split())
    monkeypatch.setattr("armillary.results.calibration.calibration_file.shipped", lambda: None)
    assert "calibrated" not in works("claims", claim).stdout


def _calibration(verdicts: dict[str, dict[str, str]], rules_version: str = "2") -> Calibration:
    """Claim → text → verdict, on one model with three seeds."""
    texts = tuple(next(iter(verdicts.values())))
    study = CalibrationStudy(models=("m",), untrained=0, seeds=3, planted=0, texts=texts, claims=tuple(verdicts))
    runs = [CalibrationRun(task, {c: Outcome(by[task.text]) for c, by in verdicts.items()}) for task in study.tasks()]
    rules = {claim.id: claim.rule_digest for claim in list_claims()}
    return replace(
        count_runs(runs, study, dict.fromkeys(verdicts, "learned")), rules_version=rules_version, rules=rules
    )


def test_a_verdict_that_turns_with_the_text_says_so_in_its_reading(monkeypatch, tmp_path):
    turns = _calibration({
        "sphere.radius": {"sample": "supported", "books": "refuted"},
        "sphere.plane": {"sample": "refuted", "books": "refuted"},
    })  # fmt: skip
    sentence = "This verdict can turn with the text (m: supported on sample, refuted on books)."
    known = {claim.id: claim for claim in list_claims()}

    radius = known["sphere.radius"]
    assert turning(turns, radius, "refuted") == sentence
    assert (
        turning(turns, known["sphere.plane"], "refuted") == turning(turns, replace(radius, rule="new"), "refuted") == ""
    )
    assert turning(None, radius, "refuted") == turning(turns, known["words.travel"], "refuted") == ""
    # A finding without a verdict has none that could turn; a stored table has read no text.
    assert turning(turns, radius, "undecided") == turning(turns, radius, "refuted", of_text=False) == ""
    lacking = _calibration({"sphere.radius": {"sample": "supported", "books": "undecided"}})
    assert turning(lacking, radius, "supported") == ""
    monkeypatch.setattr("armillary.growing_survey.shipped", lambda: turns)
    model = str(folders.model_folder("gpt2", tmp_path / "gpt2"))
    radius, plane = survey(model, claims="sphere.radius,sphere.plane", tokens=1500, progress=False)
    assert radius.reading.endswith(sentence) and sentence not in plane.reading


def test_joined_calibrations():
    """A claim of both counts as in the later one; what was made otherwise is refused."""
    early = _calibration({"a.a": {"sample": "supported"}, "b.b": {"sample": "supported"}})
    late = _calibration({"b.b": {"sample": "refuted"}, "c.c": {"sample": "undecided"}})
    both = joined(early, late).in_order(["c.c", "a.a", "b.b"])
    assert list(both.kinds) == list(both.study.claims) == ["c.c", "a.a", "b.b"]
    assert {counts.claim: dict(counts.verdicts) for counts in both.counts} == {
        "a.a": {"supported": 3}, "b.b": {"refuted": 3}, "c.c": {"undecided": 3}
    }  # fmt: skip
    assert both.runs == 6
    assert list(both.in_order(["a.a"]).kinds) == ["a.a"]
    with pytest.raises(OutputError, match="differ in seeds"):
        joined(early, replace(late, study=replace(late.study, seeds=4)))
    with pytest.raises(OutputError, match=r"other texts under the same name .sample"):
        joined(replace(early, texts={"sample": "one"}), replace(late, texts={"sample": "other"}))
    alike = joined(replace(early, texts={"sample": "one"}), replace(late, texts={"sample": "one"}))
    assert alike.texts == {"sample": "one"} and "of one name may be mixed" not in trust_page(alike)
    # An older file has no digests: what cannot be compared is said.
    older = joined(early, replace(late, texts={"sample": "other"}))
    assert not older.texts and "of one name may be mixed: sample." in " ".join(trust_page(older).split())
    with pytest.raises(OutputError, match=r"rules' version, .* measured a\.a; make both alike"):
        joined(early, replace(late, rules_version="3"))
    # Rules have digests: those that did not change stand in another version, too.
    newer = joined(
        replace(early, rules={"a.a": "one", "b.b": "two"}), replace(late, rules={"b.b": "three"}, rules_version="3")
    )
    assert newer.rules_version == "3" and newer.rules == {"a.a": "one", "b.b": "three"}
    with pytest.raises(OutputError, match="untrained shapes"):
        joined(early, replace(late, shapes={"gpt": {"layers": 1}}))


def test_planted_models_alone_can_be_joined():
    """What an earlier study found on untrained models and over seeds stays; its planted models are counted anew."""
    case = Planted("a case", "a.a", "supported", (1.0,))

    def calibration(verdict: str, untrained: int, seeds: int) -> Calibration:
        study = CalibrationStudy(models=("m",), untrained=untrained, seeds=seeds, planted=2, claims=("a.a",))
        runs = [CalibrationRun(task, {"a.a": Outcome(verdict)}) for task in study.tasks([case])]
        return replace(count_runs(runs, study, {"a.a": "learned"}, [case]), rules_version="2")

    early, late = calibration("supported", 3, 2), calibration("refuted", 0, 0)
    with pytest.raises(OutputError, match=r"a\.a: the rule was changed since the whole study"):
        joined(early, replace(late, rules={"a.a": "another"}))
    # The same rule in other words is no change, once both have the digest of today's words.
    first = Claim("a.a", "A", "statement", "S1", "definition", "control", "rule")
    now = replace(first, rule="other words", rewordings=(Rewording("2026-11-18", first.rule_digest, 0),))
    before, after = (replace(c, rules={"a.a": r.rule_digest}) for c, r in ((early, first), (late, now)))
    with pytest.raises(OutputError, match="the rule was changed"):
        joined(before, after)
    assert joined(before.in_words_of([now]), after.in_words_of([now])).rules == {"a.a": now.rule_digest}
    assert before.in_words_of([replace(now, rewordings=())]).rules == {"a.a": first.rule_digest}
    both = joined(early, late)
    assert {(counts.part, *counts.verdicts.items()) for counts in both.counts} == {
        ("untrained", ("supported", 2)), ("untrained", ("supported", 1)), ("seeds", ("supported", 2)),
        ("planted", ("refuted", 2)),
    }  # fmt: skip
    assert both.cases == (case,) and both.study.untrained == 3
    with pytest.raises(OutputError, match="only planted models"):
        joined(early, replace(late, kinds={"b.b": "learned"}))

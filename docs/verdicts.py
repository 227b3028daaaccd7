"""Where do the docs' verdicts come from? From surveys, by one command: `make docs-numbers`.

    python docs/verdicts.py [MODEL …]     survey these models (by default all four), then write every page
    python docs/verdicts.py --claims=LIST [MODEL …]   survey these claims, and keep what is stored of the others
    python docs/verdicts.py --changed [MODEL …]       survey the claims whose rule has changed since they were measured
    python docs/verdicts.py --folder DIR MODEL        take what `armillary survey MODEL --out DIR` wrote
    python docs/verdicts.py --write       write the pages from docs/verdicts.json alone

`docs/verdicts.json` holds what the pages show of each survey. In a page, everything between `<!-- numbers … -->` and
`<!-- end of numbers -->` is written by this file. `tests/test_docs.py` checks that the pages are what it writes. A
verdict that another rule than today's gave is marked in them.
"""

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from armillary.results.claim import VERDICTS, Claim
from armillary.results.numbers import interval
from armillary.views.figures.marks import MARKS

DOCS = Path(__file__).parent
STORE = DOCS / "verdicts.json"
MODELS = {
    "builtin:gpt": "builtin:gpt",
    "builtin:llama": "builtin:llama",
    "smollm2": "SmolLM2-135M",
    "minilm": "MiniLM-L6",
}
PAGES = (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")))
BLOCK = re.compile(r"(<!-- numbers (?P<what>[^>]+?) -->\n).*?(<!-- end of numbers -->)", re.DOTALL)
# The calibration's sentence at the end of a reading is written anew with every page.
TURNS = re.compile(r" This verdict can turn with the text \(.*\)\.$", re.DOTALL)
CONTROLS = 2
WIDTH = 120
Record = Mapping[str, Any]


def survey_record(model: str, chosen: str = "all", folder: Path | None = None) -> dict[str, Any]:
    """One model's survey, made now or read from a folder, reduced to what the pages show."""
    import armillary
    from armillary.results.store import read_survey

    survey = armillary.survey(model, claims=chosen) if folder is None else read_survey(folder)
    claims = {}
    for finding in survey:
        statistic = finding.statistic
        claims[finding.id] = {
            "chapter": finding.claim.chapter,
            "kind": finding.claim.kind,
            "verdict": finding.verdict,
            "why": finding.why.value if finding.why else "",
            "name": statistic.name + (f", {statistic.unit}" if statistic.unit else ""),
            "statistic": [statistic.value, statistic.low, statistic.high],
            "controls": {c.name: [c.value, c.low, c.high] for c in finding.controls},
            "parts": [[part.name, part.verdict, part.asserted] for part in finding.parts],
            "headline": finding.headline,
            "n": finding.n,
            "rule": finding.claim.rule_digest,
            "changes": len(finding.claim.changes),
            **({} if finding.of_text else {"of_text": False}),
            "reading": TURNS.sub("", finding.reading),
        }
    text = survey.text
    return {
        "rules": survey.provenance.rules_version,
        "versions": dict(survey.provenance.versions),
        # A survey of claims about weights alone has read nothing.
        "text": f"{text.source}, {text.documents} documents, {text.tokens} tokens" if text.documents else "",
        "claims": claims,
    }


def rendered(page: str, store: Record) -> str:
    """A page with all its blocks written anew."""
    return BLOCK.sub(lambda match: match[1] + "".join(block(match["what"], store)) + match[3], page)


def block(what: str, store: Record) -> Iterable[str]:
    """The lines of one block: a chapter's table and readings, some rows of a ledger, or one finding in full."""
    if what.startswith("finding "):
        return finding(what.removeprefix("finding "), store["builtin:gpt"])
    if what.startswith("ledger "):
        return ledger(what.removeprefix("ledger ").split(), store["builtin:gpt"])
    return [*table(what, store), *readings(what, store)]


def table(chapter: str, store: Record) -> Iterable[str]:
    ids = chapter_ids(chapter, store)
    yield f"| claim, statistic | {' | '.join(MODELS[model] for model in store)} |\n"
    yield f"|---|{'---|' * len(store)}\n"
    for claim in ids:
        entries = [record["claims"].get(claim) for record in store.values()]
        first = next(entry for entry in entries if entry)
        cells = [cell(claim, entry) for entry in entries]
        yield f"| `{claim}` ({first['kind']}), {escaped(first['name'])} | {' | '.join(cells)} |\n"
        names = list(dict.fromkeys(name for entry in entries if entry for name in entry["controls"]))[:CONTROLS]
        for name in names:
            values = [number(entry["controls"].get(name)) if entry else "" for entry in entries]
            yield f"| {escaped(name)} | {' | '.join(values)} |\n"


def cell(claim: str, entry: Record | None) -> str:
    if entry is None:
        return ""
    reason = f" {entry['why']}" if entry["why"] else ""
    value = f" {number(entry['statistic'])}" if number(entry["statistic"]) else ""
    return f"{MARKS[entry['verdict']]}{value or reason} {stale(claim, entry)}".rstrip()


def number(ends: Any) -> str:
    """'0.89 [0.88, 0.91]', or nothing for what was not measured."""
    if ends is None:
        return ""
    value, low, high = (float("nan") if end is None else end for end in ends)
    return interval(value, low, high) if value == value else ""


def readings(chapter: str, store: Record) -> Iterable[str]:
    yield "\n<details><summary>What each survey says in words</summary>\n\n"
    for claim in chapter_ids(chapter, store):
        yield f"**`{claim}`**\n\n"
        for model, record in store.items():
            entry = record["claims"].get(claim)
            if entry:
                yield f"- {MARKS[entry['verdict']]} {MODELS[model]}: {escaped(full_reading(claim, entry))}\n"
                for name, verdict, asserted in entry["parts"]:
                    yield f"  - {MARKS[verdict]} {escaped(name)}{'' if asserted else ' (added by Armillary)'}\n"
        yield "\n"
    yield "</details>\n"


def full_reading(claim: str, entry: Record) -> str:
    """The reading, whether the verdict turned with the text when the instrument was calibrated, and whether the rule
    has changed since it was measured."""
    from armillary.results.calibration.aims import turning
    from armillary.results.calibration.calibration_file import shipped

    warning = turning(shipped(), today()[claim], entry["verdict"], entry.get("of_text", True))
    return " ".join(part for part in (entry["reading"], warning, stale(claim, entry)) if part)


@cache
def today() -> dict[str, Claim]:
    from armillary.probes import claims

    return {claim.id: claim for claim in claims()}


def stale(claim: str, entry: Record) -> str:
    """What is said beside a verdict that another rule than today's gave."""
    return "" if current(claim, entry) else "(measured by an earlier rule)"


def current(claim: str, entry: Record | None) -> bool:
    """Did the rule of today give this verdict? A change that left the rule's words as they were is on its list."""
    rule = today()[claim]
    return entry is not None and rule.same_rule(entry["rule"]) and entry["changes"] == len(rule.changes)


def outdated(record: Record | None) -> str:
    """The claims that today's rules have not decided, as `--claims` takes them; '' where there are none."""
    known = record["claims"] if record else {}
    return ",".join(claim for claim in today() if not current(claim, known.get(claim)))


def ledger(ids: Iterable[str], record: Record) -> Iterable[str]:
    yield "```\n"
    for claim in ids:
        entry = record["claims"][claim]
        yield f" {MARKS[entry['verdict']]} {claim:<23} {entry['verdict']:<10} {entry['kind']:<11} "
        yield f"{number(entry['statistic'])} {stale(claim, entry)}".rstrip() + "\n"
    yield "```\n"


def finding(claim: str, record: Record) -> Iterable[str]:
    entry, rule = record["claims"][claim], today()[claim].rule.split("\n")
    controls = [f"{name}: {number(ends)}" for name, ends in entry["controls"].items()]
    fields = {
        "reading": [full_reading(claim, entry)],
        "statistic": [f"{entry['name']}: {number(entry['statistic'])}, n = {entry['n']}"],
        "controls": controls,
        "rule": rule,
    }
    yield f"```\n{MARKS[entry['verdict']]} {claim}  {entry['verdict']}\n  {entry['headline']}\n\n"
    for name, lines in fields.items():
        for index, line in enumerate(lines):
            first = f"  {'' if index else name:<11} "
            yield textwrap.fill(line, 110, initial_indent=first, subsequent_indent=" " * 14) + "\n"
    yield "```\n"


def chapter_ids(chapter: str, store: Record) -> list[str]:
    return list(
        dict.fromkeys(
            claim
            for record in store.values()
            for claim, entry in record["claims"].items()
            if entry["chapter"] == chapter
        )
    )


def escaped(text: str) -> str:
    """Markdown's own marks as plain text."""
    return re.sub(r"([|<>*_`\\])", r"\\\1", text)


def clean(value: Any) -> Any:
    """NaN and infinities have no place in JSON."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: clean(entry) for key, entry in value.items()}
    return [clean(entry) for entry in value] if isinstance(value, list | tuple) else value


def added(known: Record | None, record: dict[str, Any]) -> dict[str, Any]:
    """The record with the claims that only an earlier one has, in their order. Each has the digest of the rule that
    decided it, so that pages mark those whose rule has changed, whatever the version of all rules together."""
    from armillary.probes import PROBES

    known = known or {"claims": {}, "text": record["text"]}
    claims = {**known["claims"], **record["claims"]}
    whole = set(record["claims"]) >= set(known["claims"]) and record["text"]  # some claims read no text
    return {
        **record,
        "text": record["text"] if whole else known["text"] or record["text"],
        "claims": {p.claim.id: claims[p.claim.id] for p in PROBES if p.claim.id in claims},
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="models to measure; without any, all four")
    parser.add_argument("--claims", default="all", help="measure these claims alone and keep the others")
    parser.add_argument("--changed", action="store_true", help="measure claims whose rule has changed, keep the others")
    parser.add_argument("--folder", type=Path, help="measure nothing; take one model's survey from this folder")
    parser.add_argument("--write", action="store_true", help="measure nothing; write the pages from what is stored")
    given = parser.parse_args(arguments)
    if unknown := set(given.models) - set(MODELS):
        parser.error(f"no column for {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    if given.folder and len(given.models) != 1:
        parser.error("--folder holds one model's survey; name that model")
    store = json.loads(STORE.read_text("utf-8")) if STORE.exists() else {}
    if not given.write:
        for model in given.models or MODELS:
            chosen = outdated(store.get(model)) if given.changed else given.claims
            if not chosen:
                print(f"{model}: the rules of today decided every claim")
                continue
            store[model] = added(store.get(model), clean(survey_record(model, chosen, given.folder)))
            store = {name: store[name] for name in MODELS if name in store}
            STORE.write_text(json.dumps(store, indent=1, ensure_ascii=False) + "\n", "utf-8")
    assert {entry["verdict"] for record in store.values() for entry in record["claims"].values()} <= set(VERDICTS)
    for path in PAGES:
        page = path.read_text("utf-8")
        if (new := rendered(page, store)) != page:
            path.write_text(new, "utf-8")
            print(f"{path.relative_to(DOCS.parent)} written")


if __name__ == "__main__":
    main(sys.argv[1:])

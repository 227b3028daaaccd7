"""Where is every statement of the four sources answered? In docs/coverage.md, which this file writes.

    python docs/coverage.py        or `make docs-coverage`

`docs/coverage.json` holds the statements, in our words, with what answers each. Its list `planned` names claims that
do not exist yet. Claims that exist by now are dropped from it before the page is written. `tests/test_coverage.py`
checks that page, data and claims agree.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from armillary.lab.study.conclusions.lab_claims import LAB_CLAIMS
from armillary.lab.study.conclusions.stored_verdicts import stored
from armillary.probes import PROBES
from armillary.results.claim import SOURCES

DOCS = Path(__file__).parent
DATA, PAGE = DOCS / "coverage.json", DOCS / "coverage.md"
ANSWERS = ("claims", "studies", "commands", "pages", "because", "missing")
STATUSES = ("answered", "in part", "planned", "cannot be decided", "not yet")
Item = Mapping[str, Any]
INTRODUCTION = """# Every statement of the sources, and where it is answered

The claims come from four documents, S0 to S3. This page lists what each of them says, in our words, and where the
answer is: a claim (`armillary claims ID` prints its rule, the linked page shows verdicts), a study that the laboratory
can run (`armillary lab run NAME`), a command, a page or an example. Questions and proposals of the documents, and
remarks of the reviews in S1, count as statements; what a document repeats is listed once, with all its sections.
*Planned* marks claims that do not exist yet, or whose study has not been run. [Prior work](prior-work.md)
says who made a claim first.

`make docs-coverage` writes this page from `docs/coverage.json` and the claims.

"""


def registered() -> dict[str, str]:
    """The chapter of every claim that exists; of the laboratory's, those whose study has been run."""
    run = {verdict.claim for verdict in stored()}
    claims = [probe.claim for probe in PROBES] + [entry.claim for entry in LAB_CLAIMS if entry.id in run]
    return {claim.id: claim.chapter for claim in claims}


def still_planned(data: Mapping[str, Any], claims: Collection[str]) -> list[str]:
    return [claim for claim in data["planned"] if claim not in claims]


def status(item: Item, planned: Collection[str]) -> str:
    """How far a statement is answered; a reason why nothing can decide it is an answer."""
    claims = item.get("claims", ())
    ready = any(claim not in planned for claim in claims) or any(item.get(k) for k in ("studies", "commands", "pages"))
    open_ = any(claim in planned for claim in claims) or "missing" in item
    if ready:
        return "in part" if open_ else "answered"
    if "because" in item:
        return "cannot be decided"
    return "planned" if claims else "not yet"


def rendered(data: Mapping[str, Any], chapters: Mapping[str, str]) -> str:
    """The whole page; `chapters` maps the claims that exist to their chapters."""
    planned, pages = still_planned(data, chapters), chapter_pages()
    groups = {source: [item for item in data["items"] if item["source"] == source] for source in SOURCES}
    lines = [INTRODUCTION, *tally(groups, planned)]
    for source, items in groups.items():
        lines += [f"\n## {source}\n\n{SOURCES[source]}.\n\n", "| | section | what it says | where it is answered |\n"]
        lines.append("|---|---|---|---|\n")
        for number, item in enumerate(items, 1):
            cells = f"{source}.{number} | {item['section']} | {escaped(item['says'])}"
            lines.append(f"| {cells} | {answer(item, planned, chapters, pages)} |\n")
    return "".join(lines)


def tally(groups: Mapping[str, list[Item]], planned: Collection[str]) -> Iterable[str]:
    yield f"| | statements | {' | '.join(STATUSES)} |\n|---|{'---|' * (len(STATUSES) + 1)}\n"
    for source, items in groups.items():
        counts = Counter(status(item, planned) for item in items)
        yield f"| [{source}](#{source.lower()}) | {len(items)} | {' | '.join(str(counts[s]) for s in STATUSES)} |\n"
    counts = Counter(status(item, planned) for items in groups.values() for item in items)
    yield f"| all | {counts.total()} | {' | '.join(str(counts[s]) for s in STATUSES)} |\n"


def answer(item: Item, planned: Collection[str], chapters: Mapping[str, str], pages: Mapping[str, str]) -> str:
    """One cell: what answers the statement, a note, why nothing can decide it, and what is missing."""
    marks = [claim_mark(claim, planned, chapters, pages) for claim in item.get("claims", ())]
    marks += [f"study `{study}`" for study in item.get("studies", ())]
    marks += [f"`armillary {command}`" for command in item.get("commands", ())]
    marks += [f"[{Path(path).name.removesuffix('.md')}]({path})" for path in item.get("pages", ())]
    sentences = [", ".join(marks)] if marks else []
    if "note" in item:
        sentences.append(item["note"].removesuffix("."))
    if "because" in item:
        sentences.append(f"*No measurement can decide it:* {item['because']}")
    if "missing" in item:
        sentences.append(f"*Not yet:* {item['missing']}")
    return escaped(". ".join(sentences) + ".")


def claim_mark(claim: str, planned: Collection[str], chapters: Mapping[str, str], pages: Mapping[str, str]) -> str:
    if claim in planned:
        return f"`{claim}` (planned)"
    page = pages.get(chapters.get(claim, ""))
    return f"[`{claim}`]({page})" if page else f"`{claim}`"


def chapter_pages() -> dict[str, str]:
    """The page that shows a chapter's verdicts, by the mark in it."""
    marks = {path.name: re.findall(r"<!-- numbers ([A-H]) -->", path.read_text("utf-8")) for path in DOCS.glob("*.md")}
    shown = {chapter: name for name, chapters in sorted(marks.items()) for chapter in chapters}
    # The laboratory's verdicts are on the page that docs/studies.py writes.
    return {"G": "lab/README.md"} | shown


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    data, chapters = json.loads(DATA.read_text("utf-8")), registered()
    data["planned"] = still_planned(data, chapters)
    DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(rendered(data, chapters), "utf-8")


if __name__ == "__main__":
    main()

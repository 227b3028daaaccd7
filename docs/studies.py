"""Where do the numbers of docs/lab/README.md come from? From the runs in its folders: `python docs/studies.py`.

Each folder holds a study as `armillary lab run` left it (`manifest.json`, `runs.jsonl`), and `reading.md`, our
interpretation. The verdicts on the laboratory's claims also go into the package, where `armillary claims` reads them.
`tests/test_docs.py` checks that page and verdicts are what this file writes.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

from armillary.lab.study.arms import STUDIES, arms_of
from armillary.lab.study.conclusions.decisions import Decision, StudyEvidence
from armillary.lab.study.conclusions.lab_claims import LAB_CLAIMS
from armillary.lab.study.conclusions.outcome import StudyOutcome, outcome
from armillary.lab.study.conclusions.stored_verdicts import PATH, StoredVerdict, stored_json
from armillary.lab.study.design import CAUTIONS, SIZES, STABILITY
from armillary.lab.study.generalise import GENERALISE, REFERENCE, carries_over
from armillary.results.numbers import interval, say

FOLDER = Path(__file__).parent / "lab"
PAGE = FOLDER / "README.md"
ORDER = (
    "gate",
    "stability",
    "norms",
    "symmetriser",
    "softheads",
    "implicit",
    "activations",
    "metric",
    "rank",
    "mismatch",
    "expansion",
)
HEAD = """# Studies of the laboratory

[The laboratory](../lab.md) says how arms are tuned, paired and compared. All runs are in this folder, including failed
ones; `armillary lab show docs/lab/norms --out norms.html` draws them. Losses are nats per token of held-out books. A
learning rate is *usable* if its worst tuning seed is within 0.1 nats of the best rate; *sensitivity* is the mean, over
all rates tried, of the loss above that of the best rate.

<!-- Written by docs/studies.py. -->
"""


def folders() -> list[str]:
    """All studies in order, each at size xs first and then at the others that it was run at."""
    sized = [folder for name in ORDER for folder in (name, *(f"{name}-{size}" for size in SIZES))]
    return [folder for folder in sized if (FOLDER / folder).is_dir()]


def page() -> str:
    """All studies, in order."""
    return HEAD + "".join(f"\n{section(name)}" for name in folders()) + f"\n{untouched()}"


def untouched() -> str:
    """Studies and sizes that have code and no runs."""
    studies = [f"`{name}` ({len(arms) - 1} arms besides the reference)" for name, arms in sorted(STUDIES.items())
               if name not in ORDER]  # fmt: skip
    ran = {outcome(FOLDER / name).manifest["size"]["name"] for name in folders()}
    sizes = [f"`{name}`" for name in SIZES if name not in (*ran, *CAUTIONS)]
    return f"## Not run yet\n\nStudies: {', '.join(studies)}. Sizes: {', '.join(sizes)}.\n"


def to_be_run(study: StudyOutcome) -> list[str]:
    """Arms that have no runs, and those that have tuning runs only; at other sizes than xs a few arms are enough."""
    known = {arm.name for arm in study.arms}
    first = study.manifest["size"]["name"] == "xs"
    none = [arm.name for arm in arms_of(study.name) if first and arm.name not in known]
    tuned = [arm.name for arm in study.arms if not arm.losses] if study.name != STABILITY else []
    lines = [f"{what}: {'; '.join(names)}." for what, names in (("Without runs", none), ("Tuned only", tuned)) if names]
    return [" ".join(lines), ""] if lines else []


def section(name: str) -> str:
    study = outcome(FOLDER / name)
    size, rates = study.manifest["size"], sorted({rate for arm in study.arms for rate in arm.rates})
    lines = [
        f"## {name}",
        "",
        f"Size {size['name']}: {size['layers']} layers of width {size['width']}, {study.reference.parameters:,} "
        f"parameters, {size['tokens']:,} tokens per run; {len(study.rows)} runs; learning rates "
        f"{', '.join(say(rate, 'g') for rate in rates)}.",
        "",
        *table(study),
        "",
        *to_be_run(study),
        *end_states(study),
        *verdicts(study),
        (FOLDER / name / "reading.md").read_text("utf-8").strip(),
        "",
    ]
    return "\n".join(lines)


def end_states(study: StudyOutcome) -> list[str]:
    """What each arm's first seed looks like at its norms, where `lab show --survey` has read it."""
    if not study.geometry:
        return []
    names = list(next(iter(study.geometry.values())).numbers)
    rows = [
        f"| {arm} | " + " | ".join(say(state.numbers[name], ".3g") for name in names) + " |"
        for arm, state in study.geometry.items()
    ]
    head = ["| end state | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    return ["Means over all norms of the first seed's end state, on held-out text:", "", *head, *rows, ""]


def verdicts(study: StudyOutcome) -> list[str]:
    """The claims that the study decides, a paragraph each."""
    return [
        line
        for claim, decision in decided(study).items()
        for line in (f"`{claim}`: **{decision.verdict}**. {decision.reading}", "")
    ]


def decided(study: StudyOutcome) -> dict[str, Decision]:
    """Claim → its verdict; arms of a claim that stand in other studies of the same size are taken in."""
    claims = [claim for claim in LAB_CLAIMS if claim.study == study.name]
    beside = [
        other for name in folders() if (other := outcome(FOLDER / name)).name in {n for c in claims for n in c.also}
    ]
    size = study.manifest["size"]["name"]
    whole = replace(study, beside=tuple(other for other in beside if other.manifest["size"]["name"] == size))
    return {claim.id: whole.verdicts()[claim.id] for claim in claims}


def stored() -> tuple[StoredVerdict, ...]:
    """Every verdict of every folder, for the package."""
    return (
        tuple(
            StoredVerdict(
                claim, decision.verdict, decision.reading, name, study.manifest["size"]["name"], len(study.rows)
            )
            for name, study in ((name, outcome(FOLDER / name)) for name in folders())
            for claim, decision in decided(study).items()
        )
        + generalised()
    )


def generalised() -> tuple[StoredVerdict, ...]:
    """The verdict on all kinds of models, from the verdicts of their surveys (bench/generalise.py)."""
    path = FOLDER / "generalise" / "verdicts.jsonl"
    if not path.exists():
        return ()
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    verdict = carries_over(StudyEvidence(REFERENCE, rows, {}))
    models = len({(row["arm"], row["seed"]) for row in rows})
    return (StoredVerdict(GENERALISE.id, verdict.verdict, verdict.reading, "generalise", "small", models),)


def table(study: StudyOutcome) -> list[str]:
    heads = ("arm", "predicted", "rate", "usable", "sensitivity", "loss", "difference", "seeds", "outcome")
    return ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *(row(study, arm.name) for arm in study.arms)]


def row(study: StudyOutcome, name: str) -> str:
    arm, compared = next(a for a in study.arms if a.name == name), study.compared(name)
    usable = f"{say(arm.usable[0], 'g')} to {say(arm.usable[-1], 'g')}" if arm.usable else "–"
    difference = interval(compared.difference, compared.low, compared.high) if compared else "–"
    outcome_said = compared.outcome if compared else "reference" if arm is study.reference else "–"
    if compared and compared.seeds_needed:
        outcome_said += f" ({compared.seeds_needed} seeds would decide)"
    cells = (
        name, arm.prediction, "–" if arm.rate is None else say(arm.rate, "g"), usable,
        "–" if math.isnan(arm.sensitivity) else say(arm.sensitivity, ".2f"),
        "–" if math.isnan(arm.loss) else say(arm.loss, ".3f"), difference, str(len(arm.losses) or "–"), outcome_said,
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    PATH.write_text(stored_json(stored()), "utf-8")

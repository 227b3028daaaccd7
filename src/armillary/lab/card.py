"""The model card of a run, written from the run's own files."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from armillary.lab import forms
from armillary.lab.checkpoint import RECIPE
from armillary.lab.forms import read_form
from armillary.lab.log import rows

EXAM = "exam.json"


def card(
    out: Path, title: str, about: str = "", command: str = "armillary lab train", shown: Callable[[str], str] = str
) -> str:
    """The card in Markdown, from recipe.json, log.jsonl and exam.json; `shown` escapes the model's own text."""
    recipe = read_form(out / RECIPE, forms.RECIPE, "run armillary lab train first")
    exam = read_form(out / EXAM, forms.EXAM, "run armillary lab exam first")
    parts = [
        f"# {title}",
        about.strip(),
        "## Shape and recipe",
        _table(("setting", "value"), recipe["recipe"].items()),
        f"Text, SHA-256 of its lines: `{recipe['text']}`.",
        f"Trained with\n\n    {command}",
        "## Results",
        _table(("measured", "value"), results(exam)),
        "## During training",
        "Bits per byte of the held-out text, and the loss on the training text (nats per token, mean of the 100 steps "
        "before).",
        _table(("step", "bits per byte | loss"), _course(rows(out))),
        "## Samples",
        "Sampled at temperature 0.8 from the 40 most probable tokens, seed 0, not selected.",
        *("\n".join(f"> {shown(line)}" for line in text.split("\n")) for text in exam["samples"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _course(log: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    losses: list[float] = []
    for row in log:
        if "loss" in row:
            losses.append(row["loss"])
        elif "valid_bits_per_byte" in row:
            recent = losses[-100:]
            mean = f"{sum(recent) / len(recent):.3f}" if recent else "—"
            yield row["step"], f"{row['valid_bits_per_byte']:.4f} | {mean}"


def results(exam: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The results of an exam as rows of a table."""
    rows: list[tuple[str, str]] = [(f"bits per byte, {exam['text']}", f"{exam['bits_per_byte']:.4f}")]
    if "kneser_ney" in exam:
        rows.append(("the same for a Kneser–Ney 5-gram of its training tokens", f"{exam['kneser_ney']:.4f}"))
    copy = exam["induction"]
    rows += [
        ("nats per token on random tokens", f"{copy['first']:.2f}"),
        ("the same on their repetition", f"{copy['second']:.2f}"),
        ("gained by the repetition", "{value:.2f} [{low:.2f}, {high:.2f}]".format(**copy["drop"])),
        (
            "strongest induction head",
            f"{copy['head']}: {copy['score']:.2f} of its attention, {copy['control']:.3f} elsewhere",
        ),
    ]
    lens = exam["lens"]
    depths = (f"{site} {nats:.2f}" for site, nats in zip(lens["depths"], lens["nats"], strict=True))
    rows.append(("logit lens, nats per token by depth", " → ".join(depths)))
    if exam.get("nouns_split"):
        rows.append(("frequent nouns that are more than one token", ", ".join(exam["nouns_split"])))
    else:
        rows.append(("frequent nouns that are one token with a leading space", "all 100"))
    return rows


def _table(head: tuple[str, str], rows: Any) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---" * (2 + head[1].count("|")) + "|"]
    lines += [f"| {name} | {value} |" for name, value in rows]
    return "\n".join(lines)

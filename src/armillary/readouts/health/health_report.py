"""How does a model's health become lines and pictures, alone or beside another model's?"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from armillary.anatomy import Anatomy
from armillary.flow.tokens import Corpus
from armillary.probes.machinery import Floats
from armillary.probes.machinery.tables import head_map, line
from armillary.readouts.health.checks import BY_ID, health_lines, usual_values, weight_lines
from armillary.readouts.health.vitals import Vitals, Weights, measure
from armillary.results import Quantity
from armillary.results.sheets.health import Health, HealthLine

# What counts as a change from the base: half as much again, or two points of a share.
FACTOR, POINTS = 1.5, 0.02


def check_health(
    anatomy: Anatomy, corpus: Corpus, seed: int = 0, tell: Callable[[str], None] = lambda what: None
) -> Health:
    """All checks of one model on one text."""
    vitals = measure(anatomy, corpus, seed, tell)
    text = f"{corpus.source}, {corpus.documents} documents, {corpus.tokens} tokens"
    models = ", ".join(usual_values())
    if isinstance(vitals, Weights):
        lines = weight_lines(vitals.broken, vitals.largest, vitals.largest_name)
        return Health(anatomy.name, text, lines, usual_of=models)
    return Health(anatomy.name, text, health_lines(vitals), _pictures(vitals), models)


def broken_health(name: str, peaks: dict[str, float]) -> Health:
    """What can be said of a model that cannot be read because of its weights, by their largest magnitudes."""
    broken = tuple(label for label, peak in peaks.items() if not math.isfinite(peak))
    largest = max((label for label in peaks if label not in broken), key=lambda label: peaks[label], default="")
    lines = weight_lines(broken, peaks.get(largest, 0.0), largest)
    return Health(name, "no text was read: the weights are broken", lines, usual_of=", ".join(usual_values()))


def against(health: Health, base: Health) -> Health:
    """The same with the base's values beside it; a line that got worse is looked at."""
    known = {entry.id: entry for entry in base.lines}
    lines = tuple(_beside(entry, known.get(entry.id)) for entry in health.lines)
    return replace(health, lines=lines, base=base.model)


def _beside(entry: HealthLine, base: HealthLine | None) -> HealthLine:
    if base is None:
        return entry
    entry = replace(entry, base=base.shown)
    if entry.status != "ok" or not worse(entry, base):
        return entry
    return replace(entry, status="look", advice=f"It was {base.shown}: find out which step changed it.")


def worse(entry: HealthLine, base: HealthLine) -> bool:
    """Has it changed for the worse, by more than counts for nothing?"""
    check = BY_ID.get(entry.id)
    if check is None or not all(map(math.isfinite, (entry.value, base.value))):
        return False
    upper, lower = (base.value, entry.value) if check.low else (entry.value, base.value)
    if check.change:
        return upper - lower > check.change
    if check.share:
        return upper - lower > POINTS
    return upper > FACTOR * lower


def _pictures(v: Vitals) -> tuple[Quantity, ...]:
    sites, states = list(v.sites), list(v.states)

    def over(
        name: str, meaning: str, unit: str, axis: str, labels: list[str], values: Floats, log: bool = False
    ) -> Quantity:
        return line(name, meaning, unit, axis, labels, values, logs=("value",) if log else ())

    pictures = [
        over(
            "length of the stream",
            "mean ‖x‖ of ordinary tokens before each norm",
            "length",
            "site",
            sites,
            v.lengths,
            True,
        ),
        over(
            "effective rank",
            "participation ratio, standardised dimensions",
            "axes",
            "stream",
            states,
            v.dimensions,
        ),
        over("mean cosine", "of two tokens of different documents", "cosine", "stream", states, v.cones.cosine[0]),
        over(
            "largest coordinate over the median magnitude",
            "of the median document",
            "times the median",
            "stream",
            list(v.extremes.states),
            np.median(v.extremes.ratios, axis=0),
            True,
        ),
    ]
    if v.patterns is not None:
        pictures.append(head_map("entropy of attention", "over ln(keys): 1 is uniform", "share", v.pattern("entropy")))
        pictures.append(head_map("attention to the first token", "mean over queries", "share", v.pattern("first")))
    return tuple(pictures)

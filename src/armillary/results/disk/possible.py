"""Can a survey with these values be? Each field has its form; here fields are held against each other.

A file whose hash was written anew can say anything in the right form. What no survey can say is refused: an estimate
far from its interval, a verdict against its own limits, more heads than the model's width allows, a text of more
documents than tokens.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from armillary.results.limit import Limit

# What a number of this unit can be. Differences of cosines reach from −2 to 2.
UNITS = {
    "degrees": (0.0, 180.0),
    "°": (-180.0, 180.0),
    "cosine": (-2.0, 2.0),
    "per site": (0.0, math.inf),
    "times": (0.0, math.inf),
    "semi-axes": (0.0, math.inf),
    "machine epsilons": (0.0, math.inf),
}
DIGEST = re.compile("(?:[0-9a-f]{16})?", re.ASCII)
ROUNDING = 1e-6


def check_possible(record: Mapping[str, Any]) -> None:
    """A `ValueError` that names the first value that no survey can have."""
    for why in _impossible(record):
        raise ValueError(why)


def _impossible(record: Mapping[str, Any]) -> Iterator[str]:
    yield from _model(record["model"])
    yield from _text(record["text"])
    yield from _run(record)
    for claim in record["claims"]:
        yield from (f"{claim['id']}: {why}" for why in _claim(claim))


def _model(model: Mapping[str, Any]) -> Iterator[str]:
    heads, groups = model.get("heads", 0), model.get("kv_heads", 0)
    if groups > heads or (groups and heads % groups):
        yield f"model.kv_heads is {groups}, and {heads} heads cannot share so many"
    # Models of a width that heads do not divide have a width of heads of their own.
    for name in ("layers", "d"):
        if model.get("parameters") and not model.get(name):
            yield f"model.{name} is 0, and the model has {model['parameters']} parameters"
    for name in ("fingerprint", "checksum"):
        if not DIGEST.fullmatch(model.get(name, "")):
            yield f"model.{name} is {model[name][:40]!r}, which is not a hash"


def _text(text: Mapping[str, Any]) -> Iterator[str]:
    documents, tokens = text.get("documents", 0), text.get("tokens", 0)
    if documents > tokens:
        yield f"text.documents is {documents}, and there are {tokens} tokens"
    for name in ("one_token_documents", "documents_longer_than_context"):
        if text.get(name, 0) > documents:
            yield f"text.{name} is {text[name]}, and there are {documents} documents"
    if not DIGEST.fullmatch(text.get("checksum", "")):
        yield f"text.checksum is {text['checksum'][:40]!r}, which is not a hash"


def _run(record: Mapping[str, Any]) -> Iterator[str]:
    times, loss = record.get("times", {}), record.get("loss")
    if times.get("started") and not _is_date(times["started"]):
        yield f"times.started is {times['started'][:40]!r}, which is not a time"
    for name, value in (times.get("plan") or {}).items():
        if value is not None and value < 0:
            yield f"times.plan.{name} is {value}, which is below 0"
    arms = record.get("provenance", {}).get("arms", ())
    yield from (f"provenance.arms contains {name[:40]!r} twice" for name in _doubled(arms))
    yield from (f"the law {name[:40]!r} is there twice" for name in _doubled(law["name"] for law in record["laws"]))
    if loss and not len(loss["tokens"]) == len(loss["bytes"]) == len(loss["nats"]):
        yield "loss has lists of different lengths"
    if loss and any(nats is not None and nats < -ROUNDING for nats in loss["nats"]):
        yield "loss.nats contains a number below 0, which no probability gives"


def _claim(claim: Mapping[str, Any]) -> Iterator[str]:
    parts, limits = claim.get("parts", ()), claim.get("limits", ())
    unit = claim["statistic"]["unit"]
    yield from _number(claim["statistic"], unit)
    for control in claim["controls"]:
        yield from _interval(control)
    for entry in (*(part["statistic"] for part in parts), *(limit["measured"] for limit in limits)):
        if entry is not None:
            yield from _number(entry, entry["unit"])
    yield from (f"the part {name[:40]!r} is there twice" for name in _doubled(part["name"] for part in parts))
    asserted = [part["verdict"] for part in parts if part.get("asserted", True)]
    if claim["verdict"] == "supported" and "refuted" in asserted:
        yield "it is supported, and a part that its source asserts is refuted"
    yield from _against_limits(claim, parts, limits)
    for quantity in claim["quantities"]:
        yield from (f"{quantity['name'][:40]} {why}" for why in _band(quantity))


def _number(statistic: Mapping[str, Any], unit: str) -> Iterator[str]:
    least, most = UNITS.get(unit, (-math.inf, math.inf))
    for end in ("value", "low", "high"):
        if statistic[end] is not None and not least <= statistic[end] <= most:
            yield f"{statistic['name'][:60]} is {statistic[end]:g} {unit}, which cannot be"
    yield from _interval(statistic)


def _interval(statistic: Mapping[str, Any]) -> Iterator[str]:
    """An estimate may lie a little beside the interval of its bootstrap, never by more than its width. An end
    that is infinite or not known is stored as nothing."""
    value, low, high = (statistic[end] for end in ("value", "low", "high"))
    if None in (value, low, high):
        return
    room = (high - low) + ROUNDING * max(abs(low), abs(high), ROUNDING)
    if not low - room <= value <= high + room:
        yield f"{statistic['name'][:60]} is {value:g}, far from its interval [{low:g}, {high:g}]"


def _against_limits(
    claim: Mapping[str, Any], parts: Iterable[Mapping[str, Any]], limits: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    """What is supported lies on the right side of all its limits."""
    verdicts = {"": claim["verdict"]} | {part["name"]: part["verdict"] for part in parts}
    for entry in limits:
        limit = Limit(**{**entry, "measured": None})
        measured = (entry["measured"] or claim["statistic"])["value"]
        if limit.part not in verdicts:
            yield f"a limit decides the part {limit.part[:40]!r}, which is not there"
        elif verdicts[limit.part] != "supported" or measured is None:
            continue
        elif limit.holds(measured) != (limit.decides == "supported"):
            yield f"it is supported, and {measured:g} is not {limit.side} its limit {limit.value:g}"


def _band(quantity: Mapping[str, Any]) -> Iterator[str]:
    low, high = (_flat(quantity[end]) for end in ("low", "high"))
    for lower, upper in zip(low, high, strict=False):
        if lower is not None and upper is not None and lower > upper:
            yield f"has an interval from {lower:g} to {upper:g}, which is not an interval"
    yield from (f"has the axis {name[:40]!r} twice" for name in _doubled(quantity["axes"]))


def _flat(values: Any) -> Iterator[float | None]:
    if isinstance(values, list):
        for entry in values:
            yield from _flat(entry)
    else:
        yield values


def _doubled(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True

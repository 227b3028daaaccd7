"""Which lines are ok, which should be looked at, and which are bad?

Limits come from what a number means where that is known; `usual` comes from models at hand and decides only where
nothing else can: a line is looked at if it lies beyond four times the usual range.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from armillary.probes.machinery import Floats, T
from armillary.probes.machinery.verdicts import name_heads, name_sites
from armillary.readouts.health.vitals import SILENT, Vitals
from armillary.results.numbers import number
from armillary.results.sheets.health import HealthLine, Status

# Where float16 ends; a value within a factor of eight of it can pass it on another text.
HALF, ROOM = 65504.0, 8.0
# Beyond the usual range by this factor, a value that has no limit of its own is looked at.
BEYOND = 4.0
UNIFORM, COLLAPSED = 0.98, 0.02
# Streams whose mean cosine is at least this share of the largest are asked for rogue dimensions.
CONE = 0.5


@dataclass(frozen=True)
class Check:
    """One question. `answer` gives the value and where; `look` and `bad` are limits, None where there is none."""

    id: str
    name: str
    answer: Callable[[Vitals], tuple[float, str]]
    advice: str
    look: float | None = None
    bad: float | None = None
    low: bool = False
    """Are small values the bad ones?"""
    unit: str = ""
    share: bool = False
    ranged: bool = False
    """Is the usual range the limit?"""
    unusual: str = ""
    """What to do about a value that passes no limit, but lies outside the usual range; "": the same."""
    change: float = 0.0
    """By how much more than a base's value it is worse; 0: by half as much again, or by two points of a share."""

    def passes(self, value: float, limit: float | None) -> bool:
        return limit is not None and (value < limit if self.low else value > limit)

    def status(self, value: float, usual: tuple[float, float] | None) -> Status:
        if self.passes(value, self.bad):
            return "bad"
        if self.passes(value, self.look):
            return "look"
        outside = usual is not None and not usual[0] / BEYOND <= value <= usual[1] * BEYOND
        return "look" if self.ranged and outside else "ok"

    def show(self, value: float) -> str:
        if math.isnan(value):
            return "does not apply"
        return f"{self.plain(value)}{self.unit and ' ' + self.unit}"

    def plain(self, value: float) -> str:
        if self.share:
            # One unit of thousands is not none.
            return "below 0.1%" if 0 < value < 0.0005 else f"{value:.1%}"
        return number(value)

    def advise(self, value: float, status: Status) -> str:
        within = not self.passes(value, self.look) and not self.passes(value, self.bad)
        return "" if status == "ok" else self.unusual if self.unusual and within else self.advice


@cache
def usual_values() -> dict[str, dict[str, float | None]]:
    """Model → line → value, as `docs/usual.py` measured them."""
    return dict(json.loads(files("armillary.readouts.health").joinpath("usual.json").read_text("utf-8"))["models"])


def usual_range(id: str) -> tuple[float, float] | None:
    values = [lines[id] for lines in usual_values().values() if lines.get(id) is not None]
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def health_lines(vitals: Vitals) -> tuple[HealthLine, ...]:
    weights = vitals.weights
    lines = weight_lines(weights.broken, weights.largest, weights.largest_name)
    return (*lines, *(_line(check, vitals) for check in CHECKS))


def weight_lines(broken: Sequence[str], largest: float, largest_name: str) -> tuple[HealthLine, ...]:
    """What can be said of the weights alone: those that hold NaN or infinity, and the largest of the others."""
    count = len(broken)
    finite = HealthLine(
        "weights.finite",
        "weights that hold NaN or infinity",
        "bad" if count else "ok",
        float(count),
        f"{count} tensor{'s' * (count > 1)}" if count else "none",
        "none",
        name_sites(broken, 3),
        "Go back to the last checkpoint without; lower the rate or clip gradients." if count else "",
    )
    return finite, _made(LARGEST, largest, largest_name)


def _line(check: Check, vitals: Vitals) -> HealthLine:
    return _made(check, *check.answer(vitals))


def _made(check: Check, value: float, where: str) -> HealthLine:
    usual = usual_range(check.id)
    status: Status = "ok" if math.isnan(value) else check.status(value, usual)
    ends = [] if usual is None else list(dict.fromkeys(map(check.plain, usual)))
    advice = check.advise(value, status)
    return HealthLine(check.id, check.name, status, value, check.show(value), " to ".join(ends), where, advice)


def _loss(v: Vitals) -> tuple[float, str]:
    bits = "" if math.isnan(v.losses.bits_per_byte) else f"{number(v.losses.bits_per_byte)} bits per byte, "
    shown = f"{bits}perplexity {number(math.exp(min(v.losses.text, 700.0)))}" if v.losses.text == v.losses.text else ""
    return v.losses.text / math.log(v.anatomy.vocabulary), shown


def _copy(v: Vitals) -> tuple[float, str]:
    where = f"{number(v.losses.first)} nats, then {number(v.losses.second)}" if v.losses.first == v.losses.first else ""
    return v.losses.second / v.losses.first if v.losses.first else float("nan"), where


def _growth(v: Vitals) -> tuple[float, str]:
    known = v.lengths[np.isfinite(v.lengths) & (v.lengths > 0)]
    if len(known) < 2:
        return float("nan"), ""
    ends = (f"{number(v.lengths[at])} at {v.sites[at]}" for at in (0, -1))
    return float(known.max() / known.min()), ", ".join(ends)


def _largest(values: Floats) -> int | None:
    """The place of the largest number; None where no token was ordinary enough to measure any."""
    return int(np.nanargmax(values)) if np.isfinite(values).any() else None


def _rank(v: Vitals) -> tuple[float, str]:
    at = _largest(-v.dimensions)
    return (float("nan"), "") if at is None else (float(v.dimensions[at]), f"at {v.states[at]}, of {v.anatomy.d}")


def _cone(v: Vitals) -> tuple[float, str]:
    at = _largest(v.cones.cosine[0])
    return (float("nan"), "") if at is None else (float(v.cones.cosine[0, at]), f"at {v.states[at]}")


def _rogue(v: Vitals) -> tuple[float, str]:
    """The largest share where tokens share a direction at all: in the one stream with the largest cosine it would jump
    when two models, nearly the same, have that in different layers."""
    cosine = v.cones.cosine[0]
    widest = _largest(cosine)
    if widest is None:
        return float("nan"), ""
    at = _largest(np.where(cosine >= CONE * cosine[widest], v.cones.rogue[0], np.nan))
    if at is None:
        return float("nan"), ""
    return float(v.cones.rogue[0, at]), f"dimensions {', '.join(map(str, v.cones.dimensions[at]))} at {v.states[at]}"


def _massive(v: Vitals) -> tuple[float, str]:
    ratios = np.median(v.extremes.ratios, axis=0)
    at = int(np.argmax(ratios))
    column = v.extremes.dimension[:, at]
    dimension = int(np.bincount(column).argmax())
    first = float((v.extremes.position[:, at] == 0).mean())
    where = f"{v.extremes.states[at]}, dimension {dimension}, first token in {first:.0%} of documents"
    names = [_token(v, token) for token, _ in Counter(v.extremes.token[:, at].tolist()).most_common(3)]
    return float(ratios[at]), f"{where}, tokens {', '.join(names)}"


def _token(v: Vitals, token: int) -> str:
    """A token as its tokenizer writes it; its id without one."""
    tokenizer = v.anatomy.tokenizer
    return str(token) if tokenizer is None else repr(tokenizer.decode([token]))


def _sinks(v: Vitals) -> tuple[float, str]:
    flags = v.pattern("first") > T.sink_attention
    return (float(flags.mean()), name_heads(flags, 3)) if v.patterns is not None else (float("nan"), "")


def _uniform(v: Vitals) -> tuple[float, str]:
    flags = v.pattern("entropy") > UNIFORM
    return (float(flags.mean()), name_heads(flags, 3)) if v.patterns is not None else (float("nan"), "")


def _collapsed(v: Vitals) -> tuple[float, str]:
    flags = v.pattern("entropy") < COLLAPSED
    return (float(flags.mean()), name_heads(flags, 3)) if v.patterns is not None else (float("nan"), "")


def _silent_heads(v: Vitals) -> tuple[float, str]:
    flags = v.writes < SILENT
    return float(flags.mean()), name_heads(flags, 3)


def _mute(v: Vitals) -> tuple[float, str]:
    places = [f"L{layer} unit {unit}" for layer, flags in enumerate(v.mute) for unit in np.flatnonzero(flags)]
    return len(places) / max(1, sum(map(len, v.mute))), name_sites(places, 3)


def _units(name: str) -> Callable[[Vitals], tuple[float, str]]:
    def answer(v: Vitals) -> tuple[float, str]:
        flags = np.stack([getattr(units, name) for units in v.units])
        places = []
        for layer, unit in np.argwhere(flags):
            twin = f" = {v.units[layer].partner[unit]}" if name == "double" else ""
            places.append(f"L{layer} unit {unit}{twin}")
        return float(flags.mean()), name_sites(places, 3)

    return answer


def _flat(v: Vitals) -> tuple[float, str]:
    flat = {site: count for site, count in v.weights.flat.items() if count}
    return sum(flat.values()) / max(1, v.weights.axes), name_sites([f"{n} at {site}" for site, n in flat.items()], 3)


def _tokens(v: Vitals, flags: Sequence[bool]) -> str:
    ids = np.flatnonzero(flags).tolist()
    # A long list is named by its first three alone.
    return name_sites([f"token {i}{_written(v, i) if n < 3 else ''}" for n, i in enumerate(ids)], 3)


def _written(v: Vitals, token: int) -> str:
    """A token's text behind its id; nothing for rows beyond the tokenizer's own."""
    text = v.anatomy.tokenizer.decode([token]) if v.anatomy.tokenizer is not None else ""
    # A part of a letter is no text.
    return f" {text!r}" if text.strip() and text.isprintable() and "\ufffd" not in text else ""


def _short(v: Vitals) -> tuple[float, str]:
    return float(v.weights.short.mean()), _tokens(v, v.weights.short.tolist())


def _twins(v: Vitals) -> tuple[float, str]:
    return float(v.weights.twins.mean()), _tokens(v, v.weights.twins.tolist())


def _margin(v: Vitals) -> tuple[float, str]:
    """How many times the largest activation fits below the end of float16."""
    peaks = {"feed-forward units": max(float(layer.peak.max()) for layer in v.hidden)}
    peaks["the stream"] = float(np.abs(v.extremes.value).max())
    peaks |= {} if math.isnan(v.logits) else {"logits": v.logits}
    name = max(peaks, key=lambda key: peaks[key])
    return HALF / max(peaks[name], 1e-30), f"largest: {number(peaks[name])}, {name}"


LARGEST = Check(
    "weights.largest",
    "largest weight",
    lambda v: (v.weights.largest, v.weights.largest_name),
    "Too large for float16; find out which step made it, keep the tensor in bfloat16 or float32.",
    look=HALF / ROOM,
    bad=HALF,
    ranged=True,
    unusual="Find out which step made it: a rate that is too high, weight decay, or weights that were never trained.",
)
CHECKS: tuple[Check, ...] = (
    # A twentieth of a nat per token, as for an edit that costs something, is about 0.005 of ln(vocabulary).
    Check("loss.text", "loss on the text, over a blind guess", _loss,
          "1 is what guessing costs: check the tokenizer and the text, or whether training has diverged.",
          look=0.75, bad=1.0, change=0.005),
    Check("loss.copy", "loss of a repetition, over the first", _copy,
          "The model does not copy from its context; expected early in training, or without induction heads.",
          look=1.05),
    Check("stream.growth", "growth of the stream with depth", _growth,
          "The stream grows or shrinks unusually; look at the rate, the norms and the scale of writes.", ranged=True),
    Check("stream.rank", "effective rank, standardised, least", _rank,
          "Tokens differ along hardly any direction (collapse); look at the rate, and at norms and skips.",
          look=4.0, bad=2.0, low=True, unit="axes"),
    Check("stream.cone", "mean cosine of two tokens, largest", _cone,
          "All tokens point the same way (above 0.99: collapse); standardise before comparing by cosine.",
          look=0.90, bad=0.99),
    Check("stream.rogue", "cosine due to three dimensions", _rogue,
          "Leave these dimensions out, or standardise, before comparing vectors.", look=0.95, share=True),
    Check("stream.massive", "largest coordinate over the median", _massive,
          "Usual in large models; quantise these dimensions and tokens apart.", look=T.massive_ratio),
    Check("heads.sinks", "heads that rest on the first token", _sinks,
          "Keep the first token in a sliding window or a cache.", look=0.80, share=True),
    Check("heads.uniform", "heads that attend to all alike", _uniform,
          "These heads choose nothing: they can be pruned, or their queries and keys have not been trained.",
          # As for heads on one token: none at hand is uniform, and one of 28 was zeroed on purpose.
          look=0.02, bad=0.50, share=True),
    Check("heads.collapsed", "heads that attend to one token", _collapsed,
          # MiniLM-L6 has one such head of 72, SmolLM2 two of 270.
          "Their scores are very large. Some heads learn this; if it is new, lower the rate or normalise q and k.",
          look=0.02, bad=0.50, share=True),
    Check("heads.silent", "heads that write nothing", _silent_heads,
          "These heads can be removed; if there are many, look at weight decay and the initial scale.",
          look=0.0, bad=0.10, share=True),
    Check("units.dead", "units that never fire", _units("silent"),
          "Dead on this text; try more text, then prune them, or lower the rate.", look=0.0, bad=0.50, share=True),
    Check("units.mute", "units that write nothing", _mute,
          "Their rows of W_out are zero: prune them, or look at what zeroed them.", look=0.0, bad=0.50, share=True),
    Check("units.always", "units that are always on", _units("always"),
          "These units are a bias; they cost time and choose nothing.", look=0.10, bad=0.50, share=True),
    Check("units.double", "units that duplicate another", _units("double"),
          "Merge each pair: add their rows of W_out and drop one.", look=0.0, bad=0.10, share=True),
    Check("norms.flat", "axes that γ has switched off", _flat,
          "The sublayer cannot read these axes; usual after strong weight decay on γ.",
          # Of all norms' axes: a quarter of one norm's in seven blocks is 1.6 %, and models at hand have 0.1 % at most.
          look=0.01, bad=0.50, share=True),
    Check("embeddings.short", "embeddings of hardly any length", _short,
          "These tokens were never trained; remove them, or keep them out of the text.",
          look=0.01, bad=0.50, share=True),
    Check("embeddings.double", "embeddings that coincide", _twins,
          "Tokens the model cannot tell apart, often never trained; check how the vocabulary was extended.",
          look=0.05, bad=0.50, share=True),
    Check("half.margin", "room below the end of float16", _margin,
          "Run in bfloat16 or float32; in float16 this can become infinity and then NaN.",
          look=ROOM, bad=1.0, low=True, unit="times"),
)  # fmt: skip
BY_ID = {check.id: check for check in (LARGEST, *CHECKS)}

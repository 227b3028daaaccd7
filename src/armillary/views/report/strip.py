"""A finding's number on its own scale: interval, limits, prediction and controls, each told by its shape."""

from collections.abc import Sequence

from armillary.results.claim import Finding, Verdict
from armillary.results.numbers import number, say
from armillary.results.statistic import Control, Statistic
from armillary.views.figures.marks import COLOURS
from armillary.views.text.quoting import html_text
from armillary.views.text.strip_scale import StripScale, comparison, on_strip

_WIDTH, _MIDDLE, _HEIGHT = 176, 11, 34
# The verdicts' marks as SVG.
_RING = "<circle class='hole' r='5' stroke-width='2'/>"
_SHAPES: dict[Verdict, str] = {
    "supported": "<circle r='5.5'/>",
    "qualified": f"{_RING}<path d='M0 -5a5 5 0 0 0 0 10z'/>",
    "refuted": "<path d='M-4.5 -4.5l9 9m0 -9l-9 9' stroke-width='3'/>",
    "undecided": _RING,
    "failed": "<path d='M0 -5v5.5m0 3.5v1.5' stroke-width='2.6'/>",
}
# Controls differ in shape: diamond, triangle, square, triangle on its head, bow tie, trapezium; then as before.
_CONTROLS = (
    "M0 -6l6 6l-6 6l-6 -6z",
    "M0 -6l6 10.5h-12z",
    "M-4.8 -4.8h9.6v9.6h-9.6z",
    "M0 6l6 -10.5h-12z",
    "M-5.5 -5v10l11 -10v10z",
    "M-3 -5h6l3 10h-12z",
)


def strip_html(finding: Finding, keys: bool = True) -> str:
    """The strip as SVG, and below it what its signs stand for."""
    scale = StripScale.of(finding)
    if scale is None:
        return ""
    drawn = [_axis(scale), *_limits(finding, scale)]
    for index, control in enumerate(finding.controls):
        drawn.append(_whisker(scale, control, "class='control'", 2))
        if (at := scale.at(control.value)) is not None:
            drawn.append(f"<path class='control' transform='{_to(at)}' d='{_CONTROLS[index % len(_CONTROLS)]}'/>")
    colour = COLOURS[finding.verdict]
    drawn.append(_whisker(scale, finding.statistic, f"stroke='{colour}'", 4))
    if (at := scale.at(finding.statistic.value)) is not None:
        shape = _SHAPES[finding.verdict]
        drawn.append(f"<g transform='{_to(at)}' stroke='{colour}' fill='{colour}'>{shape}</g>")
    label = html_text(f"{number(finding.statistic.value)} on its own scale. {comparison(finding)}")
    size = f"class='strip' width='{_WIDTH}' height='{_HEIGHT}' viewBox='0 0 {_WIDTH} {_HEIGHT}'"
    svg = f"<svg {size} role='img' aria-label='{label}'>{''.join(drawn)}</svg>"
    return svg + (f"<ul class='keys'>{''.join(_keys(finding))}</ul>" if keys else "")


def _axis(scale: StripScale) -> str:
    """A line with ticks and their numbers."""
    ticks = {at * _WIDTH: text for value, text in scale.ticks().items() if (at := scale.at(value)) is not None}
    marks = "".join(
        f"<line class='tick' x1='{x:.1f}' x2='{x:.1f}' y1='{_MIDDLE - 2}' y2='{_MIDDLE + 12}'/>"
        f"<text class='tick' x='{x:.1f}' y='{_HEIGHT - 2}' text-anchor='{_anchor(x)}'>{html_text(text)}</text>"
        for x, text in ticks.items()
    )
    return f"<line class='rule' x1='0' x2='{_WIDTH}' y1='{_MIDDLE}' y2='{_MIDDLE}'/>{marks}"


def _anchor(x: float) -> str:
    return "start" if x < 14 else "end" if x > _WIDTH - 14 else "middle"


def _limits(finding: Finding, scale: StripScale) -> list[str]:
    """Limits as lines with a flag to the side on which the claim holds; the prediction as a dotted line."""
    drawn = []
    if finding.prediction is not None and (at := scale.at(finding.prediction.value)) is not None:
        drawn.append(f"<path class='prediction' d='M{at * _WIDTH:.1f} 0v{2 * _MIDDLE}'/>")
    for limit in on_strip(finding):
        if (at := scale.at(limit.value)) is not None:
            right = (limit.side == "above") == (limit.decides == "supported")
            flag = "" if limit.side == "at" else f"M{at * _WIDTH:.1f} 0h{5 if right else -5}l{-5 if right else 5} 5"
            drawn.append(f"<path class='limit' d='M{at * _WIDTH:.1f} 0v{2 * _MIDDLE}{flag}'/>")
    return drawn


def _keys(finding: Finding) -> list[str]:
    """The limits, the prediction and every control, with their numbers."""
    keys = []
    if finding.limits and finding.limits[0].measured is not None:
        # What decided is a number of one part, which has no place on this scale.
        keys.append(f"<li class='elsewhere'>{html_text(comparison(finding))}</li>")
    keys += [
        _key("<path class='limit' d='M0 -6v12M0 -6h5l-5 5'/>", f"limit {say(limit.value)}, {limit.meaning}")
        for limit in on_strip(finding)
    ]
    if finding.prediction is not None:
        predicted = f"{say(finding.prediction.value)}, {finding.prediction.meaning}"
        keys.append(_key("<path class='prediction' d='M0 -6v12'/>", predicted))
    for index, control in enumerate(finding.controls):
        shape = f"<path class='control' d='{_CONTROLS[index % len(_CONTROLS)]}'/>"
        keys.append(_key(shape, f"{number(control.value)} {control.name}"))
    return keys or ["<li>no control</li>"]


def _key(shape: str, text: str) -> str:
    sign = f"<svg width='14' height='12' viewBox='-7 -6.5 14 13' aria-hidden='true'>{shape}</svg>"
    return f"<li title='{html_text(text)}'>{sign}{html_text(text)}</li>"


def _to(at: float) -> str:
    return f"translate({at * _WIDTH:.1f} {_MIDDLE})"


def _whisker(scale: StripScale, number: Statistic | Control, look: str, width: int) -> str:
    ends: Sequence[float] = [end for end in (scale.at(number.low), scale.at(number.high)) if end is not None]
    if len(ends) < 2:
        return ""
    x1, x2 = (f"{end * _WIDTH:.1f}" for end in ends)
    return f"<line {look} x1='{x1}' x2='{x2}' y1='{_MIDDLE}' y2='{_MIDDLE}' stroke-width='{width}'/>"

"""What the claim about long generations says in parts: states stay, the text stays, norms do it."""

from armillary.probes.machinery import Evidence, T, name_sites
from armillary.probes.stability.nudges.growth import APART, FROZEN, LIVE
from armillary.probes.stability.writing.departures import Departures, Side
from armillary.probes.stability.writing.generating import ANEW
from armillary.results import Part, Statistic, Verdict, Why, say


def states_stay(evidence: Evidence, departures: Departures) -> Part:
    return _stays(evidence, departures, LIVE, "states stay", "With norms live")


def read_anew(evidence: Evidence, departures: Departures) -> Part:
    """Beside the cache that evicts: states that are computed anew at every slide."""
    what = "With norms live and the rest of the window read again at every slide"
    return _stays(evidence, departures, ANEW, "states stay with the window read anew", what, asserted=False)


def very_long(evidence: Evidence, departures: Departures) -> Part:
    """A text that fits into the context says nothing about longer ones."""
    tokens, context = departures.windows * departures.window, evidence.anatomy.context
    beyond = tokens > context
    text = f"{tokens} tokens were written; the model's context holds {context}"
    text += "." if beyond else ", so this says nothing about longer texts."
    ratio = tokens / context
    statistic = Statistic("tokens written over the context", ratio, ratio, ratio)
    return Part("longer than the context", "supported" if beyond else "qualified", text, statistic)


def frozen_arms(departures: Departures) -> list[str]:
    return [arm for arm in (FROZEN, APART) if arm in departures.measured.arms]


def _stays(evidence: Evidence, departures: Departures, arm: str, name: str, what: str, asserted: bool = True) -> Part:
    count = departures.measured.states
    sides = departures.sides(evidence, arm)[:count]
    names = departures.measured.names[:count]
    statistic = Statistic(f"share of state quantities beyond the band, {arm}", *departures.share(evidence, arm))
    verdict = _verdict(sides)
    text = f"{what}, {_count(sides, 'outside')} of {count} state quantities end beyond the band of real text"
    text += _named(names, sides) + "."
    return Part(name, verdict, text, statistic, asserted, _why(evidence, departures, verdict))


def text_stays(evidence: Evidence, departures: Departures) -> Part:
    count = departures.measured.states
    sides, names = departures.sides(evidence, LIVE)[count:], departures.measured.names[count:]
    level = departures.collapsed(evidence)
    sides, names = [*sides, *level], (*names, "repetition at the end", "lack of distinct pairs at the end")
    statistic = Statistic(
        "share of text quantities beyond the band, norms live", *departures.share(evidence, LIVE, False)
    )
    verdict = _verdict(sides)
    text = f"Of {len(sides)} text quantities, {_count(sides, 'outside')} end beyond the band{_named(names, sides)}."
    shares = {arm: say(departures.share(evidence, arm, False)[0], ".0%") for arm in frozen_arms(departures)}
    text += f" With norms {'; '.join(f'{arm}, {share} do' for arm, share in shares.items())}."
    return Part("the text stays coherent", verdict, text, statistic, why=_why(evidence, departures, verdict))


def norms_do_it(evidence: Evidence, departures: Departures) -> Part:
    count = departures.measured.states
    arms = {arm: departures.sides(evidence, arm)[:count] for arm in frozen_arms(departures)}
    least = T.generation_most * count
    leaves = {arm: _count(sides, "outside") >= least for arm, sides in arms.items()}
    some = [arm for arm, sides in arms.items() if _count(sides, "outside")]
    verdict: Verdict = "undecided"
    if all(leaves.values()):
        verdict = "supported"
    elif some:
        verdict = "qualified"
    elif not any(side == "open" for sides in arms.values() for side in sides):
        verdict = "refuted"
    counts = "; ".join(f"{arm}, {_count(sides, 'outside')} of {count}" for arm, sides in arms.items())
    text = f"State quantities that lie beyond the band with norms frozen: {counts}."
    if leaves[FROZEN] and not leaves.get(APART, True):
        inside, unknown = (_count(arms[APART], side) for side in ("inside", "open"))
        text += (
            f" So mostly the first tokens of a window make the frozen model leave the band: with their own scale, "
            f"{inside} quantities stay within it, and {unknown} are not decided."
        )
    statistic = Statistic("share of state quantities beyond the band, frozen", *departures.share(evidence, FROZEN))
    return Part("norms do it", verdict, text, statistic, why=_why(evidence, departures, verdict))


def _verdict(sides: list[Side]) -> Verdict:
    """Supported if all lie inside, refuted if half or more lie outside, qualified if some do."""
    outside = _count(sides, "outside")
    if outside:
        return "refuted" if outside >= T.generation_most * len(sides) else "qualified"
    return "undecided" if "open" in sides else "supported"


def _why(evidence: Evidence, departures: Departures, verdict: Verdict) -> Why | None:
    if verdict != "undecided":
        return None
    return Why.SPANS_LIMIT if len(departures.trends(LIVE)) >= T.documents_least else Why.NO_INTERVAL


def _count(sides: list[Side], side: Side) -> int:
    return sum(each == side for each in sides)


def _named(names: tuple[str, ...], sides: list[Side]) -> str:
    """Which lie outside, and which cannot be told."""
    phrases = []
    for side, what in (("outside", ""), ("open", "not decided: ")):
        chosen = [name for name, own in zip(names, sides, strict=True) if own == side]
        phrases += [what + name_sites(chosen)] if chosen else []
    return f" ({'; '.join(phrases)})" if phrases else ""

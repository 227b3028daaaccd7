"""Which phenomena do heads resolve, group by group, and are these heads of use?"""

from functools import cached_property

import numpy as np

from armillary.probes.grid.language.attention_gaps import LanguagePasses
from armillary.probes.grid.language.effects import best_gap, best_heads, significant, weaker
from armillary.probes.grid.language.templates import GROUPS
from armillary.probes.machinery import (
    MODEL,
    Evidence,
    Flags,
    Floats,
    Interval,
    T,
    above,
    all_of,
    beats,
    by_sides,
    missing_interval,
    over_twins,
)
from armillary.probes.machinery.verdicts import largest_head, name_sites
from armillary.results import Part, Statistic, Why, say


class LanguageEffects:
    """Gaps of the best heads with their intervals, in the model and in untrained ones."""

    def __init__(self, passes: LanguagePasses, evidence: Evidence) -> None:
        self.passes, self.evidence, self.seed = passes, evidence, evidence.seed
        self.values = passes.gaps[MODEL]
        tests = len(self.values)
        self.gaps: dict[str, Interval] = {n: best_gap(v, self.seed, tests) for n, v in self.values.items()}
        twins = [passes.gaps[arm] for arm in evidence.twins if arm in passes.gaps]
        self.twins = len(twins)
        self.untrained: dict[str, Interval] = {}
        for name in self.values:
            value, low, high = over_twins([best_gap(twin[name], self.seed, tests) for twin in twins]).tolist()
            self.untrained[name] = (value, low, high)

    @cached_property
    def significant(self) -> dict[str, Flags]:
        return significant(self.values)

    def tells(self, name: str) -> Flags:
        """[layer, head]: significant and large enough on all items."""
        return np.asarray(self.significant[name] & (self.means(name) >= T.language_attention))

    def means(self, name: str) -> Floats:
        """[layer, head]: on all items, in the weaker order."""
        return weaker(self.values[name])

    @property
    def weakest(self) -> str:
        """The phenomenon with the smallest gap."""
        return min(self.gaps, key=lambda name: self.gaps[name][0])

    def resolved(self, name: str) -> bool | None:
        """None where the interval spans a limit, or where nothing is known of untrained models."""
        if not any(self.significant[name][head] for head in best_heads(self.values[name])):
            return False
        gap = self.gaps[name]
        return all_of(above(gap, T.language_attention), beats(gap, self.untrained[name], self.twins))


def language_parts(effects: LanguageEffects) -> tuple[Part, ...]:
    return (*(_group(effects, group, names) for group, names in GROUPS.items()), _use(effects))


def _group(effects: LanguageEffects, group: str, names: tuple[str, ...]) -> Part:
    measured = [name for name in names if name in effects.gaps]
    missing = [f"{name} ({effects.passes.used[name]} items)" for name in names if name not in effects.gaps]
    left_out = f" Left out, for lack of readable items: {name_sites(missing)}." if missing else ""
    if not measured:
        return Part(group, "undecided", f"Nothing was measured.{left_out}", why=Why.UNDEFINED)
    sides = {name: effects.resolved(name) for name in measured}
    verdict = by_sides(sides.values())
    weak = min(measured, key=lambda name: effects.gaps[name][0])
    more = " More items would decide." if verdict == "undecided" else ""
    phrases, most = [_phrase(effects, name) for name in measured], max(effects.untrained[name][0] for name in measured)
    return Part(
        group,
        verdict,
        f"{', '.join(phrases)}; untrained models at most {say(most, '+.2f')}.{more}{left_out}",
        Statistic(f"gap of the best head, {weak}", *effects.gaps[weak]),
        why=_why(effects, weak) if verdict == "undecided" else None,
    )


def _why(effects: LanguageEffects, name: str) -> Why:
    return Why.NO_CONTROL if np.isnan(effects.untrained[name][2]) else missing_interval(*effects.gaps[name])


def _phrase(effects: LanguageEffects, name: str) -> str:
    """'agreement +0.43 (L4H1 and 3 more heads)': the best head's gap, and which heads tell it."""
    count = int(effects.tells(name).sum())
    more = "" if count < 2 else f" and {count - 1} more {'head' if count == 2 else 'heads'}"
    which = f"{largest_head(effects.means(name))}{more}" if count else "no head"
    return f"{name} {say(effects.gaps[name][0], '+.2f')} ({which})"


def _use(effects: LanguageEffects) -> Part:
    name = "they are of use"
    if not effects.passes.costs:
        reading = "Whether heads are of use cannot be measured: the model predicts no next token."
        return Part(name, "undecided", reading, asserted=False, why=Why.NOT_APPLICABLE)
    shown = {group for group, names in GROUPS.items() if any(n in effects.gaps and effects.resolved(n) for n in names)}
    if not shown:
        reading = "No head resolves anything, so there is none to remove."
        return Part(name, "undecided", reading, asserted=False, why=Why.UNDEFINED)
    beyond = {group: cost.beyond(effects.seed) for group, cost in effects.passes.costs.items() if group in shown}
    sides = [above(value, T.language_cost) for value in beyond.values()]
    verdict = by_sides(sides)
    weak = min(beyond, key=lambda group: beyond[group][0])
    phrases = [f"{group} {say(value[0], '+.2f')}" for group, value in beyond.items()]
    return Part(
        name,
        verdict,
        "Rise of the loss when the best heads are removed, on other items beyond that on text, in nats per token: "
        f"{', '.join(phrases)}.",
        Statistic(f"nats per token more on items than on text, {weak}", *beyond[weak], "nats/token"),
        asserted=False,
        why=missing_interval(*beyond[weak]) if verdict == "undecided" else None,
    )

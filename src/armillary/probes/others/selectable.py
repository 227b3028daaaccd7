"""Does scaling make every key selectable, and does projection make uniform attention easy?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    AnyInstrument,
    Evidence,
    Floats,
    Interval,
    T,
    above,
    all_of,
    beats,
    by_share,
    mean,
    missing_interval,
    undecided,
    weighed,
)
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.results import (
    Claim,
    Control,
    Finding,
    Part,
    Quantity,
    Rewording,
    RuleChange,
    Statistic,
    Table,
    Verdict,
    Why,
    say,
)

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench
    from armillary.probes.others.key_hulls import KeyHulls

UNSCALED = "without scaling"
NAMES = {
    "inside": "keys inside the hull of the others, in the head's axes",
    "unscaled": "the same without scaling",
    "few": "the same in eight random axes of the head",
    "few_unscaled": "these without scaling",
    "stream": "the same of the vectors that keys are made of, in all d axes",
    "stream_unscaled": "these vectors without scaling",
}


@dataclass(frozen=True)
class Selectable:
    """Keys inside the hull of a document's other keys, with and without scaling; a query along the plane's normal."""

    claim: ClassVar[Claim] = Claim(
        id="others.brody",
        chapter="H",
        statement="Norms make every key selectable, by scaling, and uniform attention easy, by projection.",
        source="Brody, Alon and Yahav 2023 (arXiv:2305.02582)",
        question=(
            "Is there, for every key, a query that picks out this key, and is it the norm that makes this so? Can "
            "one query also attend to all keys equally?"
        ),
        definition=(
            "Is there, for every key, a query that gives this key the highest score of its document? There is none "
            "if the key lies inside, that is, in the convex hull of the other keys. The statistic is the share of "
            "keys inside, among keys of single heads, rotated to their places. It is taken over up to 256 keys of a "
            "document, 6 layers, 8 heads of each, and 8 tested keys of each document.\n"
            "Without scaling, the norm before attention multiplies by one constant instead of dividing by each "
            "token's own spread. The states that it receives are the model's.\n"
            "The source asks the same of the vectors that keys are made of, in all d axes, in models with d = 8. On "
            "the sphere the share is 0 there by definition, and with fewer than d + 2 keys it is 0 without a norm as "
            "well (two columns of the table). Eight random axes of a head stand for the source's width, and decide "
            "nothing.\n"
            "Uniform attention: LayerNorm leaves nothing along the all-ones vector 1, the normal of its plane. So a "
            "query q with γ W_K q along 1 scores all keys alike (γ is the norm's gain). A head has k of d axes, so "
            "it reaches only a part of that direction. The query whose γ W_K q is nearest to it, as long as the "
            "head's median query, is scored by the entropy of its attention, over ln(keys): 1 if all keys get as "
            "much. RMSNorm projects nothing; there parts 3 and 4 are left out."
        ),
        control=(
            "no scaling; eight axes of a head; all d axes; random initialisation (all twins); for the entropy "
            "random queries of the same length, and the same query with the mean of coordinates left in"
        ),
        rule=(
            "Three parts; the weakest decides. A number lies above or below a limit only if its whole interval "
            "does.\n"
            "Part 1, every key is selectable.\n"
            f"Supported if less than {T.hull_none:.0%} of keys lie inside.\n"
            f"Refuted if more than {T.hull_many:.0%} do.\n"
            "Qualified in between.\n"
            "Part 2, scaling does it. The share of keys inside without scaling, minus the share with it, is compared "
            f"with {T.hull_freed:.0%}.\n"
            "Supported if it lies above.\n"
            "Refuted if it lies below.\n"
            "Part 3, one query attends to all keys alike (LayerNorm). A head can do this if the entropy of its query "
            f"along the normal lies above {T.uniform_entropy}.\n"
            f"Supported if {T.sites_most:.0%} of heads can.\n"
            f"Refuted if at most {T.sites_few:.0%} could within their intervals.\n"
            f"Qualified in between, and also where random queries of that length reach {T.uniform_entropy} in the "
            "median head.\n"
            "Part 4 is ours and decides nothing: the model uses the normal.\n"
            f"Supported if γ W_K q of the model's own queries has more than {T.normal_used:g} times the squared "
            "component of a random direction along 1, and more than in untrained models.\n"
            f"Refuted if it has less than {T.normal_used:g} times, or less than untrained models reach.\n"
            "Every part is undecided where an interval spans its limit. Without untrained models part 4 is refuted "
            "or undecided."
        ),
        kind="behaviour",
        changes=(
            RuleChange(
                "2026-11-18",
                "The entropy of a random query was compared without its interval. Where that spans the limit, the part "
                "is undecided.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "440f174ba6fc", 1),
            Rewording("2026-11-18", "dda41325269e", 1),
            Rewording("2026-11-19", "63c6d77f7430", 1),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.machinery.bench import DOCUMENTS, TOKENS
        from armillary.probes.machinery.plan import arms_of
        from armillary.probes.others.key_hulls import KEYS_MOST

        # Every arm but shuffled text, on documents that are longer than the evaluation text's.
        return (arms_of(anatomy) - 1) * KEYS_MOST * DOCUMENTS / TOKENS

    def experiment(self, bench: "Bench") -> "dict[str, KeyHulls] | None":
        from armillary.probes.others.key_hulls import key_hulls

        by_arm = {arm: key_hulls(bench, arm) for arm in (MODEL, *bench.twins)}
        return {arm: hulls for arm, hulls in by_arm.items() if hulls is not None} or None

    def conclude(self, evidence: Evidence, result: "dict[str, KeyHulls] | None") -> Finding:
        if result is None:
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, "No document has three tokens. Give longer documents.")
        hulls = result[MODEL]
        inside, unscaled = _share(evidence, hulls, "inside"), _share(evidence, hulls, "unscaled")
        parts = [_selectable(inside), _scaling(evidence, hulls, unscaled)]
        if hulls.projected:
            parts += [_uniform(evidence, hulls), _used(evidence, result)]
        return Finding(
            claim=self.claim,
            **weighed(
                parts,
                f"Documents have {np.median(hulls.keys):.0f} keys in the median, heads {hulls.axes} axes. "
                + " ".join(part.reading for part in parts)
                + ("" if hulls.projected else " RMSNorm projects nothing, so uniform attention is not tested."),
                more=True,
            ),
            statistic=Statistic("share of keys that no query can select, over heads", *inside),
            n=int(hulls.sums["inside"][..., 0].sum()),
            controls=(
                Control(UNSCALED, *unscaled),
                Control(RANDOM, *evidence.over_twins(lambda arm: _share(evidence, result[arm], "inside"))),
                Control("eight axes of a head", *_share(evidence, hulls, "few")),
                Control(f"eight axes of a head, {UNSCALED}", *_share(evidence, hulls, "few_unscaled")),
                Control(f"all d axes, {UNSCALED}", *_share(evidence, hulls, "stream_unscaled")),
            ),
            headline=f"{say(inside[0], '.1%')} of keys cannot be selected by any query; without scaling it would be "
            f"{say(unscaled[0], '.1%')}",
            table=_table(evidence, hulls),
            quantities=_lines(evidence, hulls),
        )


def _share(evidence: Evidence, hulls: "KeyHulls", name: str) -> Interval:
    """Over heads and documents."""
    return evidence.interval(hulls.sums[name].sum(1))


def _selectable(inside: Interval) -> Part:
    some, many = above(inside, T.hull_none), above(inside, T.hull_many)
    verdict: Verdict = "undecided"
    if some is False:
        verdict = "supported"
    elif many:
        verdict = "refuted"
    elif some and many is False:
        verdict = "qualified"
    reading = (
        f"{say(inside[0], '.1%')} of a head's keys lie inside the hull of the others, so that no query selects them."
    )
    why = missing_interval(*inside) if verdict == "undecided" else None
    return Part("every key is selectable", verdict, reading, Statistic("share of keys inside", *inside), why=why)


def _scaling(evidence: Evidence, hulls: "KeyHulls", unscaled: Interval) -> Part:
    both = np.stack([hulls.sums[name].sum(1) for name in ("unscaled", "inside")], 1)
    freed = evidence.interval(both, lambda sums: mean(sums)[:, 0] - mean(sums)[:, 1])
    side = above(freed, T.hull_freed)
    verdict: Verdict = "undecided" if side is None else "supported" if side else "refuted"
    few, plain = (float(mean(hulls.sums[name].sum((0, 1)))) for name in ("few", "few_unscaled"))
    reading = (
        f"Without scaling it would be {say(unscaled[0], '.1%')}. In eight axes of a head, the width of the source's "
        f"models, {say(few, '.1%')} lie inside, and without scaling {say(plain, '.1%')}."
    )
    why = missing_interval(*freed) if side is None else None
    return Part("scaling does it", verdict, reading, Statistic("share of keys that scaling frees", *freed), why=why)


def _uniform(evidence: Evidence, hulls: "KeyHulls") -> Part:
    by_head = evidence.intervals(hulls.sums["normal"])
    _, low, high = by_head.T
    sure, possible = low > T.uniform_entropy, ~(high <= T.uniform_entropy)
    verdict = by_share(sure) if by_share(sure) == by_share(possible) else "undecided"
    of_random = evidence.interval(hulls.sums["random"], lambda sums: np.median(mean(sums), axis=-1))
    random, special = of_random[0], above(of_random, T.uniform_entropy)
    if verdict == "supported" and special is not False:
        verdict = "qualified" if special else "undecided"
    entropy = evidence.interval(hulls.sums["normal"], lambda sums: np.median(mean(sums), axis=-1))
    without = float(np.median(mean(hulls.sums["unprojected"].sum(0))))
    reading = (
        f"In the median head, the query nearest to the normal of LayerNorm's plane (the vector 1) attends with "
        f"{say(entropy[0], '.2f')} of the largest entropy (1: to all keys alike); a random query of its length with "
        f"{say(random, '.2f')}, and the query nearest to 1 where keys keep their mean of coordinates with "
        f"{say(without, '.2f')}. The axes that a head's queries can take hold "
        f"{say(float(np.median(hulls.reached)), '.0%')} of 1 (random axes: "
        f"{say(hulls.axes / evidence.anatomy.d, '.0%')})."
    )
    why = missing_interval(*low, *high) if verdict == "undecided" else None
    statistic = Statistic("entropy of the query along the normal, median head", *entropy)
    return Part("one query attends to all keys alike", verdict, reading, statistic, why=why)


def _used(evidence: Evidence, result: "Mapping[str, KeyHulls]") -> Part:
    def along(arm: str) -> Interval:
        return evidence.interval(result[arm].sums["used"].sum(1))

    value, untrained = along(MODEL), evidence.over_twins(along)
    twins = len(evidence.twins)
    learned = beats(value, untrained, twins) if twins else None
    side = all_of(above(value, T.normal_used), learned)
    verdict: Verdict = "undecided" if side is None else "supported" if side else "refuted"
    why = (missing_interval(*value, *untrained) if twins else Why.NO_CONTROL) if side is None else None
    reading = (
        f"The model's own queries have {say(value[0], '.2g')} times the squared component of a random direction along "
        f"1, in an untrained model {say(untrained[0], '.2g')} times."
    )
    statistic = Statistic("d · cos² of γ W_K q and 1, mean over queries", *value)
    return Part("queries use the normal", verdict, reading, statistic, asserted=False, why=why)


def _table(evidence: Evidence, hulls: "KeyHulls") -> Table:
    def column(name: str, meaning: str) -> Floats:
        return mean(hulls.sums[name].sum(0))

    columns = [
        interval_cells(name, f"share of {meaning}", evidence.intervals(hulls.sums[name]))
        for name, meaning in NAMES.items()
    ]
    means = [cells("head", "attention head; where heads share keys, the first of them", hulls.heads)]
    if hulls.projected:
        means += [cells("reached", "share of the all-ones vector 1 that γ W_K q can be for some q", hulls.reached)]
        for name, meaning in {
            "normal": "entropy of the query along 1, over ln(keys)",
            "random": "entropy of random queries of the same length",
            "unprojected": "entropy of the query along 1 with the mean of coordinates left in",
            "used": "d · cos² of γ W_K q and 1, mean over the model's queries; 1 for a random direction",
        }.items():
            means.append(cells(name, meaning, column(name, meaning)))
    return table(means[0], *columns, *means[1:])


def _lines(evidence: Evidence, hulls: "KeyHulls") -> tuple[Quantity, ...]:
    heads, ones = hulls.heads, np.ones(len(hulls.heads))
    shares = line(
        "keys that no query can select",
        "share of a document's keys inside the hull of the others",
        "share of keys",
        "head",
        heads,
        evidence.intervals(hulls.sums["inside"]),
        {UNSCALED: mean(hulls.sums["unscaled"].sum(0))},
        {"practically none": T.hull_none * ones, "many": T.hull_many * ones},
    )
    if not hulls.projected:
        return (shares,)
    controls = {
        "random query": mean(hulls.sums["random"].sum(0)),
        "without projection": mean(hulls.sums["unprojected"].sum(0)),
    }
    entropies = line(
        "what a query along the normal attends to",
        "entropy of its attention; 1 is uniform",
        "share of ln(keys)",
        "head",
        heads,
        evidence.intervals(hulls.sums["normal"]),
        controls,
        {"uniform": T.uniform_entropy * ones},
        label="query along 1",
    )
    return shares, entropies

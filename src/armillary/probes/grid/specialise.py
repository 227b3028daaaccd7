"""Do heads specialise: does each attend to a kind of token of its own?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.instruments.head_parts.roles import KINDS, ROLES, SPECIALITIES, name_roles
from armillary.probes.machinery import (
    MODEL,
    RANDOM,
    SHUFFLED,
    AnyInstrument,
    Evidence,
    Flags,
    Interval,
    T,
    above,
    by_side,
    missing_interval,
    name_heads,
    undecided,
    weakest,
)
from armillary.probes.machinery.verdicts import learned_between
from armillary.results import Claim, Control, Finding, Part, Rewording, RuleChange, Statistic, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.head_kinds import KindScores
    from armillary.probes.machinery.bench import Bench


@dataclass(frozen=True)
class HeadSpecialisation:
    """Scores of every head by kind of token, and how much the heads of a layer differ."""

    claim: ClassVar[Claim] = Claim(
        id="heads.specialise",
        chapter="F",
        statement="Heads specialise.",
        source="S3",
        question="Do many heads have one kind of token that they attend to, and do heads of one layer differ?",
        definition=(
            "The share of heads with a speciality: heads that give a quarter or more of their attention to one kind "
            "of token (they lean to it). A kind that more than half of all heads lean to does not count.\n"
            "The kinds are the token before, the token after, the token itself, the same word elsewhere (where there "
            "is one), and induction: on random tokens that are repeated once, what followed a token's first "
            "occurrence. The first token never counts, because heads rest there. Queries are at the ninth position "
            "or later.\n"
            "The difference between two heads of a layer is the share of attention that must move to turn one "
            "pattern into the other (total variation), for the same query, averaged over pairs of heads.\n"
            "Also reported, but not as kinds of token: attention to the first token, and how much the attention "
            "depends on the words, which large random weights show too."
        ),
        control="random initialisation (all twins); shuffled text",
        rule=(
            "Three parts; the weakest decides. A number lies above or below a limit only if its whole interval "
            "does.\n"
            "Part 1, specialities.\n"
            f"Supported if the share of heads lies above {T.heads_many} and above that of an untrained model.\n"
            f"Refuted if it lies below {T.sites_few}, or below what untrained models reach.\n"
            f"Qualified if it lies between {T.sites_few} and {T.heads_many}, and above that of an untrained model.\n"
            "Part 2, heads of a layer differ, in the median layer.\n"
            f"Supported if the difference lies above {T.heads_differ} and above that of an untrained model.\n"
            f"Refuted if it lies below {T.heads_alike}, or below what untrained models reach.\n"
            f"Qualified if it lies between {T.heads_alike} and {T.heads_differ}, and above that of an untrained "
            "model.\n"
            "Part 3, on text, not only on disorder.\n"
            f"Refuted if shuffled text shows more specialities than text, by more than {T.sites_few} of all heads.\n"
            "Supported if it does not.\n"
            "Every part is undecided where an interval spans its limit. The claim is undecided if documents are too "
            "few or too short, without untrained models, or with one head per layer."
        ),
        kind="learned",
        changes=(
            RuleChange(
                "2026-11-15",
                "Dependence on content does not count as a speciality: random weights show it too. Neither does a kind "
                "that most heads lean to: most heads of SmolLM2 attend to the first token.",
            ),
            RuleChange(
                "2026-11-16",
                "The first token is never a speciality, and the interval, several untrained models and shuffled text "
                "decide. SmolLM2 on WikiText had been supported by 108 of 143 heads that rest on the first token, with "
                "more of them on shuffled text than on text.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "6ade5f87cbe0", 2),
            Rewording("2026-11-18", "468a9fc16198", 2),
            Rewording("2026-11-19", "37ac789ab07f", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.machinery.plan import arms_of

        # Every arm reads the text, and all but the shuffled one read repeated tokens, three quarters as many.
        return 1.75 * arms_of(anatomy)

    def experiment(self, bench: "Bench") -> "KindScores | None":
        from armillary.probes.grid.head_kinds import kind_scores
        from armillary.probes.instruments.patterns import LENGTH_LEAST

        return kind_scores(bench, LENGTH_LEAST)

    def conclude(self, evidence: Evidence, result: "KindScores | None") -> Finding:
        if result is None:
            if not evidence.twins:
                return undecided(self.claim, Why.NO_CONTROL, "There is no untrained model to compare with.")
            reading = "The documents are shorter than 16 tokens. Give longer documents, or more text."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading)
        leaning = result.leaning()
        common = tuple(kind for kind in SPECIALITIES if leaning[kind].mean() > T.heads_many)
        special = np.any([leaning[kind] for kind in SPECIALITIES if kind not in common], axis=0)
        shares = {arm: result.share(evidence, arm, common) for arm in (MODEL, SHUFFLED)}
        shares[RANDOM] = evidence.over_twins(lambda arm: result.share(evidence, arm, common))
        parts = (
            _specialities(shares, special, common, len(evidence.twins)),
            _differences(evidence, result),
            _on_text(result.beyond_shuffled(evidence, common), shares[SHUFFLED]),
        )
        verdict, why = weakest(parts)
        if evidence.anatomy.n_heads < 2:
            verdict, why = "undecided", Why.NOT_APPLICABLE
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic("share of heads with a speciality", *shares[MODEL]),
            n=result.texts,
            controls=tuple(Control(arm, *shares[arm]) for arm in (RANDOM, SHUFFLED)),
            reading=_reading(result, parts, evidence.anatomy.n_heads),
            headline=f"Heads with a speciality: {special.sum()} of {special.size}; heads that rest on the first token: "
            f"{leaning['first'].sum()}",
            table=result.table(evidence, leaning),
            quantities=result.quantities(evidence),
            parts=parts,
        )


def _specialities(shares: dict[str, Interval], special: Flags, common: tuple[str, ...], twins: int) -> Part:
    verdict = learned_between(shares[MODEL], T.sites_few, T.heads_many, shares[RANDOM], twins)
    which = f" ({name_heads(special)})" if 0 < special.mean() < T.sites_most else ""
    text = (
        f"{special.sum()} of {special.size} heads have a speciality{which}; at random initialisation "
        f"{say(shares[RANDOM][0], '.0%')} of heads, at most {say(shares[RANDOM][2], '.0%')}"
    )
    text += "".join(f". Most heads lean to {ROLES[kind][1]}, so that is not a speciality" for kind in common)
    why = missing_interval(*shares[MODEL], *shares[RANDOM]) if verdict == "undecided" else None
    return Part("specialities", verdict, f"{text}.", Statistic("share of heads", *shares[MODEL]), why=why)


def _differences(evidence: Evidence, result: "KindScores") -> Part:
    model, shuffled = (result.difference(evidence, arm) for arm in (MODEL, SHUFFLED))
    random = evidence.over_twins(lambda arm: result.difference(evidence, arm))
    verdict = learned_between(model, T.heads_alike, T.heads_differ, random, len(evidence.twins))
    return Part(
        "heads of a layer differ",
        verdict,
        f"Two heads of the median layer differ in {say(model[0], '.0%')} of their attention; at random initialisation "
        f"in {say(random[0], '.0%')}, on shuffled text in {say(shuffled[0], '.0%')}.",
        Statistic("difference of two heads of the median layer, share of attention", *model),
        why=missing_interval(*model, *random) if verdict == "undecided" else None,
    )


def _on_text(beyond: Interval, shuffled: Interval) -> Part:
    side = above(beyond, -T.sites_few)
    return Part(
        "on text, not only on disorder",
        by_side(side),
        f"On shuffled text {say(shuffled[0], '.0%')} of heads have a speciality, "
        f"{'fewer' if beyond[0] > 0 else 'as many or more'} than on text: heads that go by position keep theirs.",
        Statistic("share of heads on text less that on shuffled text", *beyond),
        why=missing_interval(*beyond) if side is None else None,
    )


def _reading(result: "KindScores", parts: tuple[Part, ...], heads: int) -> str:
    scores = result.scores()
    names = name_roles(scores)
    counts = {kind: int((names == kind).sum()) for kind in KINDS}
    roles = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "none"
    top = []
    for kind in ("previous", "next", "first", "same", "induction"):
        if np.isfinite(scores[kind]).any():
            layer, head = np.unravel_index(int(np.nanargmax(scores[kind])), names.shape)
            top.append(f"{kind} {say(scores[kind][layer, head], '.2f')} (L{layer}H{head})")
    text = f"{parts[0].reading} Heads that give half of their attention to one kind: {roles}. Highest scores: "
    text += f"{', '.join(top)}."
    if heads < 2:
        return f"{text} A layer of this model has one head. A model with several would decide."
    entropy, content = (float(np.nanmedian(result.score(MODEL, name))) for name in ("entropy", "content"))
    return (
        f"{text} {parts[1].reading} {parts[2].reading} In the median head {say(content, '.0%')} of the attention "
        f"depends on the words, and its entropy is {say(entropy, '.2f')} of the largest."
    )

"""Do heads specialise: does each attend to a kind of token of its own?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.instruments.roles import KINDS, ROLES, name_roles
from armillary.probes.machinery import MODEL, RANDOM, SHUFFLED, AnyInstrument, Evidence, Flags, T, name_heads, undecided
from armillary.probes.machinery.intervals import Interval
from armillary.results import Claim, Control, Finding, RuleChange, Statistic, Verdict, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.head_kinds import KindScores
    from armillary.probes.machinery.bench import Bench

Differences = dict[str, Interval]


@dataclass(frozen=True)
class HeadSpecialisation:
    """Scores of every head by kind of token, and how much the heads of a layer differ."""

    claim: ClassVar[Claim] = Claim(
        id="heads.specialise",
        chapter="F",
        statement="Heads specialise.",
        source="S3",
        definition=(
            "Per head, the share of attention to the token before, the token after, the first token, the token itself, "
            "the same word elsewhere (where there is one), and, on random tokens of the text repeated once, to what "
            "followed a token's first occurrence (induction). Queries see eight keys or more. A head leans to a kind "
            "if its score is a quarter or more and exceeds, document by document, that of the best head at random "
            "initialisation (t-test, Benjamini–Hochberg over heads and kinds). The statistic is the share of heads "
            "with a speciality: heads that lean to a kind to which at most half of all heads lean (a first token that "
            "most heads attend to is not a speciality). The difference between heads of a layer is the mean total "
            "variation between two of their patterns on the same query. Also reported, but not a kind of token: the "
            "dependence on content, the total variation from the mean pattern of other texts at the same places. Large "
            "random weights show it too."
        ),
        control="random initialisation; shuffled text",
        rule=(
            f"Supported if at least {T.heads_many:.0%} of heads have a speciality, and the heads of the median layer "
            f"differ in more than {T.heads_differ} of the attention, with the whole interval, and more than at random "
            f"initialisation. Refuted if at most {T.sites_few:.0%} of heads have one, or if the heads of the median "
            f"layer differ in less than {T.heads_alike}, with the whole interval: what all heads do is not a "
            "speciality. Qualified otherwise. Undecided if documents are too few for an interval or too short, or with "
            "one head per layer."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "Dependence on content does not count as a speciality: random weights show it too. Neither does a kind "
                "that most heads lean to: most heads of SmolLM2 attend to the first token.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 5.0

    def experiment(self, bench: "Bench") -> "KindScores | None":
        from armillary.probes.grid.head_kinds import kind_scores
        from armillary.probes.instruments.patterns import LENGTH_LEAST

        return kind_scores(bench, LENGTH_LEAST)

    def conclude(self, evidence: Evidence, result: "KindScores | None") -> Finding:
        if result is None:
            reading = "The documents are shorter than 16 tokens. Give longer documents, or more text."
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading)
        leaning = result.leaning()
        common = [kind for kind in KINDS if leaning[kind].mean() > T.heads_many]
        special = np.any([leaning[kind] for kind in KINDS if kind not in common], axis=0)
        differs = {arm: result.difference(evidence, arm) for arm in result.states}
        shares = {arm: result.share(evidence, arm, common) for arm in (MODEL, RANDOM, SHUFFLED)}
        verdict, why = _verdict(float(special.mean()), differs, evidence.anatomy.n_heads)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic("share of heads with a speciality", *shares[MODEL]),
            n=result.texts,
            controls=tuple(Control(arm, *shares[arm]) for arm in (RANDOM, SHUFFLED)),
            reading=_reading(result, special, common, differs, evidence.anatomy.n_heads),
            headline=f"Heads with a speciality: {special.sum()} of {special.size}; two heads of a layer differ in "
            f"{say(differs[MODEL][0], '.0%')} of their attention",
            table=result.table(evidence, leaning),
            quantities=result.quantities(evidence),
        )


def _verdict(share: float, differs: Differences, heads: int) -> tuple[Verdict, Why | None]:
    value, low, high = differs[MODEL]
    if heads < 2:
        return "undecided", Why.NOT_APPLICABLE
    if np.isnan([low, high]).any():
        return "undecided", Why.NO_INTERVAL
    if share <= T.sites_few or high < T.heads_alike:
        return "refuted", None
    apart = low > T.heads_differ and value > differs[RANDOM][0]
    return "supported" if share >= T.heads_many and apart else "qualified", None


def _reading(result: "KindScores", special: Flags, common: list[str], differs: Differences, heads: int) -> str:
    scores = result.scores()
    names = name_roles(scores)
    counts = {kind: int((names == kind).sum()) for kind in KINDS}
    roles = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "none"
    which = f" ({name_heads(special)})" if 0 < special.mean() < T.sites_most else ""
    parts = [
        f"Heads with a speciality: {special.sum()} of {special.size}{which}. Each leans to a kind of token, more than "
        f"any random head does. Heads that give a kind half of their attention: {roles}"
    ]
    parts += [f"Most heads lean to {ROLES[kind][1]}, so that is not a speciality" for kind in common]
    top = []
    for kind in ("previous", "next", "first", "same", "induction"):
        if np.isfinite(scores[kind]).any():
            layer, head = np.unravel_index(int(np.nanargmax(scores[kind])), names.shape)
            top.append(f"{kind} {say(scores[kind][layer, head], '.2f')} (L{layer}H{head})")
    parts.append(f"Highest scores: {', '.join(top)}")
    if heads < 2:
        return ". ".join([*parts, "A layer of this model has one head. A model with several would decide."])
    entropy, content = (float(np.nanmedian(result.score(MODEL, name))) for name in ("entropy", "content"))
    model, random, shuffled = (say(differs[arm][0], ".0%") for arm in (MODEL, RANDOM, SHUFFLED))
    parts.append(
        f"Two heads of the median layer differ in {model} of their attention; at random initialisation in {random}, on "
        f"shuffled text in {shuffled}. In the median head {say(content, '.0%')} of the attention depends on the words, "
        f"and its entropy is {say(entropy, '.2f')} of the largest"
    )
    return f"{'. '.join(parts)}."

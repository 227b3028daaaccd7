"""Do heads specialise: does each attend to a kind of token of its own?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.grid.unanswered import unanswered
from armillary.probes.instruments.roles import KINDS, MEANINGS, ROLES, name_roles
from armillary.probes.machinery.evidence import MODEL, RANDOM, SHUFFLED, Evidence, Flags, Floats, Ints, mean
from armillary.probes.machinery.per_head import name_heads
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

COLUMNS = (
    Column("head", "attention head"),
    Column("role", "what takes half of its attention or more"),
    Column(
        "leans",
        "kind with the highest score of those that reach a quarter and exceed every head at random initialisation",
    ),
    *(Column(kind, meaning) for kind, meaning in MEANINGS.items()),
    Column("entropy", "of attention, over ln(keys): 1 is uniform"),
    Column("differs", "total variation from the patterns of the layer's other heads, mean"),
)


@dataclass(frozen=True, eq=False)
class Roles:
    """arm → [group, field, layer, head, (queries, sum)]."""

    sums: Mapping[str, Floats]
    texts: int

    def score(self, arm: str, field: str) -> Floats:
        """[layer, head]."""
        return mean(self.of(arm, field).sum(0))

    def of(self, arm: str, field: str) -> Floats:
        from armillary.probes.instruments.patterns import FIELDS

        return np.asarray(self.sums[arm][:, FIELDS.index(field)])


@dataclass(frozen=True)
class Specialise:
    """Scores of every head by kind of token, and how much the heads of a layer differ."""

    claim: ClassVar[Claim] = Claim(
        id="heads.specialise",
        chapter="F",
        statement="Heads specialise.",
        source="S3",
        definition=(
            "Per head, the share of attention that goes to the token before, the one after, the first, the token itself, the same word elsewhere "
            "(where it has stood), and, on random tokens of the text repeated once, to what followed a token's first occurrence "
            "(induction). Queries that see eight keys or more. A head leans to a kind when the score is a quarter or more and "
            "exceeds, document by document, that of the best head at random initialisation (t-test, Benjamini–Hochberg over heads "
            "and kinds). How heads of a layer differ is the mean total variation between two of their patterns on the same query. "
            "The statistic is the share of heads with a speciality: that lean to a kind to which no more than half of all heads lean (a "
            "first token on which most heads rest is none). Beside it, and no kind of token: how much a pattern depends on "
            "content (total variation from the mean pattern of other texts at the same places), which large random weights bring "
            "about as well."
        ),
        control="random initialisation; shuffled text",
        rule=(
            f"Supported: ≥ {T.heads_many:.0%} of heads have a speciality, and the heads of the median layer differ by more than "
            f"{T.heads_differ} of the attention, with the whole interval, and by more than at random initialisation. Refuted: "
            f"≤ {T.sites_few:.0%} of heads have one, or the heads of the median layer differ by less than {T.heads_alike} with "
            "the whole interval: what all do alike is no speciality. Qualified otherwise. Undecided for layers of one head."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        return 5.0

    def experiment(self, bench: "Bench") -> Roles | None:
        from armillary.probes.instruments.patterns import LENGTH_LEAST, texts

        ids, documents = texts(bench.text.windows, T.documents_least)
        if ids.size == 0 or ids.shape[1] < LENGTH_LEAST or bench.twin is None:
            return None
        return Roles({arm: _measure(bench, arm, ids, documents) for arm in (MODEL, RANDOM, SHUFFLED)}, len(ids))

    def conclude(self, evidence: Evidence) -> Finding:
        roles: Roles | None = evidence.found.get(self.claim.id)
        if roles is None:
            return unanswered(
                self.claim, "The documents are shorter than 16 tokens; give longer ones: more text.", COLUMNS
            )
        scores = {kind: roles.score(MODEL, kind) for kind in ROLES}
        leaning = _leaning(roles)
        common = [kind for kind in KINDS if leaning[kind].mean() > T.heads_many]
        holds = np.any([leaning[kind] for kind in KINDS if kind not in common], axis=0)
        differs = {arm: _differs(evidence, roles, arm) for arm in roles.sums}
        share = _share(evidence, roles, MODEL, common)
        verdict = _verdict(float(holds.mean()), differs, evidence.anatomy.n_heads)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("share of heads with a speciality", *share),
            n=roles.texts,
            controls=tuple(Control(arm, *_share(evidence, roles, arm, common)) for arm in (RANDOM, SHUFFLED)),
            reading=_reading(verdict, roles, scores, holds, common, differs, evidence.anatomy.n_heads),
            headline=f"{holds.sum()} of {holds.size} heads have a kind of token of their own; two heads of a layer differ in "
            f"{differs[MODEL][0]:.0%} of their attention",
            table=_table(roles, scores, leaning),
            quantities=_quantities(evidence, roles, scores),
        )


def _measure(bench: "Bench", arm: str, ids: Ints, documents: Ints) -> Floats:
    from armillary.probes.instruments.patterns import FIELDS, induction, repeated, scores, texts

    model, windows = bench.arm(arm).anatomy, bench.arm(arm).text.windows
    words = ids if arm != SHUFFLED else texts(windows, T.documents_least)[0]
    made = scores(model, words, bench.tick)
    if arm != SHUFFLED:
        # Random tokens have no order to shuffle.
        prefix = bench.text.windows[0].prefix
        again = repeated(bench.corpus.windows, len(ids), model.context, bench.seed)
        if again.shape[1] - prefix >= 4:
            made[:, FIELDS.index("induction")] = induction(model, again, prefix, bench.tick)
    grouped = np.zeros((bench.corpus.groups, *made.shape[1:]))
    np.add.at(grouped, documents % bench.corpus.groups, made)
    return grouped


def _best(roles: Roles, kind: str) -> float:
    """What the best head at random initialisation reaches."""
    reached = roles.score(RANDOM, kind)
    return float(np.nanmax(reached)) if np.isfinite(reached).any() else 0.0


def _leaning(roles: Roles) -> dict[str, Flags]:
    """kind → [layer, head]: a quarter or more, and beyond the twin's best head with significance over all heads and kinds."""
    from armillary.geometry.resample import benjamini_hochberg

    p = np.stack([_p_values(roles, kind) for kind in KINDS])
    found = benjamini_hochberg(p.ravel(), T.false_discovery).reshape(p.shape)
    return {
        kind: np.asarray(found[i] & (np.nan_to_num(roles.score(MODEL, kind)) >= T.role_leaning))
        for i, kind in enumerate(KINDS)
    }


def _p_values(roles: Roles, kind: str) -> Floats:
    """One-sided, over documents: that a head's score exceeds the best random head's, which is the same for all."""
    from scipy.special import stdtr

    mine, theirs = mean(roles.of(MODEL, kind)), mean(roles.of(RANDOM, kind))
    reached = roles.score(RANDOM, kind)
    if not np.isfinite(reached).any():
        return np.ones(mine.shape[1:])
    best = np.unravel_index(int(np.nanargmax(reached)), reached.shape)
    apart = mine - theirs[:, best[0], best[1]][:, None, None]
    known = np.isfinite(apart)
    count = known.sum(0)
    average = np.where(known, apart, 0).sum(0) / np.maximum(count, 1)
    power = (np.where(known, apart - average, 0) ** 2).sum(0) / np.maximum(count - 1, 1)
    t = average / np.sqrt(np.maximum(power / np.maximum(count, 1), 1e-24))
    return np.asarray(np.where(count > 2, stdtr(np.maximum(count - 1, 1), -t), 1.0))


def _share(evidence: Evidence, roles: Roles, arm: str, common: list[str]) -> tuple[float, float, float]:
    """The share of heads with a score of a quarter or more, and beyond the twin's best, with its interval over documents; of the
    twin itself those with a quarter."""
    kinds = [kind for kind in KINDS if kind not in common]
    stats = np.stack([roles.of(arm, kind) for kind in kinds], 1)
    reached = [0.0 if arm == RANDOM else _best(roles, kind) for kind in kinds]
    least = np.maximum(T.role_leaning, reached)[:, None, None]

    def statistic(drawn: Floats) -> Floats:
        return np.asarray((np.nan_to_num(mean(drawn)) >= least).any(-3).mean((-1, -2)), dtype=float)

    return evidence.interval(stats, statistic)


def _differs(evidence: Evidence, roles: Roles, arm: str) -> tuple[float, float, float]:
    """Of the median layer: total variation between two heads' patterns, mean over pairs."""
    return evidence.interval(roles.of(arm, "differs"), lambda drawn: np.median(mean(drawn).mean(-1), axis=-1))


def _verdict(share: float, differs: dict[str, tuple[float, float, float]], heads: int) -> Verdict:
    value, low, high = differs[MODEL]
    if heads < 2 or np.isnan([low, high]).any():
        return "undecided"
    if share <= T.sites_few or high < T.heads_alike:
        return "refuted"
    apart = low > T.heads_differ and value > differs[RANDOM][0]
    return "supported" if share >= T.heads_many and apart else "qualified"


def _cells(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values.ravel()]


def _table(roles: Roles, scores: dict[str, Floats], leaning: dict[str, Flags]) -> Table:
    names = name_roles(scores)
    strength = np.stack([np.where(leaning[kind], scores[kind], -1.0) for kind in KINDS])
    leans = np.where(strength.max(0) >= 0, np.array(KINDS)[strength.argmax(0)], "")
    layers, heads = names.shape
    columns = [
        [f"L{layer}H{head}" for layer in range(layers) for head in range(heads)],
        names.ravel().tolist(),
        leans.ravel().tolist(),
        *(_cells(scores[kind]) for kind in ROLES),
        _cells(roles.score(MODEL, "entropy")),
        _cells(roles.score(MODEL, "differs")) if heads > 1 else [None] * layers,
    ]
    return Table(COLUMNS, tuple(zip(*columns, strict=True)))


def _reading(
    verdict: Verdict,
    roles: Roles,
    scores: dict[str, Floats],
    holds: Flags,
    common: list[str],
    differs: dict[str, tuple[float, float, float]],
    heads: int,
) -> str:
    names = name_roles(scores)
    counts = {kind: int((names == kind).sum()) for kind in KINDS}
    half = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "none"
    which = f", {name_heads(holds)}" if 0 < holds.mean() < T.sites_most else ""
    told = [
        f"{holds.sum()} of {holds.size} heads{which} lean to a kind of token of their own, beyond any random head (with half of "
        f"their attention: {half})"
    ]
    for kind in common:
        told.append(f"most heads lean to {ROLES[kind][1]}, which is therefore no speciality")
    top = []
    for kind in ("previous", "next", "first", "same", "induction"):
        if np.isfinite(scores[kind]).any():
            at = np.unravel_index(int(np.nanargmax(scores[kind])), names.shape)
            top.append(f"{kind} {scores[kind][at]:.2f} (L{at[0]}H{at[1]})")
    told.append("highest scores: " + ", ".join(top))
    if heads < 2:
        return (
            "; ".join(told) + "; a layer of one head has none to differ from: a model with several heads would decide."
        )
    entropy, content = float(np.nanmedian(roles.score(MODEL, "entropy"))), float(np.nanmedian(scores["content"]))
    told.append(
        f"two heads of the median layer differ in {differs[MODEL][0]:.0%} of their attention, at random initialisation in "
        f"{differs[RANDOM][0]:.0%}, on shuffled text in {differs[SHUFFLED][0]:.0%}; in the median head {content:.0%} of the "
        f"attention depends on the words, and its entropy is {entropy:.2f} of the largest"
    )
    if verdict == "undecided":
        told.append("more text would decide")
    return "; ".join(told) + "."


def _quantities(evidence: Evidence, roles: Roles, scores: dict[str, Floats]) -> tuple[Quantity, ...]:
    known = {kind: values for kind, values in scores.items() if np.isfinite(values).any()}
    stacked = np.stack(list(known.values()))
    layers = [f"L{i}" for i in range(stacked.shape[1])]
    coords = {"kind": list(known), "layer": layers, "head": [f"H{i}" for i in range(stacked.shape[2])]}
    kinds = Quantity(
        "what heads attend to",
        "share of attention by kind of token; content: the share that depends on the words",
        "share",
        ("kind", "layer", "head"),
        coords,
        stacked,
    )
    if stacked.shape[2] < 2:
        return (kinds,)
    by_layer = {
        arm: np.array(
            [
                evidence.interval(roles.of(arm, "differs")[:, layer], lambda drawn: mean(drawn).mean(-1))
                for layer in range(len(layers))
            ]
        )
        for arm in roles.sums
    }
    model = by_layer.pop(MODEL)
    apart = Quantity(
        "how much the heads of a layer differ",
        "total variation between two heads' patterns of the same query, mean over pairs",
        "share of attention",
        ("layer",),
        {"layer": layers},
        model[:, 0],
        model[:, 1],
        model[:, 2],
        controls={arm: found[:, 0] for arm, found in by_layer.items()},
    )
    return kinds, apart

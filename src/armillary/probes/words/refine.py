"""Does the stream come nearer to the model's answer, layer by layer?"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Flags, Floats, name_sites
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.words.lens import Lens, lens, over_documents
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

COLUMNS = (
    Column("state", "state of the stream"),
    Column("kl", "divergence of the model's final distribution from what this state says", "nats"),
    Column("kl_low", "its 95 % interval over documents, low end", "nats"),
    Column("kl_high", "its 95 % interval over documents, high end", "nats"),
    Column("rank", "median rank of the final prediction in what this state says (0 is first)"),
    Column("first", "share of tokens for which it is first already"),
    Column("loss", "nats of the true next word", "nats"),
    Column("falls", "share of tokens whose divergence falls since the state before"),
)


@dataclass(frozen=True)
class Refine:
    """The logit lens at every state, for a seeded sample of tokens."""

    claim: ClassVar[Claim] = Claim(
        id="words.refine",
        chapter="C",
        statement="The residual stream refines its prediction iteratively.",
        source="S0 S1",
        definition=(
            "The logit lens: each state of a sampled token, normed by its own length and read out by the final norm and the "
            "unembedding. Kullback–Leibler divergence of the model's final distribution from the state's, and the rank of the "
            "final prediction there. The statistic is the rank correlation of divergence and depth, per token, the last state "
            "left out (its divergence is 0 by definition); −1 is a divergence that falls at every step."
        ),
        control="random initialisation; shuffled text; states in random order have a correlation of 0",
        rule=(
            f"Supported: the mean correlation lies below −{T.refine_most} with its whole interval, the mean divergence falls at "
            f"≥ {T.sites_most:.0%} of sublayers, and the mean loss of the true next word correlates with depth by −{T.refine_most} "
            "or less (a stream of random writes comes nearer to its own end too, and not to the truth). Refuted: the mean "
            f"correlation lies above −{T.refine_least} with its whole interval. Qualified otherwise. Undecided for a model that "
            "reads out no next word."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("travel",)

    def conclude(self, evidence: Evidence) -> Finding:
        found = lens(evidence, MODEL)
        if found is None:
            return nothing_read(self.claim, evidence)
        names = evidence.travel[MODEL].names
        rho = over_documents(evidence, _correlations(found), found.document)
        kl = np.array([over_documents(evidence, found.kl[:, i], found.document) for i in range(len(names))])
        falling = np.diff(kl[:, 0]) < 0
        truth = _depth_correlation(found.loss.mean(0)[None])[0]
        verdict = _verdict(rho, float(falling.mean()), truth)
        others = {arm: lens(evidence, arm) for arm in evidence.controls()}
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("rank correlation of divergence and depth, mean over tokens", *rho),
            n=len(found.kl),
            controls=tuple(
                Control(arm, *over_documents(evidence, _correlations(other), other.document))
                for arm, other in others.items()
                if other
            ),
            reading=_reading(found, names, rho[0], kl[:, 0], falling, others),
            headline=f"What a state says is {kl[0, 0]:.2g} nats from the answer at first and {kl[-2, 0]:.2g} one sublayer "
            "before the end",
            table=_table(found, names, kl),
            quantities=_quantities(names, kl, found, others),
            notes=(
                f"the lens looked at {len(found.kl)} sampled tokens ({len(found.kl) / max(1, evidence.tokens):.1%})",
            ),
        )


def _correlations(found: Lens) -> Floats:
    return _depth_correlation(found.kl[:, :-1])


def _depth_correlation(values: Floats) -> Floats:
    """Rank correlation of each row with its places; 0 of a row that does not vary."""
    from scipy.stats import rankdata

    ranks = rankdata(values, axis=1)
    ranks = ranks - ranks.mean(1, keepdims=True)
    depth = np.arange(ranks.shape[1]) - (ranks.shape[1] - 1) / 2
    scale = np.sqrt((ranks**2).sum(1) * (depth**2).sum())
    return np.where(scale > 0, ranks @ depth / np.maximum(scale, 1e-300), 0.0)


def _verdict(rho: tuple[float, float, float], falling: float, truth: float) -> Verdict:
    if np.isnan(rho).any():
        return "undecided"
    if rho[2] < -T.refine_most and falling >= T.sites_most and truth <= -T.refine_most:
        return "supported"
    return "refuted" if rho[1] > -T.refine_least else "qualified"


def _table(found: Lens, names: tuple[str, ...], kl: Floats) -> Table:
    rows: list[dict[str, Any]] = [
        {
            "state": name,
            "kl": float(kl[i, 0]),
            "kl_low": float(kl[i, 1]),
            "kl_high": float(kl[i, 2]),
            "rank": float(np.median(found.rank[:, i])),
            "first": float((found.rank[:, i] == 0).mean()),
            "loss": float(found.loss[:, i].mean()),
            "falls": float((found.kl[:, i] < found.kl[:, i - 1]).mean()) if i else None,
        }
        for i, name in enumerate(names)
    ]
    return Table.of(COLUMNS, rows)


def _reading(
    found: Lens, names: tuple[str, ...], rho: float, kl: Floats, falling: Flags, others: dict[str, Lens | None]
) -> str:
    rising = [names[i + 1] for i in np.flatnonzero(~falling)]
    settled = (found.rank[:, ::-1] == 0).cumprod(1).sum(1) / found.rank.shape[1]
    told = f"The divergence falls from {kl[0]:.2g} to {kl[-2]:.2g} nats and correlates with depth by {rho:.2f}"
    told += f"; it rises before {name_sites(rising)}" if rising else ", at every sublayer"
    loss = found.loss.mean(0)
    told += f"; the true next word costs {loss[0]:.3g} nats at first and {loss[-1]:.3g} at the end"
    twin = others.get(RANDOM)
    if twin is not None and float(_correlations(twin).mean()) < -T.refine_most:
        told += ". At random initialisation the divergence falls too, since a stream comes nearer to its own end whatever it says"
    return f"{told}; the final prediction stands first for the last {np.median(settled):.0%} of the way in the median token."


def _quantities(
    names: tuple[str, ...], kl: Floats, found: Lens, others: dict[str, Lens | None]
) -> tuple[Quantity, ...]:
    coords = {"state": list(names)}
    return (
        Quantity(
            "divergence from the final distribution",
            "what the state says through the logit lens, mean over sampled tokens",
            "nats",
            ("state",),
            coords,
            kl[:, 0],
            kl[:, 1],
            kl[:, 2],
            controls={arm: other.kl.mean(0) for arm, other in others.items() if other},
        ),
        Quantity(
            "share of tokens with the final prediction first",
            "among all words, by the state's own reading",
            "share",
            ("state",),
            coords,
            (found.rank == 0).mean(0),
            controls={arm: (other.rank == 0).mean(0) for arm, other in others.items() if other},
        ),
    )


def nothing_read(claim: Claim, evidence: Evidence) -> Finding:
    """What can be found of a claim about next words in a model that reads out none."""
    nothing = float("nan")
    names = evidence.travel[MODEL].names
    return Finding(
        claim=claim,
        verdict="undecided",
        statistic=Statistic("not measured", nothing, nothing, nothing),
        n=0,
        controls=(),
        reading="This model reads out no next word, so there is no prediction to look at; load one with a language-model head.",
        headline="No next word is read out: nothing can be concluded",
        table=Table((Column("state", "state of the stream"),), tuple((name,) for name in names)),
    )

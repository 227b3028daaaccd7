"""Does the stream approach the model's prediction layer by layer?"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.probes.instruments.words import WORDS
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Floats, T, name_sites
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.words.lens import Lens, lens, no_prediction, over_documents, reads
from armillary.results import Claim, Control, Finding, Quantity, RuleChange, Statistic, Table, Verdict, Why, say


@dataclass(frozen=True)
class Refinement:
    """The logit lens at every state of sampled tokens."""

    claim: ClassVar[Claim] = Claim(
        id="words.refine",
        chapter="C",
        statement="The residual stream refines its prediction layer by layer.",
        source="S0 S1",
        definition=(
            "The logit lens sends every state of a sampled token through the final norm and the unembedding. Measured "
            "is the Kullback–Leibler divergence of the model's final distribution from the state's. The statistic is "
            "the rank correlation of divergence and depth, per token, mean over tokens: −1 means that the divergence "
            "falls at every step. The last state is left out: its divergence is 0 by definition. Also measured: "
            "the rank of the final prediction at each state, and the loss of the true next token."
        ),
        control="random initialisation; shuffled text. States in random order have a correlation of 0.",
        rule=(
            f"Supported if the mean correlation lies below −{T.refine_most} with its whole interval, the mean "
            f"divergence falls at {T.sites_most:.0%} or more of sublayers (the last one, where it ends at 0, "
            "included), and the mean loss of the true next token has a rank correlation with depth of "
            f"−{T.refine_most} or less, over all states. Refuted if the mean correlation lies above −{T.refine_least} "
            "with its whole interval. Qualified otherwise. Undecided if there is no interval or the model predicts no "
            "next token."
        ),
        changes=(
            RuleChange(
                "2026-11-15",
                "The rule also asks that the loss of the true next token falls, after random initialisation had shown "
                "a steeper fall of the divergence than training: a sum of random writes approaches its own end too.",
            ),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (WORDS,)

    def conclude(self, evidence: Evidence) -> Finding:
        if not reads(evidence.anatomy):
            return no_prediction(self.claim, evidence)
        names, model = evidence[WORDS][MODEL].names, lens(evidence, MODEL)
        controls = {arm: lens(evidence, arm) for arm in evidence.controls(WORDS)}
        rho = _correlation(evidence, model)
        kl = over_documents(evidence, model.kl, model.document)
        falling = np.diff(kl[:, 0]) < 0
        verdict = _verdict(rho, float(falling.mean()), depth_correlation(model.loss.mean(0)[None])[0])
        rising = [names[i + 1] for i in np.flatnonzero(~falling)]
        count = len(model.document)
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=Why.NO_INTERVAL if verdict == "undecided" else None,
            statistic=Statistic("rank correlation of divergence and depth, mean over tokens", *rho.tolist()),
            n=count,
            controls=tuple(Control(arm, *_correlation(evidence, seen).tolist()) for arm, seen in controls.items()),
            reading=_reading(model, rho[0], kl[:, 0], rising, controls.get(RANDOM)),
            headline=f"The divergence from the final prediction is {kl[0, 0]:.2g} nats at first and {kl[-2, 0]:.2g} "
            "one sublayer before the end",
            table=_table(model, names, kl),
            quantities=_quantities(model, names, kl, controls),
            notes=(f"The logit lens read {count} sampled tokens ({count / max(1, evidence.tokens):.1%} of the text).",),
        )


def _correlation(evidence: Evidence, seen: Lens) -> Floats:
    """(value, low, high)."""
    return over_documents(evidence, depth_correlation(seen.kl[:, :-1]), seen.document)


def depth_correlation(values: Floats) -> Floats:
    """Rank correlation of each row with its column number; 0 for a constant row."""
    from scipy.stats import rankdata

    ranks = rankdata(values, axis=1)
    ranks = ranks - ranks.mean(1, keepdims=True)
    depth = np.arange(ranks.shape[1]) - (ranks.shape[1] - 1) / 2
    scale = np.sqrt((ranks**2).sum(1) * (depth**2).sum())
    return np.where(scale > 0, ranks @ depth / np.maximum(scale, 1e-300), 0.0)


def _verdict(rho: Floats, falling: float, truth: float) -> Verdict:
    if np.isnan(rho).any():
        return "undecided"
    if rho[2] < -T.refine_most and falling >= T.sites_most and truth <= -T.refine_most:
        return "supported"
    return "refuted" if rho[1] > -T.refine_least else "qualified"


def _reading(model: Lens, rho: float, kl: Floats, rising: list[str], twin: Lens | None) -> str:
    settled = (model.rank[:, ::-1] == 0).cumprod(1).mean(1)
    steps = f"It does not fall on the way to {name_sites(rising)}" if rising else "It falls at every sublayer"
    loss = model.loss.mean(0)
    sentences = [
        f"The divergence from the final prediction goes from {kl[0]:.2g} to {kl[-2]:.2g} nats. {steps}; its rank "
        f"correlation with depth is {say(rho, '.2f')}.",
        f"The true next token's loss goes from {loss[0]:.3g} nats at the first state to {loss[-1]:.3g} at the end.",
        f"The final prediction ranks first during the last {np.median(settled):.0%} of the states of the median token.",
    ]
    if twin is not None and float(depth_correlation(twin.kl[:, :-1]).mean()) < -T.refine_most:
        sentences.append("At random initialisation the divergence falls too: any sum of writes approaches its end.")
    return " ".join(sentences)


def _table(model: Lens, names: tuple[str, ...], kl: Floats) -> Table:
    falls = (model.kl[:, 1:] < model.kl[:, :-1]).mean(0)
    return table(
        cells("state", "state of the stream", names),
        interval_cells("kl", "divergence of the final distribution from this state's, mean over tokens", kl, "nats"),
        cells("rank", "median rank of the final prediction at this state (0 is first)", np.median(model.rank, 0)),
        cells("first", "share of tokens whose final prediction ranks first at this state", (model.rank == 0).mean(0)),
        cells("loss", "mean loss of the true next token, predicted from this state", model.loss.mean(0), "nats"),
        cells("falls", "share of tokens whose divergence is smaller than at the state before", [None, *falls]),
    )


def _quantities(model: Lens, names: tuple[str, ...], kl: Floats, controls: dict[str, Lens]) -> tuple[Quantity, ...]:
    return (
        line(
            "divergence from the final distribution",
            "logit lens, mean over sampled tokens",
            "nats",
            "state",
            list(names),
            kl,
            {arm: seen.kl.mean(0) for arm, seen in controls.items()},
        ),
        line(
            "share of tokens whose final prediction ranks first",
            "in the distribution that the logit lens reads from this state",
            "share",
            "state",
            list(names),
            (model.rank == 0).mean(0),
            {arm: (seen.rank == 0).mean(0) for arm, seen in controls.items()},
        ),
    )

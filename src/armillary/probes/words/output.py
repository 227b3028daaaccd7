"""Do the final norm and the unembedding score words by their angle to the state?"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.instruments.words import WORDS
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Floats, Ints, T, missing_interval
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.words.embedding import distances_of, extremes_of
from armillary.probes.words.lens import logits, no_prediction, over_documents, reads
from armillary.results import Claim, Control, Finding, Statistic, Table, Verdict

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy

PARTS = ("cosine", "length", "bias")
# Logits in memory at once: 32 MB of float32.
_LOGITS = 1 << 23


@dataclass(frozen=True)
class Output:
    """How much of the logits' variance over the vocabulary is due to the angle, for sampled tokens' last states."""

    claim: ClassVar[Claim] = Claim(
        id="words.output",
        chapter="C",
        statement="The final norm and the unembedding score words by their angle to the state.",
        source="S0 R",
        definition=(
            "logit = ‖γ⊙e‖·‖z‖·cos(z, γ⊙e) + β·e, where e is a word's row of the unembedding, z the direction of a "
            "token's last state, γ the final norm's gain and β its shift. Where the norm centres, the mean of γ⊙e is "
            "taken out, because z does not see it. The statistic is R² of the logit on the cosine over the vocabulary, "
            "mean over sampled tokens. Also measured: R² on the words' lengths and on the bias β·e, and how often each "
            "part alone ranks the model's first word first."
        ),
        control="random initialisation, where all words have about the same length",
        rule=(
            f"Supported if R² lies above {T.output_share} with its whole interval and the cosine ranks the model's "
            f"first word first for at least {T.output_same_word:.0%} of tokens. Refuted if R² lies at or below "
            f"{T.output_share} with its whole interval. Qualified if R² lies above but the cosine ranks another word "
            "first too often. Undecided if the interval spans the limit or is missing, or if the model predicts no "
            "next token."
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (WORDS,)

    def conclude(self, evidence: Evidence) -> Finding:
        anatomy = evidence.anatomy
        # E1 and E2 of S0: distances of embeddings from their directions, and words with extreme vectors.
        tables = {
            "embeddings and their directions": distances_of(anatomy).table,
            "longest and shortest words": extremes_of(anatomy)[0],
        }
        if not reads(anatomy):
            return replace(no_prediction(self.claim, evidence), more_tables=tables)
        shares, same, document = _shares(evidence, MODEL)
        r2, same_word = over_documents(evidence, shares, document), same.mean(0)
        random = _shares(evidence, RANDOM)[0].mean(0) if RANDOM in evidence[WORDS] else np.full(len(PARTS), np.nan)
        cosine, length, bias = r2[:, 0]
        verdict = _verdict(r2[0], same_word[0])
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=missing_interval(*r2[0]) if verdict == "undecided" else None,
            statistic=Statistic("R² of the logit on the cosine, mean over tokens", *r2[0].tolist()),
            n=len(document),
            controls=(Control(RANDOM, *[float(random[0])] * 3),) if RANDOM in evidence[WORDS] else (),
            reading=f"The angle alone explains {cosine:.0%} of the variance of the logits over the vocabulary; the "
            f"words' lengths alone {length:.0%}, the bias β·e alone {bias:.0%}. The word at the smallest angle is the "
            f"model's first word for {same_word[0]:.0%} of tokens.",
            headline=f"The angle alone explains {cosine:.0%} of the logits and names {same_word[0]:.0%} of first words",
            table=_table(r2, same_word, random),
            quantities=(
                line(
                    "share of the logits' variance",
                    "R² over the vocabulary on each part alone, mean over sampled tokens",
                    "R²",
                    "part",
                    PARTS,
                    r2,
                    {RANDOM: random},
                ),
            ),
            more_tables=tables,
        )


def _verdict(cosine: Floats, same_word: float) -> Verdict:
    if np.isnan(cosine).any() or cosine[1] < T.output_share < cosine[2]:
        return "undecided"
    if cosine[2] <= T.output_share:
        return "refuted"
    return "supported" if same_word >= T.output_same_word else "qualified"


def _table(r2: Floats, same_word: Floats, random: Floats) -> Table:
    return table(
        cells("part", "part of logit = ‖γ⊙e‖·‖z‖·cos(z, γ⊙e) + β·e", PARTS),
        interval_cells(
            "share", "R² of the logit over the vocabulary on this part alone, mean over tokens", r2, ends=""
        ),
        cells("same_word", "share of tokens for which this part alone ranks the model's first word first", same_word),
        cells("control", "the same R² at random initialisation", random),
    )


def _shares(evidence: Evidence, arm: str) -> tuple[Floats, Floats, Ints]:
    """R² [token, part]; does the part rank the model's first word first [token, part]; and the tokens' documents."""
    anatomy = evidence.model(arm)
    states, places = evidence[WORDS][arm].sampled()
    words, length, bias = _words(anatomy)
    shares, same = np.zeros((2, len(states), len(PARTS)))
    size = max(1, _LOGITS // anatomy.vocabulary)
    for start in range(0, len(states), size):
        rows = slice(start, start + size)
        x = states[rows, -1].to(anatomy.device)
        scores = logits(anatomy, x)
        z = x if anatomy.ln_final is None else anatomy.ln_final.direction(x)
        cosine = (z / z.norm(dim=-1, keepdim=True).clamp_min(1e-30)) @ (words / length[:, None].clamp_min(1e-30)).T
        first, varying = scores.argmax(-1), _centred(scores)
        for part, values in enumerate((cosine, length, bias)):
            shares[rows, part] = _r2(varying, _centred(values))
            same[rows, part] = (first == values.argmax(-1)).cpu().numpy()
    return shares, same, places[:, 0]


def _words(anatomy: "Anatomy") -> "tuple[Tensor, Tensor, Tensor]":
    """γ⊙e as z sees it [v, d], its lengths [v], and β·e plus any bias of the unembedding [v]."""
    assert anatomy.W_U is not None
    rows = anatomy.W_U.T.float()
    bias = rows.new_zeros(len(rows))
    norm = anatomy.ln_final
    if norm is not None:
        if norm.shift is not None:
            bias = rows @ norm.shift.float()
        rows = rows * norm.gain.float()
        if norm.kind == "layernorm":
            rows = rows - rows.mean(-1, keepdim=True)
    return rows, rows.norm(dim=-1), bias if anatomy.b_U is None else bias + anatomy.b_U.float()


def _centred(values: "Tensor") -> "Tensor":
    values = values.double()
    return values - values.mean(-1, keepdim=True)


def _r2(a: "Tensor", b: "Tensor") -> Floats:
    """Squared correlation of centred numbers [n, v] and [n, v] or [v]; 0 where one of them is constant."""
    power = a.square().sum(-1) * b.square().sum(-1)
    r2 = (a @ b if b.dim() == 1 else (a * b).sum(-1)).square() / power.clamp_min(1e-300)
    # A constant computed in floating point varies by its rounding error.
    varies = b.square().mean(-1) > 1e-20
    return np.asarray((r2 * varies).cpu().numpy())

"""Do the final norm and the unembedding score words by their angle to the state?"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.probes.instruments.words import WORDS, longer_text, sampled_tokens
from armillary.probes.machinery import MODEL, RANDOM, AnyInstrument, Evidence, Floats, Interval, Ints, T, above
from armillary.probes.machinery.intervals import over_twins, triple
from armillary.probes.machinery.tables import cells, interval_cells, line, table
from armillary.probes.machinery.verdicts import missing_interval, more_text, undecided
from armillary.probes.words.embedding import distances_of, extremes_of
from armillary.probes.words.lens import logits, no_prediction, over_documents, reads
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Table, Verdict, Why

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
        question=(
            "The model scores every word of its vocabulary. Is the score mostly the angle between the word's vector "
            "and the token's final state?"
        ),
        definition=(
            "How much of the model's scores for words (the logits) does an angle explain? logit = ‖γ⊙e‖·‖z‖·cos(z, "
            "γ⊙e) + β·e, where e is a word's row of the unembedding, z the direction of a token's last state, γ the "
            "final norm's gain and β its shift. If the norm centres, the mean of γ⊙e is removed, because z does not "
            "see it.\n"
            "The statistic is R², the share of the logits' variance over the vocabulary that the cosine explains, "
            "mean over sampled tokens.\n"
            "Also measured: R² on the words' lengths and on the bias β·e, and how often each part alone ranks the "
            "model's top word first."
        ),
        control="random initialisation, where all words have about the same length",
        rule=(
            "Two numbers decide, with their whole intervals: R², and how often the cosine alone ranks the model's top "
            "word first.\n"
            f"Supported if R² is above {T.output_share}, and the cosine ranks that word first for at least "
            f"{T.output_same_word:.0%} of tokens.\n"
            f"Qualified if R² is above {T.output_share}, but the cosine ranks another word first for more than "
            f"{1 - T.output_same_word:.0%} of tokens: the angle explains the logits but does not choose the word.\n"
            f"Refuted if R² is below {T.output_share}.\n"
            "Undecided if an interval spans its limit or is missing, or if the model predicts no next token.\n"
            "An untrained model does it as well: the claim is not about training."
        ),
        kind="behaviour",
        changes=(
            RuleChange(
                "2026-11-16",
                "The share of first words has an interval too, and 256 tokens are read instead of 40: with 40 it was "
                "known to a tenth only.",
            ),
            RuleChange(
                "2026-11-18",
                "512 tokens of a small model are read, as many as words.refine needs. Nothing is decided otherwise.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "fed8f81ed947", 2),
            Rewording("2026-11-19", "8f9d800750e7", 2),
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
        r2, same_word = (over_documents(evidence, values, document) for values in (shares, same))
        twins = np.array([_share_intervals(evidence, arm) for arm in evidence.twins])
        random = twins[..., 0].mean(0)
        cosine, length, bias = r2[:, 0]
        if np.isnan(cosine):
            reading = "All words have the same logit: there is no variance to explain."
            finding = undecided(self.claim, Why.UNDEFINED, reading, _table(r2, same_word, random), len(document))
            return replace(finding, more_tables=tables)
        verdict, why = _verdict(triple(r2[0]), triple(same_word[0]))
        longer = longer_text(anatomy, evidence.tokens, sampled_tokens) if more_text(why) else ""
        return Finding(
            claim=self.claim,
            verdict=verdict,
            why=why,
            statistic=Statistic("R² of the logit on the cosine, mean over tokens", *r2[0].tolist()),
            n=len(document),
            controls=(Control(RANDOM, *triple(over_twins(twins[:, 0]))),),
            reading=f"The angle alone explains {cosine:.0%} of the variance of the logits over the vocabulary; the "
            f"words' lengths alone {length:.0%}, the bias β·e alone {bias:.0%}. The word at the smallest angle is the "
            f"model's top word for {same_word[0, 0]:.0%} of tokens.{longer}",
            headline=f"The angle alone explains {cosine:.0%} of the variance of the logits and finds the top word for "
            f"{same_word[0, 0]:.0%} of tokens",
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


def _share_intervals(evidence: Evidence, arm: str) -> Floats:
    """[part, (value, low, high)] of R² in one arm."""
    shares, _, document = _shares(evidence, arm)
    return over_documents(evidence, shares, document)


def _verdict(cosine: Interval, same_word: Interval) -> tuple[Verdict, Why | None]:
    mostly = above(cosine, T.output_share)
    if mostly is None:
        return "undecided", missing_interval(*cosine)
    if not mostly:
        return "refuted", None
    same = above(same_word, T.output_same_word)
    if same is None:
        return "undecided", missing_interval(*same_word)
    return "supported" if same else "qualified", None


def _table(r2: Floats, same_word: Floats, random: Floats) -> Table:
    return table(
        cells("part", "part of logit = ‖γ⊙e‖·‖z‖·cos(z, γ⊙e) + β·e", PARTS),
        interval_cells(
            "share", "R² of the logit over the vocabulary on this part alone, mean over tokens", r2, ends=""
        ),
        cells("same_word", "share of tokens for which this part ranks the model's top word first", same_word[:, 0]),
        cells("control", "the same R² at random initialisation", random),
    )


def _shares(evidence: Evidence, arm: str) -> tuple[Floats, Floats, Ints]:
    """R² [token, part]; does the part rank the model's first word first [token, part]; and the tokens' documents."""
    anatomy = evidence.model(arm)
    states, places = evidence[WORDS][arm].sampled()
    words, length, bias = _words(anatomy)
    units = words / length[:, None].clamp_min(1e-30)
    # As large as the vocabulary, and not needed any more.
    del words
    shares, same = np.zeros((2, len(states), len(PARTS)))
    size = max(1, _LOGITS // anatomy.vocabulary)
    for start in range(0, len(states), size):
        rows = slice(start, start + size)
        x = states[rows, -1].to(anatomy.device)
        scores = logits(anatomy, x)
        z = x if anatomy.ln_final is None else anatomy.ln_final.direction(x)
        cosine = (z / z.norm(dim=-1, keepdim=True).clamp_min(1e-30)) @ units.T
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
    """Squared correlation of centred numbers a [n, v] and b [n, v] or [v]; 0 for a constant b, NaN for a constant a."""
    power = a.square().sum(-1) * b.square().sum(-1)
    r2 = (a @ b if b.dim() == 1 else (a * b).sum(-1)).square() / power.clamp_min(1e-300)
    # A constant computed in floating point varies by its rounding error.
    varies = b.square().mean(-1) > 1e-20
    return np.where(a.square().sum(-1).cpu().numpy() > 0, (r2 * varies).cpu().numpy(), np.nan)

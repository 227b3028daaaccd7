"""Do the final norm and the embedding matrix read words out by their angle?"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Floats
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.words.embedding import DISTANCES, EXTREMES, distances_of, extreme_rows
from armillary.probes.words.lens import logits, over_documents, reads
from armillary.probes.words.refine import nothing_read
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy

PARTS = ("cosine", "length", "bias")
COLUMNS = (
    Column("part", "of logit = ‖γ⊙e‖·‖z‖·cos(z, γ⊙e) + β·e"),
    Column("share", "R² of the logit over the vocabulary on this part alone, mean over tokens"),
    Column("low", "its 95 % interval over documents, low end"),
    Column("high", "its 95 % interval over documents, high end"),
    Column("same_word", "share of tokens for which this part alone names the model's first word"),
    Column("control", "the same share of variance at random initialisation"),
)
_BATCH = 1 << 23


@dataclass(frozen=True)
class Output:
    """Shares of the logits' variance over the vocabulary, for sampled tokens' last states."""

    claim: ClassVar[Claim] = Claim(
        id="words.output",
        chapter="C",
        statement="Final norm and embedding matrix read words out by their angle to the state.",
        source="S0 R",
        definition=(
            "logit = ‖γ⊙e‖·‖z‖·cos(z, γ⊙e) + β·e for each word's vector e and the direction z of a sampled token's last state "
            "(γ⊙e without its mean where the norm takes means out: z does not see it). The statistic is R² of the logit on the "
            "cosine, over the vocabulary, mean over tokens; beside it on the words' lengths and on the bias β·e, and how often "
            "each names the same first word."
        ),
        control="random initialisation, where all words are about as long",
        rule=(
            f"Supported: R² lies above {T.output_share} with its whole interval and the cosine names the model's first word in "
            f"≥ {T.output_same_word:.0%} of cases. Refuted: R² lies below {T.output_share}. Qualified otherwise. Undecided for a "
            "model that reads out no next word."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("travel",)

    def conclude(self, evidence: Evidence) -> Finding:
        if not reads(evidence.anatomy):
            return replace(nothing_read(self.claim, evidence), more_tables=_embeddings(evidence.anatomy))
        shares, same, document = _shares(evidence, MODEL)
        stats = {part: over_documents(evidence, shares[part], document) for part in PARTS}
        twin = {} if RANDOM not in evidence.travel else _shares(evidence, RANDOM)[0]
        agree = {part: float(same[part].mean()) for part in PARTS}
        verdict = _verdict(stats["cosine"], agree["cosine"])
        rows = [
            {
                "part": part,
                "share": stats[part][0],
                "low": stats[part][1],
                "high": stats[part][2],
                "same_word": agree[part],
                "control": float(twin[part].mean()) if twin else None,
            }
            for part in PARTS
        ]
        controls = [Control(RANDOM, *(float(twin["cosine"].mean()),) * 3)] if twin else []
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("R² of the logit on the cosine, mean over tokens", *stats["cosine"]),
            n=len(document),
            controls=tuple(controls),
            reading=_reading(stats, agree),
            headline=f"The angle alone explains {stats['cosine'][0]:.0%} of the logits and names {agree['cosine']:.0%} of first words",
            table=Table.of(COLUMNS, rows),
            quantities=(_quantity(rows),),
            more_tables=_embeddings(evidence.anatomy),
        )


def _embeddings(anatomy: "Anatomy") -> dict[str, Table]:
    """E1 and E2 of the paper: how far embeddings are from their directions, and the words with extreme vectors."""
    return {
        "embeddings and their directions": Table.of(DISTANCES, distances_of(anatomy).rows),
        "longest and shortest words": Table.of(EXTREMES, extreme_rows(anatomy)[0]),
    }


def _shares(evidence: Evidence, arm: str) -> tuple[dict[str, Floats], dict[str, Floats], Any]:
    anatomy = evidence.twin if arm == RANDOM else evidence.anatomy
    assert anatomy is not None
    states, places = evidence.travel[arm].sampled()
    words, length, bias = _words(anatomy)
    shares: dict[str, list[Floats]] = {part: [] for part in PARTS}
    same: dict[str, list[Floats]] = {part: [] for part in PARTS}
    size = max(1, _BATCH // anatomy.vocabulary)
    for start in range(0, len(states), size):
        x = states[start : start + size, -1].to(anatomy.device)
        said = logits(anatomy, x)
        z = x if anatomy.ln_final is None else anatomy.ln_final.direction(x)
        cosine = (z / z.norm(dim=-1, keepdim=True).clamp_min(1e-30)) @ (words / length[:, None].clamp_min(1e-30)).T
        first, varying = said.argmax(-1), _centred(said)
        for part, values in zip(PARTS, (cosine, length, bias), strict=True):
            shares[part].append(_r2(varying, _centred(values)))
            same[part].append((first == values.argmax(-1)).double().cpu().numpy())
    joined = [{part: np.concatenate(found[part]) for part in PARTS} for found in (shares, same)]
    return joined[0], joined[1], places[:, 0]


def _words(anatomy: "Anatomy") -> "tuple[Tensor, Tensor, Tensor]":
    """γ⊙e as z sees it [v, d], its lengths, and β·e plus any bias of the unembedding."""
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
    """Squared correlation of centred numbers [n, v] and [n, v] or [v]; 0 where one of them does not vary."""
    power = a.square().sum(-1) * b.square().sum(-1)
    r2 = (a @ b if b.dim() == 1 else (a * b).sum(-1)).square() / power.clamp_min(1e-300)
    # A constant computed in floating point varies by its rounding.
    alive = b.square().mean(-1) > 1e-20
    return np.asarray((r2 * alive).cpu().numpy())


def _verdict(cosine: tuple[float, float, float], same: float) -> Verdict:
    if np.isnan(cosine).any() or cosine[1] < T.output_share < cosine[2]:
        return "undecided"
    if cosine[2] <= T.output_share:
        return "refuted"
    return "supported" if same >= T.output_same_word else "qualified"


def _reading(stats: dict[str, tuple[float, float, float]], same: dict[str, float]) -> str:
    told = f"Over the vocabulary the angle explains {stats['cosine'][0]:.0%} of a logit"
    told += f", words' lengths {stats['length'][0]:.0%} and the bias β·e {stats['bias'][0]:.0%}, each alone"
    return f"{told}; the smallest angle is the model's first word for {same['cosine']:.0%} of tokens."


def _quantity(rows: list[dict[str, Any]]) -> Quantity:
    def column(name: str) -> Floats:
        return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=float)

    return Quantity(
        "share of the logits' variance",
        "R² over the vocabulary on each part alone, mean over sampled tokens",
        "R²",
        ("part",),
        {"part": [row["part"] for row in rows]},
        column("share"),
        column("low"),
        column("high"),
        {RANDOM: column("control")},
    )

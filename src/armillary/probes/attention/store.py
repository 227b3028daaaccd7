"""Is W_VO a store, in which a word meets few keys and takes away their values?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from armillary.lab.required_words import NOUNS
from armillary.probes.attention.lexicon.known_words import (
    discoveries,
    resampled,
    sampled_words,
    shown_layers,
    spelling,
    spheres,
    vocabulary,
    whole,
    wordless,
)
from armillary.probes.attention.lexicon.written_words import (
    DIRECTION_COLUMNS,
    UPDATE_COLUMNS,
    Words,
    direction_rows,
    first_words,
    turned,
    update_rows,
)
from armillary.probes.attention.ties import caveat
from armillary.probes.attention.weights import head_names
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Flags, Floats, Ints
from armillary.probes.machinery.per_head import head_map, name_heads
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.results.table import Cell

ROTATIONS, BATCH, ENOUGH = 999, 40, 10
# Turns are k × k matrices: heads of 256 get fewer of them, so that all fit 128 MB.
NUMBERS = 1 << 24
TWIN_LAYERS = 2  # all layers of a random model are alike
COLUMNS = (
    Column("head", "attention head"),
    Column("value_1", "largest singular value of W_VO"),
    Column("directions", "effective number of directions, (Σσ²)²/Σσ⁴"),
    Column("keys_met", "effective number of keys a word meets, 1 / mean Σ p², p the shares of its update's energy"),
    Column("keys_turned", "the same with the left vectors turned at random inside their space"),
    Column("keys_shaped", "the same for words turned at random that keep mean and covariance in the head's frame"),
    Column("ratio", "concentration over the larger of those two by chance: above 1 a word meets fewer keys"),
    Column("p_value", "share of turns that are as concentrated, the larger of both kinds"),
    Column("stores", "significant after correcting for all heads, and ratio large enough"),
    Column("update", "length of a noun's update over that of its embedding, median noun"),
    Column("tie", "directions whose singular values nearly tie with the first: its tokens are then one choice of many"),
    Column("key token", "token farthest along the first left vector"),
    Column("update token", "token farthest along the first right vector"),
)


@dataclass(frozen=True, eq=False)
class _Matched:
    """Concentration Σ p² of every word's update over a head's directions, and what chance makes of it."""

    found: Floats  # [word, layer, head, (as it is, frame turned, words turned)]
    p: Floats  # [layer, head]


@dataclass(frozen=True)
class Store:
    """How few of a head's left singular vectors a word matches, against two kinds of chance."""

    claim: ClassVar[Claim] = Claim(
        id="vo.store",
        chapter="B",
        statement="W_VO is a key–value store: its left singular vectors are keys, its right ones updates.",
        source="S0",
        definition=(
            "Any matrix has singular vectors; a store predicts that an input matches few keys. For a word z (the COCA nouns "
            "and printable tokens drawn at random, as embeddings on the sphere) the update's energy in direction i is "
            "σ_i²(z·u_i)², p_i its share, Σp² the concentration. By chance: (a) the left vectors turned at random inside "
            "their own space, singular values kept; (b) the words turned at random after whitening and shaped back, so that "
            "mean and covariance in the head's own frame stay and only which word meets which key is lost: an axis that "
            "every word shares is no key. Statistic: concentration over the larger of the two, median head. Weights only: "
            f"the interval is a bootstrap over words; up to {ROTATIONS} turns."
        ),
        control="both kinds of turns, of which the harder decides; random initialisation",
        rule=(
            f"A head stores: ratio ≥ {T.store_ratio}, and significant against both (Benjamini–Hochberg over heads, "
            f"{T.false_discovery:.0%}). Supported: ≥ {T.heads_many:.0%} of heads do. Refuted: ≤ {T.sites_few:.0%}. Qualified "
            f"otherwise. Undecided below {T.words_least} nouns that are single tokens."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ()

    def conclude(self, evidence: Evidence) -> Finding:
        missing = wordless(self.claim, evidence, NOUNS)
        if missing is not None:
            return missing
        nouns = whole(evidence, NOUNS)
        ids = sampled_words(evidence, nouns)
        found = match(evidence, MODEL, ids, range(evidence.anatomy.layers))
        stores = discoveries(found.p) & (ratios(found.found.mean(0)) >= T.store_ratio)
        middle = resampled(found.found, _median_ratio, evidence)
        words = Words.of(evidence)
        return Finding(
            claim=self.claim,
            verdict=_verdict(stores),
            statistic=Statistic("concentration of an update over chance, median head", *middle),
            n=len(ids),
            controls=_controls(evidence, found, ids),
            reading=_reading(evidence, found, stores),
            headline=(
                f"{int(stores.sum())} of {stores.size} heads are stores: in the median head a word's update is "
                f"{middle[0]:.2f} times as concentrated as by chance"
            ),
            table=Table.of(COLUMNS, _rows(evidence, found, stores, nouns, ids, words)),
            quantities=_quantities(found),
            notes=_notes(evidence, nouns, ids),
            more_tables=_tables(evidence, nouns, ids, words),
        )


def match(evidence: Evidence, arm: str, ids: Ints, layers: Sequence[int]) -> _Matched:
    """Every head's concentration, as it is and under both kinds of turns."""
    import torch

    size = vocabulary(evidence, arm).anatomy.k
    # NumPy draws them: torch with the survey's seed would repeat the numbers that initialised the random twin.
    normal = torch.from_numpy(np.random.default_rng(evidence.seed).standard_normal((turns_for(size), size, size)))
    # Q of a Gaussian matrix is uniform over rotations once R's diagonal is made positive.
    q, r = torch.linalg.qr(normal)
    turns = (q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None]).to(evidence.anatomy.device)
    values, p = [], []
    for layer, z in zip(layers, spheres(evidence, arm, layers, ids), strict=True):
        svd = turned(evidence, arm, layer, ids)
        each = [_head(z.values.double() @ u, s, turns) for u, s in zip(svd.left, svd.values, strict=True)]
        values.append(np.stack([found for found, _ in each], 1))
        p.append([least for _, least in each])
    return _Matched(np.stack(values, 1), np.array(p))


def turns_for(size: int) -> int:
    return min(ROTATIONS, max(199, NUMBERS // size**2))


def _head(met: "Tensor", values: "Tensor", turns: "Tensor") -> tuple[Floats, float]:
    """[word, (as it is, frame turned, words turned)] for coordinates [word, key], and the larger p-value."""
    import torch

    mean = met.mean(0)
    variance, axes = torch.linalg.eigh((met - mean).mT @ (met - mean) / len(met))
    # Axes without variance beyond rounding carry no words to turn.
    spread = torch.where(variance > 1e-12 * variance[-1], variance, 0.0).sqrt()
    white = (met - mean) @ axes * torch.where(spread > 0, 1 / spread, 0.0)
    as_is = concentration(met.float(), values)
    frame, p_frame = _by_chance(met, torch.zeros_like(mean), values, turns, as_is.mean())
    words, p_words = _by_chance(white, mean, values, turns @ (spread[:, None] * axes.mT), as_is.mean())
    return torch.stack([as_is, frame, words], -1).double().cpu().numpy(), max(p_frame, p_words)


def _by_chance(
    rows: "Tensor", mean: "Tensor", values: "Tensor", turns: "Tensor", reached: "Tensor"
) -> tuple["Tensor", float]:
    """Mean concentration of every word under the turns, and the p-value of what was reached.

    Turns are drawn until enough of them are as concentrated: a head that chance explains needs few (Besag and Clifford).
    """
    import torch

    total, drawn, above = torch.zeros(len(rows), device=rows.device), 0, 0
    for some in torch.split(turns.float(), BATCH):
        # One product for all turns: [word, key] with [key, turn · key].
        met = (rows.float() @ some.transpose(0, 1).flatten(1)).view(len(rows), len(some), -1)
        found = concentration(met.add_(mean.float()), values)
        total, drawn = total + found.sum(1), drawn + len(some)
        above += int((found.mean(0) >= reached - 1e-7).sum())
        if above >= ENOUGH:
            break
    return total / drawn, (above + 1) / (drawn + 1)


def concentration(met: "Tensor", values: "Tensor") -> "Tensor":
    """Σ p² over keys [...] of coordinates [..., key], which are overwritten; 0 where nothing is written."""
    energy = met.mul_(values.to(met)).square_()
    total = energy.sum(-1)
    return energy.square_().sum(-1) / total.square_().clamp_min_(1e-30)


def ratios(means: Floats) -> Floats:
    """Concentration over the larger by chance, of means [..., 3]; 1 where a head writes nothing at all."""
    chance = means[..., 1:].max(-1)
    return np.where(chance > 0, means[..., 0] / np.where(chance > 0, chance, 1), 1.0)


def _median_ratio(mean: Floats) -> Floats:
    return np.median(ratios(mean).reshape(len(mean), -1), axis=1)


def _verdict(stores: Flags) -> Verdict:
    share = float(stores.mean())
    if share >= T.heads_many:
        return "supported"
    return "refuted" if share <= T.sites_few else "qualified"


def _controls(evidence: Evidence, found: _Matched, ids: Ints) -> tuple[Control, ...]:
    def against(chance: int) -> tuple[float, float, float]:
        one = found.found[..., [0, chance, chance]]
        return resampled(one, _median_ratio, evidence)

    made = [Control("over the frame turned alone", *against(1)), Control("over the words turned alone", *against(2))]
    if evidence.twin is not None:
        some = range(min(TWIN_LAYERS, evidence.twin.layers))
        made.append(Control(RANDOM, *resampled(match(evidence, RANDOM, ids, some).found, _median_ratio, evidence)))
    return tuple(made)


def _reading(evidence: Evidence, found: _Matched, stores: Flags) -> str:
    met = 1 / np.maximum(found.found.mean(0), 1e-30)
    which = f" ({name_heads(stores)})" if 0 < stores.sum() < stores.size else ""
    chance = met[..., 1:].min(-1)
    return (
        f"{int(stores.sum())} of {stores.size} heads are stores{which}: in the median head a word meets "
        f"{np.median(met[..., 0]):.1f} of {evidence.anatomy.k} keys, where by chance it would meet {np.median(chance):.1f} "
        "(the harder of a turned frame and of turned words)."
    )


def _rows(
    evidence: Evidence, found: _Matched, stores: Flags, nouns: dict[str, int], ids: Ints, words: Words
) -> list[dict[str, "Cell"]]:
    keys = (1 / np.maximum(found.found.mean(0), 1e-30)).reshape(-1, 3)
    ratio = ratios(found.found.mean(0)).reshape(-1)
    told = first_words(evidence, nouns, ids, words)
    return [
        {
            "head": name,
            "keys_met": float(keys[i, 0]),
            "keys_turned": float(keys[i, 1]),
            "keys_shaped": float(keys[i, 2]),
            "ratio": float(ratio[i]),
            "p_value": float(found.p.flat[i]),
            "stores": bool(stores.flat[i]),
            **cells,
        }
        for i, (name, cells) in enumerate(zip(head_names(evidence.anatomy), told, strict=True))
    ]


def _tables(evidence: Evidence, nouns: dict[str, int], ids: Ints, words: Words) -> dict[str, Table]:
    made = {}
    for layer in shown_layers(evidence.anatomy.layers):
        svd = turned(evidence, MODEL, layer, ids)
        made[f"directions L{layer}"] = Table.of(DIRECTION_COLUMNS, direction_rows(evidence, layer, svd, words))
        made[f"updates L{layer}"] = Table.of(UPDATE_COLUMNS, update_rows(evidence, layer, nouns, words))
    return made


def _quantities(found: _Matched) -> tuple[Quantity, ...]:
    met = 1 / np.maximum(found.found.mean(0), 1e-30)
    meaning = "concentration of a word's update over a head's directions, relative to chance"
    return (
        head_map("concentration over chance", meaning, "ratio", ratios(found.found.mean(0))),
        head_map(
            "keys met",
            "effective number of left singular vectors that a word matches",
            "keys",
            met[..., 0],
            {"by chance": met[..., 1:].min(-1)},
        ),
    )


def _notes(evidence: Evidence, nouns: dict[str, int], ids: Ints) -> tuple[str, ...]:
    notes = [
        f"{len(nouns)} of {len(NOUNS)} nouns are single tokens here, {spelling(evidence, nouns)}; with them "
        f"{len(ids) - len(nouns)} printable tokens drawn at random.",
        "Words enter as bare embeddings at every depth, as S0 reads them; what the stream has become by then is not seen.",
        "The larger of two kinds of chance lies a little above either: a head without keys comes out just below 1.",
        caveat(evidence),
    ]
    if any(block.ln1_post is not None for block in evidence.anatomy.blocks):
        notes.append("A norm stands between heads and stream: lengths of updates are taken before it divides.")
    if evidence.twin is not None and evidence.twin.layers > TWIN_LAYERS:
        notes.append(f"Of the random initialisation {TWIN_LAYERS} layers were measured: all are alike.")
    return tuple(notes)

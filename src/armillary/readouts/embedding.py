"""How far are embeddings from their directions, and which tokens are longest? (E1, E2 of the paper)"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import reading_norm
from armillary.anatomy.norm import Norm
from armillary.anatomy.vocabulary import Vocabulary
from armillary.readouts.ask import Gauge
from armillary.results import Column, Quantity, Table
from armillary.results.sheet import Sheet
from armillary.results.table import Cell

Floats = NDArray[np.float64]
ENDS = 5
_ROWS = 8192
DISTANCES = (
    Column(
        "variant",
        "E as it is, centred, scaled or both, compared with its directions z (no gain, no shift) of length √d",
    ),
    Column("distance", "Euclidean distance, mean over the vocabulary", "‖x‖"),
    Column("distance_sd", "its standard deviation", "‖x‖"),
    Column("cosine", "cosine, mean over the vocabulary"),
    Column("cosine_sd", "its standard deviation"),
    Column("tokens", "tokens counted"),
)
EXTREMES = (
    Column("measure", "what tokens are ranked by"),
    Column("among", "words: tokens that can be shown; all: every token with a text"),
    Column("end", "highest or lowest"),
    Column("rank", "place, 1 is the extreme"),
    Column("token_word", "token"),
    Column("token_id", "its number in the vocabulary"),
    Column("token_score", "its value", "‖x‖"),
)


def named(anatomy: Anatomy) -> Vocabulary:
    """The vocabulary, also of a model without a tokenizer: then no token has a text."""
    if anatomy.tokenizer is None:
        return Vocabulary(anatomy, ("",) * anatomy.vocabulary, frozenset())
    return Vocabulary.of(anatomy)


def distances(anatomy: Anatomy, gauge: Gauge) -> Sheet:
    """E1: from LN(E), without gain and shift, to E as it is, centred, scaled, and both."""
    vocabulary = named(anatomy)
    counted = np.array([text != "" for text in vocabulary.texts])
    ids = torch.from_numpy(np.flatnonzero(counted) if counted.any() else np.arange(len(counted))).to(anatomy.device)
    site, norm = reading_norm(anatomy, 0)
    norm = norm or anatomy.blocks[0].ln1
    factor = float(np.sqrt(anatomy.d)) / float(_lengths(vocabulary, ids).mean())
    variants = {"E": (False, 1.0), "E centred": (True, 1.0), "E scaled": (False, factor), "E both": (True, factor)}
    rows = [{"variant": name, **_distance(vocabulary, ids, norm, *how)} for name, how in variants.items()]
    return Sheet(
        name="E1-distances",
        title=f"Centred and scaled, embeddings lie {rows[3]['distance']:.3g} from their directions, whose length is "
        f"{np.sqrt(anatomy.d):.3g}; as they are, {rows[0]['distance']:.3g}",
        caption=f"{anatomy.name} · directions of {site or 'the first norm'} · {len(ids)} tokens",
        tables={"distances": Table.of(DISTANCES, rows)},
        quantities=(_line("distance", "‖x‖", rows), _line("cosine", "cosine", rows)),
        notes=(
            f"Scaled: times √d over the mean length of an embedding, {factor:.4g}. Centred: less the mean of its own "
            "coordinates. E is what the stream receives, without position.",
        ),
        about=gauge.about(anatomy),
    )


def _lengths(vocabulary: Vocabulary, ids: Tensor) -> Tensor:
    return torch.cat([vocabulary.embedded(some).values.norm(dim=-1) for some in torch.split(ids, _ROWS)])


def _distance(vocabulary: Vocabulary, ids: Tensor, norm: Norm, centre: bool, scale: float) -> dict[str, Cell]:
    found = []
    for some in torch.split(ids, _ROWS):
        e = vocabulary.embedded(some).values
        z, x = norm.direction(e), (e - e.mean(-1, keepdim=True) if centre else e) * scale
        found.append(torch.stack(((x - z).norm(dim=-1), torch.nn.functional.cosine_similarity(x, z, dim=-1))))
    distance, cosine = torch.cat(found, 1).cpu().numpy()
    row: dict[str, Cell] = {"distance": float(distance.mean()), "cosine": float(cosine.mean()), "tokens": len(ids)}
    return row | {"distance_sd": float(distance.std()), "cosine_sd": float(cosine.std())}


def _line(name: str, unit: str, rows: list[dict[str, Cell]]) -> Quantity:
    values, spread = (np.array([float(row[key] or 0) for row in rows]) for key in (name, f"{name}_sd"))
    coords = {"variant": [str(row["variant"]) for row in rows]}
    what = f"{name} to the directions LN(E)"
    said = "mean over the vocabulary; whiskers: one standard deviation of tokens"
    return Quantity(what, said, unit, ("variant",), coords, values, values - spread, values + spread)


@dataclass(frozen=True)
class _Measure:
    name: str
    meaning: str
    values: Floats


def extremes(anatomy: Anatomy, gauge: Gauge) -> Sheet:
    """E2: tokens with the longest and shortest output vectors, with the final norm's gain and shift and without."""
    vocabulary = named(anatomy)
    measures = _measures(anatomy)
    texts = np.array([text != "" for text in vocabulary.texts])
    rows = [row for one in measures for row in _ends(one, vocabulary, {"words": vocabulary.shown, "all": texts})]
    notes = [
        "Vectors are the unembedding's rows." if anatomy.W_U is not None else "No unembedding: the embedding's rows."
    ]
    if len(measures) < 4:
        notes.append(
            "No final norm." if anatomy.ln_final is None else "The final norm has no shift, so β·e is no measure."
        )
    values = measures[0].values[texts[: len(measures[0].values)]] if texts.any() else measures[0].values
    return Sheet(
        name="E2-extremes",
        title=f"Output vectors are {values.min():.3g} to {values.max():.3g} long, {np.median(values):.3g} in the middle",
        caption=f"{anatomy.name} · {len(values)} tokens",
        tables={"extremes": Table.of(EXTREMES, rows)},
        quantities=tuple(_quantiles(one, texts) for one in measures),
        notes=tuple(notes),
        about=gauge.about(anatomy),
    )


def _ends(one: _Measure, vocabulary: Vocabulary, groups: dict[str, NDArray[np.bool_]]) -> Iterator[dict[str, Cell]]:
    for group, chosen in groups.items():
        numbers = np.flatnonzero(chosen[: len(one.values)])
        order = numbers[np.argsort(-one.values[numbers], kind="stable")]
        for end, some in (("highest", order[:ENDS]), ("lowest", order[::-1][:ENDS])):
            for rank, number in enumerate(some):
                row: dict[str, Cell] = {"measure": one.name, "among": group, "end": end, "rank": rank + 1}
                row |= {"token_word": vocabulary.texts[number], "token_id": int(number)}
                yield {**row, "token_score": float(one.values[number])}


def _measures(anatomy: Anatomy) -> list[_Measure]:
    rows = (anatomy.W_E if anatomy.W_U is None else anatomy.W_U.T).double()
    norm = anatomy.ln_final
    made = [_Measure("‖e‖", "length of a token's output vector", _numbers(rows.norm(dim=-1)))]
    if norm is None:
        return made
    scaled = _numbers((rows * norm.gain.double()).norm(dim=-1))
    made.append(_Measure("‖γ⊙e‖", "the same with the final norm's gain", scaled))
    if norm.shift is not None:
        shift = _numbers(rows @ norm.shift.double())
        made.append(_Measure("‖e‖ + β·e", "length and the final norm's bias together", made[0].values + shift))
        made.append(_Measure("‖γ⊙e‖ + β·e", "both", scaled + shift))
    return made


def _numbers(values: Tensor) -> Floats:
    return np.asarray(values.cpu().numpy())


def _quantiles(one: _Measure, texts: NDArray[np.bool_]) -> Quantity:
    chosen = texts[: len(one.values)]
    shares = np.linspace(0, 1, 101)
    values = np.quantile(one.values[chosen] if chosen.any() else one.values, shares)
    coords = {"share of tokens": [float(share) for share in shares]}
    return Quantity(
        one.name, f"{one.meaning}: tokens from the lowest to the highest", "‖x‖", ("share of tokens",), coords, values
    )

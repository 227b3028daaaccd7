"""How far are embeddings from their directions, and which words have the longest vectors? (E1, E2 of the paper)"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.probes.machinery.evidence import Floats
from armillary.results import Column
from armillary.results.table import Cell

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy, Norm
    from armillary.anatomy.vocabulary import Vocabulary

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


def named(anatomy: "Anatomy") -> "Vocabulary":
    """The vocabulary, also of a model without a tokenizer: then no token has a text."""
    from armillary.anatomy.vocabulary import Vocabulary

    if anatomy.tokenizer is None:
        return Vocabulary(anatomy, ("",) * anatomy.vocabulary, frozenset())
    return Vocabulary.of(anatomy)


@dataclass(frozen=True)
class Distances:
    """E1: rows for E as it is, centred, scaled, and both; whose directions, and what scaled means."""

    rows: list[dict[str, Cell]]
    site: str
    tokens: int
    factor: float


def distances_of(anatomy: "Anatomy") -> Distances:
    """From LN(E), without gain and shift, to E as it is, centred, scaled, and both."""
    import torch

    from armillary.anatomy.folded import reading_norm

    vocabulary = named(anatomy)
    counted = np.array([text != "" for text in vocabulary.texts])
    ids = torch.from_numpy(np.flatnonzero(counted) if counted.any() else np.arange(len(counted))).to(anatomy.device)
    site, norm = reading_norm(anatomy, 0)
    norm = norm or anatomy.blocks[0].ln1
    factor = float(np.sqrt(anatomy.d)) / float(_lengths(vocabulary, ids).mean())
    variants = {"E": (False, 1.0), "E centred": (True, 1.0), "E scaled": (False, factor), "E both": (True, factor)}
    rows = [{"variant": name, **_distance(vocabulary, ids, norm, *how)} for name, how in variants.items()]
    return Distances(rows, site, len(ids), factor)


def _lengths(vocabulary: "Vocabulary", ids: "Tensor") -> "Tensor":
    import torch

    return torch.cat([vocabulary.embedded(some).values.norm(dim=-1) for some in torch.split(ids, _ROWS)])


def _distance(vocabulary: "Vocabulary", ids: "Tensor", norm: "Norm", centre: bool, scale: float) -> dict[str, Cell]:
    import torch

    found = []
    for some in torch.split(ids, _ROWS):
        e = vocabulary.embedded(some).values
        z, x = norm.direction(e), (e - e.mean(-1, keepdim=True) if centre else e) * scale
        found.append(torch.stack(((x - z).norm(dim=-1), torch.nn.functional.cosine_similarity(x, z, dim=-1))))
    distance, cosine = torch.cat(found, 1).cpu().numpy()
    row: dict[str, Cell] = {"distance": float(distance.mean()), "cosine": float(cosine.mean()), "tokens": len(ids)}
    return row | {"distance_sd": float(distance.std()), "cosine_sd": float(cosine.std())}


@dataclass(frozen=True)
class Measure:
    name: str
    meaning: str
    values: Floats


def extreme_rows(anatomy: "Anatomy") -> tuple[list[dict[str, Cell]], list[Measure]]:
    """E2: words with the longest and shortest output vectors, by every measure there is."""
    vocabulary = named(anatomy)
    found = measures(anatomy)
    groups = {"words": vocabulary.shown, "all": np.array([text != "" for text in vocabulary.texts])}
    return [row for one in found for row in _ends(one, vocabulary, groups)], found


def _ends(one: Measure, vocabulary: "Vocabulary", groups: dict[str, NDArray[np.bool_]]) -> Iterator[dict[str, Cell]]:
    for group, chosen in groups.items():
        numbers = np.flatnonzero(chosen[: len(one.values)])
        order = numbers[np.argsort(-one.values[numbers], kind="stable")]
        for end, some in (("highest", order[:ENDS]), ("lowest", order[::-1][:ENDS])):
            for rank, number in enumerate(some):
                row: dict[str, Cell] = {"measure": one.name, "among": group, "end": end, "rank": rank + 1}
                row |= {"token_word": vocabulary.texts[number], "token_id": int(number)}
                yield {**row, "token_score": float(one.values[number])}


def measures(anatomy: "Anatomy") -> list[Measure]:
    rows = (anatomy.W_E if anatomy.W_U is None else anatomy.W_U.T).double()
    norm = anatomy.ln_final
    made = [Measure("‖e‖", "length of a token's output vector", _numbers(rows.norm(dim=-1)))]
    if norm is None:
        return made
    scaled = _numbers((rows * norm.gain.double()).norm(dim=-1))
    made.append(Measure("‖γ⊙e‖", "the same with the final norm's gain", scaled))
    if norm.shift is not None:
        shift = _numbers(rows @ norm.shift.double())
        made.append(Measure("‖e‖ + β·e", "length and the final norm's bias together", made[0].values + shift))
        made.append(Measure("‖γ⊙e‖ + β·e", "both", scaled + shift))
    return made


def _numbers(values: "Tensor") -> Floats:
    return np.asarray(values.cpu().numpy())

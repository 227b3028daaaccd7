"""How far are embeddings from their directions, and which words have the longest vectors? (E1 and E2 of S0)"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.probes.machinery import Floats, cells, table
from armillary.results import Table
from armillary.results.table import Cell

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy, Norm
    from armillary.anatomy.vocabulary import Vocabulary

ENDS = 5
VARIANTS = ("E", "E centred", "E scaled", "E both")
_ROWS = 8192


def named(anatomy: "Anatomy") -> "Vocabulary":
    """The vocabulary; without a tokenizer no token has a text."""
    from armillary.anatomy.vocabulary import Vocabulary

    if anatomy.tokenizer is None:
        return Vocabulary(anatomy, ("",) * anatomy.vocabulary, frozenset())
    return Vocabulary.of(anatomy)


@dataclass(frozen=True, eq=False)
class Distances:
    """E1: `distance` and `cosine` [variant, (mean, standard deviation)] of embeddings to the directions at a site."""

    distance: Floats
    cosine: Floats
    site: str
    tokens: int
    factor: float
    """What `scaled` multiplies by: √d over the mean length of an embedding."""

    @property
    def table(self) -> Table:
        meaning = "E as it is, centred, scaled or both, compared with its directions z (no gain, no shift) of length √d"
        return table(
            cells("variant", meaning, VARIANTS),
            cells("distance", "Euclidean distance, mean over the vocabulary", self.distance[:, 0], "‖x‖"),
            cells("distance_sd", "its standard deviation", self.distance[:, 1], "‖x‖"),
            cells("cosine", "cosine, mean over the vocabulary", self.cosine[:, 0]),
            cells("cosine_sd", "its standard deviation", self.cosine[:, 1]),
            cells("tokens", "tokens counted", [self.tokens] * len(VARIANTS)),
        )


def distances_of(anatomy: "Anatomy") -> Distances:
    """From LN(E), without gain and shift, to E as it is, centred, scaled, and both."""
    import torch

    from armillary.anatomy.folded import reading_norm

    vocabulary = named(anatomy)
    counted = np.array([text != "" for text in vocabulary.texts])
    ids = torch.from_numpy(np.flatnonzero(counted) if counted.any() else np.arange(len(counted))).to(anatomy.device)
    site, norm = reading_norm(anatomy, 0)
    norm = norm or next(iter(anatomy.norms.values()))
    lengths = torch.cat([vocabulary.embedded(some).values.norm(dim=-1) for some in torch.split(ids, _ROWS)])
    factor = float(np.sqrt(anatomy.d)) / float(lengths.mean())
    settings = ((False, 1.0), (True, 1.0), (False, factor), (True, factor))
    moments = np.array([_moments(vocabulary, ids, norm, centre, scale) for centre, scale in settings])
    return Distances(moments[:, 0], moments[:, 1], site, len(ids), factor)


def _moments(vocabulary: "Vocabulary", ids: "Tensor", norm: "Norm", centre: bool, scale: float) -> Floats:
    """[(distance, cosine), (mean, standard deviation)] over the vocabulary."""
    import torch

    parts = []
    for some in torch.split(ids, _ROWS):
        e = vocabulary.embedded(some).values
        z, x = norm.direction(e), (e - e.mean(-1, keepdim=True) if centre else e) * scale
        parts.append(torch.stack(((x - z).norm(dim=-1), torch.nn.functional.cosine_similarity(x, z, dim=-1))))
    values = torch.cat(parts, 1).cpu().numpy()
    return np.stack([values.mean(1), values.std(1)], 1)


@dataclass(frozen=True, eq=False)
class VectorLengths:
    """One measure of how long every word's output vector is."""

    name: str
    meaning: str
    values: Floats


def extremes_of(anatomy: "Anatomy") -> tuple[Table, list[VectorLengths]]:
    """E2: words with the longest and shortest output vectors, by every measure that the final norm allows."""
    vocabulary, lengths = named(anatomy), vector_lengths(anatomy)
    groups = {"words": vocabulary.shown, "all": np.array([text != "" for text in vocabulary.texts])}
    rows = [
        (measure.name, group, end, rank + 1, vocabulary.texts[token], int(token), float(measure.values[token]))
        for measure in lengths
        for group, chosen in groups.items()
        for end, tokens in _ends(measure.values, chosen).items()
        for rank, token in enumerate(tokens)
    ]
    columns: list[tuple[Cell, ...]] = list(zip(*rows, strict=True)) if rows else [()] * 7
    return table(
        cells("measure", "what tokens are ranked by", columns[0]),
        cells("among", "words: tokens that can be shown; all: every token with a text", columns[1]),
        cells("end", "highest or lowest", columns[2]),
        cells("rank", "rank, 1 is the extreme", columns[3]),
        cells("token_word", "text of the token", columns[4]),
        cells("token_id", "its number in the vocabulary", columns[5]),
        cells("token_score", "its value", columns[6], "‖x‖"),
    ), lengths


def _ends(values: Floats, chosen: NDArray[np.bool_]) -> dict[str, NDArray[np.int64]]:
    tokens = np.flatnonzero(chosen[: len(values)])
    order = tokens[np.argsort(-values[tokens], kind="stable")]
    return {"highest": order[:ENDS], "lowest": order[::-1][:ENDS]}


def vector_lengths(anatomy: "Anatomy") -> list[VectorLengths]:
    """With the final norm's gain and shift and without them."""
    rows = (anatomy.W_E if anatomy.W_U is None else anatomy.W_U.T).double()
    norm = anatomy.ln_final
    plain = rows.norm(dim=-1).cpu().numpy()
    lengths = [VectorLengths("‖e‖", "length of a token's output vector", plain)]
    if norm is None:
        return lengths
    scaled = (rows * norm.gain.double()).norm(dim=-1).cpu().numpy()
    lengths.append(VectorLengths("‖γ⊙e‖", "the same with the final norm's gain", scaled))
    if norm.shift is not None:
        shift = (rows @ norm.shift.double()).cpu().numpy()
        lengths.append(VectorLengths("‖e‖ + β·e", "the length plus the final norm's bias", plain + shift))
        lengths.append(VectorLengths("‖γ⊙e‖ + β·e", "both", scaled + shift))
    return lengths

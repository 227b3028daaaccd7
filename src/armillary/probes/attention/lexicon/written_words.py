"""What do a head's directions, and its updates of single words, say in words?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.lexicon.known_words import spheres, token_cells, token_columns, vocabulary
from armillary.probes.attention.ties import TIE_COLUMN, ties
from armillary.probes.attention.weights import head_names, heads
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Ints
from armillary.results import Column

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.geometry.factored import SVD
    from armillary.results.table import Cell

DIRECTIONS, TOP, NOUNS_SHOWN = 5, 5, 20
DIRECTION_COLUMNS = (
    Column("head", "attention head"),
    Column("direction", "number of the pair of singular vectors of W_VO, strongest first"),
    Column("value", "its singular value"),
    Column("share", "its share of all squared singular values"),
    TIE_COLUMN,
    Column("side", "reads: left vector against tokens on the sphere; writes: right vector against the output tokens"),
    *token_columns("token", "token farthest along it, sign by the data", TOP),
)
UPDATE_COLUMNS = (
    Column("noun", "the word attended to"),
    Column("head", "attention head, or the sum of the layer's heads with its output bias"),
    Column("length", "length of what it writes for this word, value bias included"),
    Column("relative", "that length over the length of the word's embedding"),
    *token_columns("promoted", "token whose output direction the update lies farthest along", TOP),
    Column("outcome token", "token read from embedding plus update through the final norm"),
)


def turned(evidence: Evidence, arm: str, layer: int, ids: Ints) -> "SVD":
    """W_VO's singular vectors, each pair's sign turned to where these words reach farthest."""
    from armillary.probes.attention.weights import decompose

    rows = next(spheres(evidence, arm, [layer], ids)).values
    if arm == RANDOM:
        assert evidence.twin is not None
        return decompose(evidence.twin, layer).vo.oriented(rows)
    return heads(evidence)[layer].vo.oriented(rows)


@dataclass(frozen=True, eq=False)
class Words:
    """The tokens that can be shown, by id, and what a vector of the stream is read against, float32."""

    ids: Ints
    rows: "Tensor"

    @classmethod
    def of(cls, evidence: Evidence, arm: str = MODEL, letters: bool = False) -> "Words":
        """All printable tokens, or those of letters alone."""
        tokens = vocabulary(evidence, arm)
        ids = np.flatnonzero(tokens.shown)
        if letters:
            ids = ids[[tokens.texts[i].strip().removeprefix("##").isalpha() for i in ids]]
        return cls(ids, tokens.outputs().values[ids].float())

    def top(self, directions: "Tensor", top: int) -> Ints:
        """Ids [direction, top] of the tokens farthest along each."""
        return read(directions, self.rows, self.ids, top)


def read(directions: "Tensor", rows: "Tensor", ids: Ints, top: int) -> Ints:
    from armillary.geometry.readout import top_tokens

    return np.asarray(ids[top_tokens(directions.float(), rows, top).ids.cpu().numpy()])


def onto_stream(anatomy: "Anatomy", layer: int, rows: "Tensor") -> "Tensor":
    """Writes as the stream gets them, but for the length that a norm after attention divides by."""
    norm = anatomy.blocks[layer].ln1_post
    return rows if norm is None else rows * norm.gain.to(rows)


def direction_rows(evidence: Evidence, layer: int, svd: "SVD", words: Words) -> list[dict[str, "Cell"]]:
    """The first directions of every head of a layer, either side in tokens; `words` as the model's outputs are read."""
    count = min(DIRECTIONS, svd.values.shape[-1])
    left, right = (side[..., :count].mT.flatten(0, 1) for side in (svd.left, svd.right))
    sphere = next(spheres(evidence, MODEL, [layer], words.ids)).values
    reads, writes = read(left, sphere, words.ids, TOP), words.top(onto_stream(evidence.anatomy, layer, right), TOP)
    energy = svd.values.square()
    share = (energy / energy.sum(-1, keepdim=True).clamp_min(1e-300)).cpu().numpy()
    names, tied = head_names(evidence.anatomy)[layer * evidence.anatomy.n_heads :], ties(svd)
    return [
        {
            "head": names[i // count],
            "direction": i % count + 1,
            "value": float(svd.values[i // count, i % count]),
            "share": float(share[i // count, i % count]),
            "tie": tied[i // count][i % count],
            "side": side,
            **token_cells(evidence, "token", ids[i]),
        }
        for i in range(len(reads))
        for side, ids in (("reads", reads), ("writes", writes))
    ]


def first_words(evidence: Evidence, nouns: Mapping[str, int], ids: Ints, words: Words) -> Iterator[dict[str, "Cell"]]:
    """For every head its spectrum, the length of nouns' updates and its first direction in tokens."""
    import torch

    tokens, anatomy = vocabulary(evidence), evidence.anatomy
    at = torch.tensor(list(nouns.values()), device=anatomy.device)
    lengths = tokens.embedded(at).values.norm(dim=-1).clamp_min(1e-300)
    for layer, sphere in enumerate(spheres(evidence, MODEL, range(anatomy.layers), words.ids)):
        svd = turned(evidence, MODEL, layer, ids)
        key = read(svd.left[..., 0], sphere.values, words.ids, 1)[:, 0]
        update = words.top(onto_stream(anatomy, layer, svd.right[..., 0]), 1)[:, 0]
        written = heads(evidence)[layer].folded.updates(tokens.directions(layer, at)).values
        relative = onto_stream(anatomy, layer, written).norm(dim=-1) / lengths
        energy = svd.values.square()
        rank, tied = energy.sum(-1).square() / energy.square().sum(-1).clamp_min(1e-300), ties(svd)
        for head in range(anatomy.n_heads):
            yield {
                "value_1": float(svd.values[head, 0]),
                "directions": float(rank[head]),
                "update": float(relative[head].median()),
                "tie": tied[head][0],
                "key token": tokens.texts[key[head]],
                "update token": tokens.texts[update[head]],
            }


def update_rows(evidence: Evidence, layer: int, nouns: Mapping[str, int], words: Words) -> list[dict[str, "Cell"]]:
    """What each head, and the whole layer, would write for the most frequent nouns if it attended to them alone."""
    import torch

    tokens, anatomy = vocabulary(evidence), evidence.anatomy
    ids = list(nouns.values())[:NOUNS_SHOWN]
    at = torch.tensor(ids, device=anatomy.device)
    folded = heads(evidence)[layer].folded
    each = folded.updates(tokens.directions(layer, at)).values
    total = each.sum(0, keepdim=True)
    total = total if folded.b_O is None else total + folded.b_O
    written = onto_stream(anatomy, layer, torch.cat([each, total]))
    stream = tokens.embedded(at).values
    promoted = words.top(written.flatten(0, 1), TOP)
    outcome = _outcomes(evidence, (stream + written).flatten(0, 1), words)
    lengths = written.norm(dim=-1)
    relative = lengths / stream.norm(dim=-1).clamp_min(1e-300)
    names = [*head_names(anatomy)[layer * anatomy.n_heads :][: anatomy.n_heads], "all heads"]
    return [
        {
            "noun": tokens.texts[token],
            "head": name,
            "length": float(lengths[head, i]),
            "relative": float(relative[head, i]),
            **token_cells(evidence, "promoted", promoted[head * len(ids) + i]),
            "outcome token": tokens.texts[int(outcome[head * len(ids) + i])],
        }
        for i, token in enumerate(ids)
        for head, name in enumerate(names)
    ]


def _outcomes(evidence: Evidence, stream: "Tensor", words: Words) -> Ints:
    """The likeliest token of every vector of the stream, were it the last: the final norm, then the output matrix."""
    import torch

    a = evidence.anatomy
    z = stream if a.ln_final is None else a.ln_final.direction(stream)
    constant = torch.zeros(len(words.ids), device=z.device)
    if a.W_U is not None and a.ln_final is not None and a.ln_final.shift is not None:
        constant = constant + (a.ln_final.shift.float() @ a.W_U.float())[words.ids]
    if a.b_U is not None:
        constant = constant + a.b_U.float()[words.ids]
    # One more coordinate, 1 for every vector, carries what does not depend on it.
    rows = torch.cat([words.rows, constant[:, None]], 1)
    return read(torch.cat([z, torch.ones_like(z[:, :1])], 1), rows, words.ids, 1)[:, 0]

"""The directions of W_VO and the updates of single words, read as tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.probes.attention.lexicon.known_words import token_cells, vocabulary
from armillary.probes.attention.lexicon.word_directions import oriented, word_directions
from armillary.probes.attention.spaces.decomposed_heads import TIE_MEANING, decomposed, ties
from armillary.probes.machinery import MODEL, Cells, Evidence, Ints, T, cells, head_table, once, table
from armillary.probes.machinery.verdicts import undecided
from armillary.results import Claim, Finding, Table, Why

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy

DIRECTIONS, TOP, NOUNS_SHOWN = 5, 5, 20


@once
def letter_ids(evidence: Evidence) -> Ints:
    """The printable tokens that are made of letters only."""
    tokens = vocabulary(evidence)
    ids = np.flatnonzero(tokens.shown)
    return ids[[tokens.texts[i].strip().removeprefix("##").isalpha() for i in ids]]


@once
def trained_ids(evidence: Evidence) -> Ints:
    """The tokens made of letters, without those that were hardly trained."""
    import torch

    from armillary.geometry.clouds.crowding import crowded

    ids, rows = letter_ids(evidence), vocabulary(evidence).outputs(dtype=torch.float32).values
    return ids[~crowded(rows, T.crowd_cosine, T.crowd_others).cpu().numpy()[ids]]


def untrained_note(evidence: Evidence) -> str:
    """How many tokens were left out because they were hardly trained."""
    every, left = len(letter_ids(evidence)), len(letter_ids(evidence)) - len(trained_ids(evidence))
    return (
        f"Left out as hardly trained: {left} of {every} tokens made of letters, those with {T.crowd_others} others at "
        f"a cosine above {T.crowd_cosine} in the output embedding."
    )


def all_crowded(claim: Claim, evidence: Evidence) -> Finding | None:
    """An undecided finding where hardly any token is left."""
    left = len(trained_ids(evidence))
    if left >= T.words_least:
        return None
    reading = (
        f"Of {len(letter_ids(evidence))} tokens made of letters only {left} are apart from the others in the output "
        f"embedding; a verdict needs {T.words_least}. A model whose tokens were trained is needed."
    )
    return undecided(claim, Why.UNDEFINED, reading, head_table(evidence.anatomy), left)


@dataclass(frozen=True, eq=False)
class ReadableTokens:
    """The printable tokens by id, and the rows that a vector of the stream is compared with, float32."""

    ids: Ints
    rows: "Tensor"

    @classmethod
    def of(cls, evidence: Evidence, arm: str = MODEL, letters: bool = False) -> "ReadableTokens":
        """All printable tokens, or those made of letters only that were trained."""
        import torch

        tokens = vocabulary(evidence, arm)
        ids = trained_ids(evidence) if letters else np.flatnonzero(tokens.shown)
        rows = torch.from_numpy(ids).to(tokens.anatomy.device)
        return cls(ids, tokens.outputs(rows, torch.float32).values)

    def top(self, directions: "Tensor", top: int) -> Ints:
        """Ids [direction, rank] of the tokens farthest along each direction."""
        return top_ids(directions, self.rows, self.ids, top)


def top_ids(directions: "Tensor", rows: "Tensor", ids: Ints, top: int) -> Ints:
    from armillary.geometry.readout import top_tokens

    return np.asarray(ids[top_tokens(directions.float(), rows, top).ids.cpu().numpy()])


def onto_stream(anatomy: "Anatomy", layer: int, rows: "Tensor") -> "Tensor":
    """Writes as the stream receives them, apart from the length that a norm after attention divides by."""
    norm = anatomy.blocks[layer].ln1_post
    return rows if norm is None else rows * norm.gain.to(rows)


def direction_table(evidence: Evidence, layer: int, ids: Ints, readable: ReadableTokens) -> Table:
    """The first directions of every head of a layer: the tokens that each side reads and writes."""
    svd = oriented(evidence, MODEL, layer, ids)
    heads, count = len(svd.values), min(DIRECTIONS, svd.values.shape[-1])
    left, right = (side[..., :count].mT.flatten(0, 1) for side in (svd.left, svd.right))
    words = next(word_directions(evidence, MODEL, [layer], readable.ids)).values
    reads = top_ids(left, words, readable.ids, TOP)
    writes = readable.top(onto_stream(evidence.anatomy, layer, right), TOP)
    energy = svd.values.square()
    share = (energy / energy.sum(-1, keepdim=True).clamp_min(1e-300)).cpu().numpy()[:, :count]
    tokens = np.stack([reads, writes], 1).reshape(2 * heads * count, -1)
    return table(
        cells("head", "attention head", np.repeat([f"L{layer}H{head}" for head in range(heads)], 2 * count)),
        cells(
            "direction",
            "number of the pair of singular vectors of W_VO",
            np.tile(np.arange(count).repeat(2) + 1, heads),
        ),
        cells("value", "its singular value", svd.values[:, :count].cpu().numpy().repeat(2)),
        cells("share", "its share of the sum of squared singular values", share.repeat(2)),
        cells("tie", TIE_MEANING, [label for labels in ties(svd) for label in labels[:count] for _ in range(2)]),
        cells(
            "side",
            "reads: left vector compared with tokens on the sphere; writes: right vector compared with output tokens",
            ["reads", "writes"] * (heads * count),
        ),
        token_cells(evidence, "token", "token farthest along it, with the sign that the words favour", tokens),
    )


def first_directions(
    evidence: Evidence, nouns: Mapping[str, int], ids: Ints, readable: ReadableTokens
) -> tuple[tuple[Cells, ...], tuple[Cells, ...]]:
    """Columns of one row per head: the spectrum of W_VO; nouns' updates and the first direction as tokens."""
    import torch

    tokens, anatomy = vocabulary(evidence), evidence.anatomy
    rows = torch.tensor(list(nouns.values()), device=anatomy.device)
    lengths = tokens.embedded(rows).values.norm(dim=-1).clamp_min(1e-300)
    largest, effective, updates, labels, keys, writes = (list[Any]() for _ in range(6))
    for layer, words in enumerate(word_directions(evidence, MODEL, range(anatomy.layers), readable.ids)):
        svd = oriented(evidence, MODEL, layer, ids)
        energy = svd.values.square()
        largest += svd.values[:, 0].tolist()
        effective += (energy.sum(-1).square() / energy.square().sum(-1).clamp_min(1e-300)).tolist()
        written = decomposed(evidence)[layer].folded.updates(tokens.directions(layer, rows)).values
        updates += (onto_stream(anatomy, layer, written).norm(dim=-1) / lengths).median(-1).values.tolist()
        labels += [head[0] for head in ties(svd)]
        keys += [tokens.texts[i] for i in top_ids(svd.left[..., 0], words.values, readable.ids, 1)[:, 0]]
        writes += [tokens.texts[i] for i in readable.top(onto_stream(anatomy, layer, svd.right[..., 0]), 1)[:, 0]]
    spectrum = (
        cells("value_1", "largest singular value of W_VO", largest),
        cells("directions", "effective number of directions, (Σσ²)²/Σσ⁴", effective),
    )
    return spectrum, (
        cells("update", "length of a noun's update over that of its embedding, median noun", updates),
        cells("tie", TIE_MEANING, labels),
        cells("key token", "token farthest along the first left vector", keys),
        cells("update token", "token farthest along the first right vector", writes),
    )


def update_table(evidence: Evidence, layer: int, nouns: Mapping[str, int], readable: ReadableTokens) -> Table:
    """What each head, and the whole layer, would write for the most frequent nouns if it attended to them alone."""
    import torch

    tokens, anatomy = vocabulary(evidence), evidence.anatomy
    ids = list(nouns.values())[:NOUNS_SHOWN]
    rows = torch.tensor(ids, device=anatomy.device)
    folded = decomposed(evidence)[layer].folded
    each = folded.updates(tokens.directions(layer, rows)).values
    total = each.sum(0, keepdim=True)
    total = total if folded.b_O is None else total + folded.b_O
    # Nouns first: [noun, head, d].
    written = onto_stream(anatomy, layer, torch.cat([each, total])).transpose(0, 1)
    stream = tokens.embedded(rows).values[:, None]
    lengths = written.norm(dim=-1)
    relative = lengths / stream.norm(dim=-1).clamp_min(1e-300)
    names = [*(f"L{layer}H{head}" for head in range(anatomy.n_heads)), "all heads"]
    promoted = readable.top(written.flatten(0, 1), TOP)
    outcome = _outcomes(evidence, (stream + written).flatten(0, 1), readable)
    return table(
        cells("noun", "the word attended to", np.repeat([tokens.texts[token] for token in ids], len(names))),
        cells("head", "attention head, or the sum of the layer's heads with its output bias", names * len(ids)),
        cells("length", "length of what it writes for this word, value bias included", lengths.cpu().numpy()),
        cells("relative", "that length divided by the length of the word's embedding", relative.cpu().numpy()),
        token_cells(evidence, "promoted", "token whose output direction the update reaches farthest along", promoted),
        cells(
            "outcome token",
            "token predicted from embedding plus update through the final norm",
            [tokens.texts[token] for token in outcome],
        ),
    )


def _outcomes(evidence: Evidence, stream: "Tensor", readable: ReadableTokens) -> Ints:
    """The most likely token of every vector if it were the final stream: the final norm, then the output matrix."""
    import torch

    a = evidence.anatomy
    z = stream if a.ln_final is None else a.ln_final.direction(stream)
    constant = torch.zeros(len(readable.ids), device=z.device)
    if a.W_U is not None and a.ln_final is not None and a.ln_final.shift is not None:
        constant = constant + (a.ln_final.shift.float() @ a.W_U.float())[readable.ids]
    if a.b_U is not None:
        constant = constant + a.b_U.float()[readable.ids]
    # One more coordinate, 1 for every vector, carries what does not depend on it.
    rows = torch.cat([readable.rows, constant[:, None]], 1)
    return top_ids(torch.cat([z, torch.ones_like(z[:, :1])], 1), rows, readable.ids, 1)[:, 0]

"""What do the paper's experiments show on another model? E1 to E10 of 'Traveling Words', repaired.

Distances of embeddings (E1), extreme tokens (E2), keys and values of nouns (E3, E4), singular vectors (E5) and biases
(E6) in words, cumulative singular values (E7), a sentence's way (E8), circle, ellipse, shift and W_QK (E9), and how states
come to say the next word (E10).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from armillary.anatomy import Anatomy
from armillary.errors import TextError
from armillary.flow.documents import Documents, from_any
from armillary.probes.words.lens import reads
from armillary.readouts.ask import SHOWN, Gauge, Layers, check_top, output_said, pick_layers, pick_ranking
from armillary.readouts.head_spectra import Decomposed, cumulative, decompose, folded_at, spectrum_quantities
from armillary.readouts.lookups import look_up, values
from armillary.readouts.nouns import Nouns, find_nouns
from armillary.readouts.paper.approach_sheet import approach_sheet
from armillary.readouts.paper.embedding_sheet import distances, extremes
from armillary.readouts.paper.schematic import schematic
from armillary.readouts.paper.spectra_sheet import spectra_sheet
from armillary.readouts.reader import RANK, Reader, side_columns
from armillary.readouts.sheets import Progress, joined, opened
from armillary.readouts.singular import bias_table, bias_vectors, directions_table
from armillary.readouts.trajectory import journey_sheet
from armillary.results import Column, Quantity, Table
from armillary.results.sheet import Sheet, Sheets
from armillary.results.table import Cell

DIRECTIONS = 20
KEYS = (
    Column("layer", "layer"),
    Column("head", "head"),
    Column("noun", "the query"),
    Column("self_rank", "the noun's own place among its keys, 1 is first"),
    RANK,
    *side_columns("key", "key", "score that softmax receives, or cosine of query and key"),
)
VALUES = (
    Column("layer", "layer"),
    Column("head", "head, or the sum of a layer's heads with its bias"),
    Column("noun", "the only token that is attended to"),
    Column("length", "length of what is written", "‖x‖"),
    Column("relative", "length over that of the stream it is added to"),
    RANK,
    *side_columns("result", "words that noun and write together read as", "logit, or cosine"),
    *side_columns("promoted", "words that the write promotes, alone", "product (or cosine) with the write"),
)


def paper(
    model: Any,
    layers: Layers = "first,middle,last",
    bare: bool = False,
    top: int = 5,
    ranking: str = "dot",
    text: Any = None,
    progress: Progress = lambda what, done, total: None,
) -> Sheets:
    """E1 to E10 on any model; those that read words are left out, and named, where there is no tokenizer.

    `text` is what E10 takes its sentences from: a path, a string, a list of documents, or None for the built-in sample.
    """
    check_top(top)
    ranked, documents = pick_ranking(ranking), from_any(text)
    anatomy = opened(model)
    chosen = pick_layers(layers, anatomy)
    gauge = Gauge(0, ranked, top)
    reader: Reader | None = None
    with torch.no_grad():
        progress("embeddings", 0, 0)
        sheets = [distances(anatomy, gauge)]
        notes = [_gauge_note(anatomy)]
        found: list[Decomposed] = []
        for done, layer in enumerate(chosen):
            progress("decomposing heads", done, len(chosen))
            found += decompose(anatomy, layer, ("qk", "vo"))
        if anatomy.tokenizer is None:
            notes.append(
                f"{anatomy.name} came without a tokenizer: E2 to E6, E8 and E10 need words, and were left out."
            )
        else:
            reader = Reader.of(anatomy, top, ranked)
            nouns = find_nouns(reader.vocabulary, bare)
            notes.append(nouns.said())
            sheets.append(extremes(anatomy, gauge))
            sheets += _words(reader, nouns, chosen, found, gauge, progress)
        sheets.append(spectra_sheet(anatomy, found, gauge))
        more, left_out = _ways(anatomy, found, gauge, reader, documents, progress)
    about = gauge.about(anatomy)
    about["layers"] = {"read": ", ".join(map(str, chosen)), "of": anatomy.layers}
    title = f"The experiments of 'Traveling Words' on {anatomy.name}"
    return Sheets(title, (*sheets, *more), about, (*notes, *left_out))


def _gauge_note(anatomy: Anatomy) -> str:
    turned = "W_QK at Δ = 0, query and key at the same place" if anatomy.rotary_path else "no rotation: one W_QK"
    return f"Folded matrices on directions, biases kept; {turned}; writes are read through {output_said(anatomy)}."


def _words(
    reader: Reader, nouns: Nouns, layers: Sequence[int], found: Sequence[Decomposed], gauge: Gauge, progress: Progress
) -> list[Sheet]:
    return [
        keys(reader, nouns, layers, gauge, progress),
        writes(reader, nouns, layers, gauge, progress),
        directions(reader, found, gauge, progress),
        biases(reader, layers, gauge),
    ]


def _ways(
    anatomy: Anatomy,
    found: Sequence[Decomposed],
    gauge: Gauge,
    reader: Reader | None,
    documents: Documents,
    progress: Progress,
) -> tuple[list[Sheet], list[str]]:
    """E8 to E10, and why one of them was left out."""
    sheets: list[Sheet] = []
    notes: list[str] = []
    if reader is not None:
        progress("E8: a sentence's way", 0, 0)
        try:
            sheets.append(journey_sheet(anatomy, gauge))
        except TextError as error:
            notes.append(f"E8 was left out: {error}")
    progress("E9: circle, ellipse, shift, W_QK", 0, 0)
    plane = schematic(anatomy, found, gauge, reader)
    if plane is None:
        notes.append(
            "E9 was left out: in the layers that were read no norm stands before attention, or heads have one direction."
        )
    else:
        sheets.append(plane)
    if reader is not None and not reads(anatomy):
        notes.append(f"E10 compares states with the next word, and {anatomy.name} reads out none: it was left out.")
    elif reader is not None:
        progress("E10: towards the next word", 0, 0)
        try:
            sheets.append(approach_sheet(anatomy, documents, gauge))
        except TextError as error:
            notes.append(f"E10 was left out: {error}")
    return sheets, notes


def keys(reader: Reader, nouns: Nouns, layers: Sequence[int], gauge: Gauge, progress: Progress) -> Sheet:
    """E3: the best keys of every noun."""
    anatomy, heads = reader.anatomy, range(reader.anatomy.n_heads)
    ids = torch.tensor(list(nouns.ids.values()), device=anatomy.device)
    rows: list[dict[str, Cell]] = []
    own = np.zeros((len(layers), len(heads)))
    for done, layer in enumerate(layers):
        progress("E3: keys of nouns", done, len(layers))
        seen = look_up(reader, layer, ids, heads, both=False)
        own[done] = (seen.self_rank <= gauge.top).mean(1)
        for at in heads:
            for n, noun in enumerate(nouns.ids):
                start: dict[str, Cell] = {"layer": layer, "head": f"L{layer}H{at}", "noun": noun}
                rows += reader.ranked({**start, "self_rank": int(seen.self_rank[at, n])}, key=seen.keys[at, n])
    at_layer, at_head = divmod(int(own.argmax()), own.shape[1])
    return Sheet(
        name="E3-keys",
        title=f"A noun is among its own {gauge.top} best keys for {np.median(own):.0%} of nouns in the median head, for "
        f"{own.max():.0%} in L{layers[at_layer]}H{at_head}",
        caption=gauge.caption(anatomy),
        tables={"keys": Table.of(KEYS, rows), "nouns": nouns.table(reader.vocabulary)},
        quantities=(
            _map(
                f"nouns among their own {gauge.top} best keys",
                "share of nouns that look for themselves",
                "share",
                layers,
                own,
            ),
        ),
        notes=(nouns.said(),),
        about=gauge.about(anatomy),
    )


def writes(reader: Reader, nouns: Nouns, layers: Sequence[int], gauge: Gauge, progress: Progress) -> Sheet:
    """E4: what every head, and a layer's sum, makes of a noun."""
    anatomy = reader.anatomy
    ids = torch.tensor(list(nouns.ids.values()), device=anatomy.device)
    rows: list[dict[str, Cell]] = []
    lengths, changed = [], []
    for done, layer in enumerate(layers):
        progress("E4: values of nouns", done, len(layers))
        seen = values(reader, layer, ids)
        lengths.append(np.median(seen.length[:-1], 1))
        changed.append((seen.result.ids[..., 0] != ids.cpu().numpy()).mean(1))
        for at in [*range(anatomy.n_heads), -1]:
            for n, noun in enumerate(nouns.ids):
                length, stream = float(seen.length[at, n]), float(seen.stream[n])
                start: dict[str, Cell] = {"layer": layer, "head": f"L{layer} sum" if at < 0 else f"L{layer}H{at}"}
                start |= {"noun": noun, "length": length, "relative": length / stream if stream else None}
                rows += reader.ranked(start, result=seen.result[at, n], promoted=seen.promoted[at, n])
    sums = ", ".join(f"{one[-1]:.0%} in L{layer}" for layer, one in zip(layers, changed, strict=True))
    moved = np.stack([one[:-1] for one in changed])
    return Sheet(
        name="E4-values",
        title=f"With the whole layer's write a noun reads as another word for {sums}",
        caption=gauge.caption(anatomy),
        tables={"values": Table.of(VALUES, rows)},
        quantities=(
            _map(
                "nouns that one head turns into another word",
                "share whose best result is not the noun",
                "share",
                layers,
                moved,
            ),
            _map("length of the write", "median over nouns", "‖x‖", layers, np.stack(lengths)),
        ),
        notes=(
            f"Read through {output_said(anatomy)}. b_O belongs to the layer: it counts in the sum, in no single head.",
        ),
        about=gauge.about(anatomy),
    )


def directions(reader: Reader, found: Sequence[Decomposed], gauge: Gauge, progress: Progress) -> Sheet:
    """E5: the words at both ends of the first singular pairs."""
    heads = range(reader.anatomy.n_heads)
    parts = []
    for done, one in enumerate(found):
        progress("E5: singular vectors in words", done, len(found))
        parts.append(directions_table(reader, [one], heads, DIRECTIONS))
    tables = {}
    for matrix, name in SHOWN.items():
        tables[name] = joined([part for part, one in zip(parts, found, strict=True) if one.matrix == matrix])
    width = found[0].values.shape[1]
    most = min(DIRECTIONS, width)
    shares = {
        SHOWN[m]: np.concatenate([cumulative(o.values)[:, most - 1] for o in found if o.matrix == m]) for m in SHOWN
    }
    said = " and ".join(f"{np.median(share):.0%} of Σσ of {name}" for name, share in shares.items())
    return Sheet(
        name="E5-directions",
        title=f"The first {most} of {width} directions, read in words, hold {said} in the median head",
        caption=gauge.caption(reader.anatomy),
        tables=tables,
        quantities=spectrum_quantities(found, heads),
        notes=(
            "Directions that share a span under 'tie' are loose within it. + is the side to which words reach farthest along "
            f"the left vector. Writes are read through {output_said(reader.anatomy)}.",
        ),
        about=gauge.about(reader.anatomy),
    )


def biases(reader: Reader, layers: Sequence[int], gauge: Gauge) -> Sheet:
    """E6: the words that biases prefer."""
    anatomy = reader.anatomy
    table = bias_table(reader, layers, range(anatomy.n_heads))
    sides = [bias_vectors(folded_at(anatomy, layer, 0)) for layer in layers]
    for_keys, for_queries = (np.stack([side[i].norm(dim=-1).cpu().numpy() for side in sides]) for i in (0, 1))
    if table.rows:
        title = f"What biases add to a key's score is a vector {np.median(for_keys):.3g} long in the median head"
        note = "All constants of a side count: its bias, and the shift of the norm before it. W_Q b_K is invisible to softmax."
    else:
        title = "No biases: the score has no terms but W_QK"
        note = f"{anatomy.name} has neither biases of queries and keys nor a shift in the norm before them."
    return Sheet(
        name="E6-biases",
        title=title,
        caption=gauge.caption(anatomy),
        tables={"biases": table},
        quantities=(
            _map("length of b_Q W_K", "what every query adds to keys", "score per direction", layers, for_keys),
            _map(
                "length of W_Q b_K",
                "what queries add to all their keys alike",
                "score per direction",
                layers,
                for_queries,
            ),
        ),
        notes=(note,),
        about=gauge.about(anatomy),
    )


def _map(name: str, meaning: str, unit: str, layers: Sequence[int], found: np.ndarray) -> Quantity:
    coords = {"layer": [f"L{layer}" for layer in layers], "head": [f"H{head}" for head in range(found.shape[1])]}
    return Quantity(name, meaning, unit, ("layer", "head"), coords, found.astype(np.float64))

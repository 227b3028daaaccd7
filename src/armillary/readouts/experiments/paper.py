"""The experiments E1 to E10 of 'Traveling Words' (arXiv:2309.07315) on any model.

Distances of embeddings (E1), extreme tokens (E2), keys and values of nouns (E3, E4), singular vectors (E5) and biases
(E6) in words, cumulative singular values (E7), a sentence's trajectory (E8), a circle through norm and W_QK (E9), and
how states come to predict the next word (E10).
"""

from collections.abc import Sequence
from typing import Any

import torch

from armillary.anatomy import Anatomy
from armillary.errors import TextError
from armillary.flow.documents import Documents, from_any
from armillary.probes.words.lens import reads
from armillary.readouts.experiments.approach import approach_sheet
from armillary.readouts.experiments.directions import biases_sheet, directions_sheet, spectra_sheet
from armillary.readouts.experiments.embeddings import distances_sheet, extremes_sheet
from armillary.readouts.experiments.nouns import find_nouns, keys_sheet, values_sheet
from armillary.readouts.experiments.schematic import schematic_sheet
from armillary.readouts.head_sheet import PLACES, opened
from armillary.readouts.head_spectra import Decomposed, Progress, decompose
from armillary.readouts.reader import Reader
from armillary.readouts.settings import Layers, Settings, check_counts, describe_output, pick_layers, pick_ranking
from armillary.readouts.trajectory import plural, trajectory
from armillary.results import Quantity
from armillary.results.sheets.sheet import Sheet, Sheets

SENTENCE = "To kill two birds with one stone"


def paper(
    model: Any,
    layers: Layers = PLACES,
    bare: bool = False,
    top: int = 5,
    ranking: str = "dot",
    text: Any = None,
    progress: Progress = lambda what, done, total: None,
) -> Sheets:
    """E1 to E10 on any model; without a tokenizer, those that read words are left out and named.

    `text` provides the sentences of E10: a path, a string, a list of documents, or None for the built-in sample.
    """
    check_counts(top)
    settings, documents = Settings(0, pick_ranking(ranking), top), from_any(text)
    anatomy = opened(model)
    chosen = pick_layers(layers, anatomy)
    with torch.no_grad():
        progress("embeddings", 0, 0)
        sheets = [distances_sheet(anatomy, settings)]
        notes = [_settings_note(anatomy)]
        parts: list[Decomposed] = []
        for done, layer in enumerate(chosen):
            progress("decomposing heads", done, len(chosen))
            parts += decompose(anatomy, layer, ("qk", "vo"))
        reader = None if anatomy.tokenizer is None else Reader.of(anatomy, top, settings.ranking)
        if reader is None:
            notes.append(
                f"{anatomy.name} came without a tokenizer: E2 to E6, E8 and E10 need words, and were left out."
            )
        else:
            nouns = find_nouns(reader.vocabulary, bare)
            notes.append(nouns.note)
            sheets.append(extremes_sheet(anatomy, settings))
            sheets += [sheet(reader, nouns, chosen, settings, progress) for sheet in (keys_sheet, values_sheet)]
            sheets += [directions_sheet(reader, parts, settings, progress), biases_sheet(reader, chosen, settings)]
        sheets.append(spectra_sheet(anatomy, parts, settings))
        more, left_out = _sentences(anatomy, parts, settings, reader, documents, progress)
    about = settings.about(anatomy)
    about["layers"] = {"read": ", ".join(map(str, chosen)), "of": anatomy.layers}
    title = f"The experiments of 'Traveling Words' on {anatomy.name}"
    return Sheets(title, (*sheets, *more), about, (*notes, *left_out))


def _settings_note(anatomy: Anatomy) -> str:
    rotation = "W_QK at Δ = 0, query and key at the same position" if anatomy.rotates else "no rotation: one W_QK"
    output = describe_output(anatomy)
    return f"Folded matrices on directions, biases kept; {rotation}; writes are read through {output}."


def _sentences(
    anatomy: Anatomy,
    parts: Sequence[Decomposed],
    settings: Settings,
    reader: Reader | None,
    documents: Documents,
    progress: Progress,
) -> tuple[list[Sheet], list[str]]:
    """E8 to E10, and why any of them was left out."""
    sheets: list[Sheet] = []
    notes: list[str] = []
    if reader is not None:
        progress("E8: a sentence's trajectory", 0, 0)
        try:
            sheets.append(trajectory_sheet(anatomy, settings))
        except TextError as error:
            notes.append(f"E8 was left out: {error}")
    progress("E9: circle, ellipse, shift, W_QK", 0, 0)
    schematic = schematic_sheet(anatomy, parts, settings, reader)
    if schematic is None:
        notes.append("E9 was left out: in these layers attention reads no norm, or heads have one direction.")
    else:
        sheets.append(schematic)
    if reader is not None and not reads(anatomy):
        notes.append(f"E10 was left out: it compares states with the next word, which {anatomy.name} does not predict.")
    elif reader is not None:
        progress("E10: towards the next word", 0, 0)
        try:
            sheets.append(approach_sheet(anatomy, documents, settings))
        except TextError as error:
            notes.append(f"E10 was left out: {error}")
    return sheets, notes


def trajectory_sheet(anatomy: Anatomy, settings: Settings) -> Sheet:
    """E8: the paper's sentence through all layers, in one projection fitted to all of its words."""
    path = trajectory(anatomy, SENTENCE, top=settings.top)
    own, following = path.own.mean(0), path.following[:-1]
    after = {"after": ["start", *path.moves]}
    meaning = "mean over the sentence's words, in full dimension"
    lines = [Quantity("angle to the word itself", meaning, "°", ("after",), after, own)]
    title = f"The words of ‘{SENTENCE}’ start {own[0]:.0f}° and end {own[-1]:.0f}° away from themselves"
    if path.reads and len(following):
        both, count, start, end = path.travelled
        lines.append(Quantity("angle to the next word", meaning, "°", ("after",), after, following.mean(0)))
        verbs = "leave themselves and approach the next word"
        title = f"{both} of {count} words of ‘{SENTENCE}’ {verbs}: {start:.0f}° → {end:.0f}°"
    scores = ", ".join(f"{name} {score:.2f}" for name, score in path.scores.items())
    return Sheet(
        name="E8-trajectory",
        title=title,
        caption=f"{anatomy.name} · {plural(len(path.words), 'token')}, {len(path.states)} states each · "
        f"directions {path.space}",
        tables={"states": path.table},
        quantities=tuple(lines),
        notes=(path.about, f"Scores of the projection (1 is best): {scores or 'too few points'}.", *path.notes),
        about=settings.about(anatomy),
        drawing=path,
    )

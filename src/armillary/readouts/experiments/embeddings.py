"""Distances of embeddings from their directions (E1), and tokens with extreme output vectors (E2), as sheets."""

import numpy as np
from numpy.typing import NDArray

from armillary.anatomy import Anatomy
from armillary.probes.machinery.evidence import Floats
from armillary.probes.words.embedding import VARIANTS, VectorLengths, distances_of, extremes_of, named
from armillary.readouts.settings import Settings
from armillary.results import Quantity
from armillary.results.sheets.sheet import Sheet


def distances_sheet(anatomy: Anatomy, settings: Settings) -> Sheet:
    """E1: from LN(E), without gain and shift, to E itself, centred, scaled, and both."""
    distances = distances_of(anatomy)
    return Sheet(
        name="E1-distances",
        title=f"Centred and scaled, embeddings lie {distances.distance[3, 0]:.3g} from their directions, whose length "
        f"is {np.sqrt(anatomy.d):.3g}; unchanged, {distances.distance[0, 0]:.3g}",
        caption=f"{anatomy.name} · directions of {distances.site or 'the first norm'} · {distances.tokens} tokens",
        tables={"distances": distances.table},
        quantities=(_line("distance", "‖x‖", distances.distance), _line("cosine", "cosine", distances.cosine)),
        notes=(
            f"Scaled: times √d over the mean length of an embedding, {distances.factor:.4g}. Centred: minus the mean "
            "of its coordinates. E is what the stream receives, without position.",
        ),
        about=settings.about(anatomy),
    )


def _line(name: str, unit: str, moments: Floats) -> Quantity:
    """A line from [variant, (mean, standard deviation)]."""
    values, spread = moments.T
    coords = {"variant": VARIANTS}
    title, meaning = f"{name} to the directions LN(E)", "mean over the vocabulary; whiskers: one standard deviation"
    low, high = values - spread, values + spread
    if unit == "cosine":
        # A mean near 1 with a long tail below: no cosine lies beyond.
        meaning, low, high = f"{meaning}, cut at ±1", np.maximum(low, -1), np.minimum(high, 1)
    return Quantity(title, meaning, unit, ("variant",), coords, values, low, high)


def extremes_sheet(anatomy: Anatomy, settings: Settings) -> Sheet:
    """E2: tokens with the longest and shortest output vectors, with the final norm's gain and shift and without."""
    table, measures = extremes_of(anatomy)
    texts = np.array([text != "" for text in named(anatomy).texts])
    notes = [
        "Vectors are the unembedding's rows." if anatomy.W_U is not None else "No unembedding: the embedding's rows."
    ]
    if len(measures) < 4:
        notes.append(
            "No final norm." if anatomy.ln_final is None else "The final norm has no shift, so there is no β·e."
        )
    values = measures[0].values[texts[: len(measures[0].values)]] if texts.any() else measures[0].values
    return Sheet(
        name="E2-extremes",
        title=f"Output vectors are {values.min():.3g} to {values.max():.3g} long, median {np.median(values):.3g}",
        caption=f"{anatomy.name} · {len(values)} tokens",
        tables={"extremes": table},
        quantities=tuple(_quantiles(measure, texts) for measure in measures),
        notes=tuple(notes),
        about=settings.about(anatomy),
    )


def _quantiles(measure: VectorLengths, texts: NDArray[np.bool_]) -> Quantity:
    chosen = texts[: len(measure.values)]
    shares = np.linspace(0, 1, 101)
    values = np.quantile(measure.values[chosen] if chosen.any() else measure.values, shares)
    coords = {"share of tokens": [float(share) for share in shares]}
    meaning = f"{measure.meaning}: tokens from the lowest to the highest"
    return Quantity(measure.name, meaning, "‖x‖", ("share of tokens",), coords, values)

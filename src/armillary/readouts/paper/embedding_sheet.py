"""E1 and E2 of the paper as sheets: embeddings against their directions, and the words with extreme vectors."""

import numpy as np
from numpy.typing import NDArray

from armillary.anatomy import Anatomy
from armillary.probes.words.embedding import DISTANCES, EXTREMES, Measure, distances_of, extreme_rows, named
from armillary.readouts.ask import Gauge
from armillary.results import Quantity, Table
from armillary.results.sheet import Sheet
from armillary.results.table import Cell


def distances(anatomy: Anatomy, gauge: Gauge) -> Sheet:
    """E1: from LN(E), without gain and shift, to E as it is, centred, scaled, and both."""
    found = distances_of(anatomy)
    rows = found.rows
    return Sheet(
        name="E1-distances",
        title=f"Centred and scaled, embeddings lie {rows[3]['distance']:.3g} from their directions, whose length is "
        f"{np.sqrt(anatomy.d):.3g}; as they are, {rows[0]['distance']:.3g}",
        caption=f"{anatomy.name} · directions of {found.site or 'the first norm'} · {found.tokens} tokens",
        tables={"distances": Table.of(DISTANCES, rows)},
        quantities=(_line("distance", "‖x‖", rows), _line("cosine", "cosine", rows)),
        notes=(
            f"Scaled: times √d over the mean length of an embedding, {found.factor:.4g}. Centred: less the mean of its own "
            "coordinates. E is what the stream receives, without position.",
        ),
        about=gauge.about(anatomy),
    )


def _line(name: str, unit: str, rows: list[dict[str, Cell]]) -> Quantity:
    values, spread = (np.array([float(row[key] or 0) for row in rows]) for key in (name, f"{name}_sd"))
    coords = {"variant": [str(row["variant"]) for row in rows]}
    what = f"{name} to the directions LN(E)"
    said = "mean over the vocabulary; whiskers: one standard deviation of tokens"
    return Quantity(what, said, unit, ("variant",), coords, values, values - spread, values + spread)


def extremes(anatomy: Anatomy, gauge: Gauge) -> Sheet:
    """E2: tokens with the longest and shortest output vectors, with the final norm's gain and shift and without."""
    rows, measures = extreme_rows(anatomy)
    texts = np.array([text != "" for text in named(anatomy).texts])
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


def _quantiles(one: Measure, texts: NDArray[np.bool_]) -> Quantity:
    chosen = texts[: len(one.values)]
    shares = np.linspace(0, 1, 101)
    values = np.quantile(one.values[chosen] if chosen.any() else one.values, shares)
    coords = {"share of tokens": [float(share) for share in shares]}
    return Quantity(
        one.name, f"{one.meaning}: tokens from the lowest to the highest", "‖x‖", ("share of tokens",), coords, values
    )

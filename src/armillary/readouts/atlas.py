"""The atlas of all heads: one map per number, from the weights and from a short pass over text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from armillary.anatomy import Anatomy
from armillary.flow.documents import sample
from armillary.flow.tokens import Corpus, encode
from armillary.geometry.factored import n99, participation
from armillary.probes.instruments.head_parts.roles import MEANINGS, ROLES, letters, name_roles
from armillary.probes.instruments.heads import HEADS, HeadRows
from armillary.probes.instruments.patterns import LENGTH_LEAST, measure_patterns, repeated, texts
from armillary.probes.machinery import AnyInstrument
from armillary.probes.machinery.intervals import mean
from armillary.probes.machinery.shared_pass import observe
from armillary.readouts.head_spectra import Floats, Progress, head_map, matrices_of
from armillary.readouts.sentence_states import check_ids
from armillary.readouts.settings import SHOWN, Matrix, Settings
from armillary.results import Column, Quantity, Table
from armillary.results.sheets.sheet import Sheet
from armillary.results.table import Cell

TOKENS, SEED = 1500, 0


@dataclass(frozen=True)
class Map:
    """One number per head: its column, and its values [layer, head]."""

    column: Column
    values: Floats


def atlas(anatomy: Anatomy, matrices: Sequence[Matrix], settings: Settings, progress: Progress) -> Sheet:
    maps = from_weights(anatomy, matrices, settings.offset, progress)
    notes: list[str] = []
    measured: tuple[Map, ...] = ()
    if anatomy.tokenizer is None:
        notes.append(f"From the weights alone: {anatomy.name} came without a tokenizer, so no text was read.")
    else:
        corpus = sample_text(anatomy)
        record: HeadRows = observed(anatomy, corpus, HEADS, progress)
        measured = (*from_text(record), *attended(anatomy, corpus, progress))
        notes.append(
            f"Read: {corpus.source}, {corpus.documents} documents, {corpus.tokens} tokens. A capital marks a head that "
            "gives half of its attention to one kind of token, a small letter one that gives a quarter: "
            + ", ".join(f"{letter} {meaning}" for letter, meaning in ROLES.values())
            + "."
        )
    kinds = {m.column.name: m.values for m in measured if m.column.name in ROLES}
    shape = (anatomy.layers, anatomy.n_heads)
    roles = name_roles(kinds) if kinds else np.full(shape, "", dtype="<U9")
    every = (*maps, *measured)
    return Sheet(
        name="atlas",
        title=_title(maps, roles),
        caption=settings.short_caption(anatomy),
        tables={"heads": _table(every, roles)},
        quantities=_quantities(maps, measured),
        notes=tuple(notes),
        about=settings.about(anatomy)
        | ({"text": {"source": corpus.source, "tokens": corpus.tokens}} if measured else {}),
        screen={
            "layers, median head": _layers(every, letters(kinds) if kinds else [""] * anatomy.layers),
            "heads that stand out": _extremes(every),
        },
    )


def from_weights(anatomy: Anatomy, matrices: Sequence[Matrix], offset: int, progress: Progress) -> tuple[Map, ...]:
    """Singular values of every head, in a few numbers."""
    spectra = []
    for layer in range(anatomy.layers):
        progress("decomposing heads", layer, anatomy.layers)
        spectra.append([factored.values() for factored in matrices_of(anatomy, layer, matrices, offset)])
    maps = []
    for at, matrix in enumerate(matrices):
        values, name = torch.stack([layer[at] for layer in spectra]).cpu(), SHOWN[matrix]
        columns = (
            (f"sigma_1_{matrix}", f"largest singular value of folded {name}", "", values[..., 0]),
            (f"participation_{matrix}", f"(Σσ²)²/Σσ⁴ of {name}", "directions", participation(values)),
            (f"n99_{matrix}", f"singular values that hold 99 % of Σσ of {name}", "directions", n99(values)),
        )
        maps += [Map(Column(*column), grid.double().numpy()) for *column, grid in columns]
    return tuple(maps)


def sample_text(anatomy: Anatomy, tokens: int = TOKENS) -> Corpus:
    """The built-in text, by the model's tokenizer."""
    corpus = encode(sample(), anatomy.tokenizer, anatomy.context, tokens, SEED)
    check_ids(anatomy, corpus.windows)
    return corpus


def observed(anatomy: Anatomy, corpus: Corpus, instrument: AnyInstrument, progress: Progress) -> Any:
    """An instrument's state on a text."""
    read = 0

    def tick(tokens: int) -> None:
        nonlocal read
        read += tokens
        progress(f"reading {corpus.tokens} tokens", read, corpus.tokens)

    progress(f"reading {corpus.tokens} tokens", 0, corpus.tokens)
    return observe(anatomy, corpus, [instrument], SEED, tick)[instrument]


def from_text(record: HeadRows) -> tuple[Map, ...]:
    """What the sampled queries of a pass show of every head; nothing if the text was too short to sample."""
    if not record.queries:
        return ()
    score, cosine, both = (record.sampled(name).sum(-1) for name in ("score_power", "cosine_power", "score_cosine"))
    with np.errstate(invalid="ignore", divide="ignore"):
        explained = both**2 / (score * cosine)
    maps = [
        Map(Column("null_query", "share of |z|² in the null space of W_QK, queries"), _mean(record, "null_query")),
        Map(Column("null_key", "the same, keys"), _mean(record, "null_key")),
        Map(
            Column("null_value", "share of |z|² in the null space of W_VO, weighted by attention"),
            _mean(record, "null_value"),
        ),
        Map(Column("r2_cosine", "R² of scores on cos(q, k), each query centred"), explained),
        Map(Column("rho", "Spearman ρ of score and −angle of directions, mean over queries"), _mean(record, "rho")),
        Map(Column("entropy", "of attention, over ln(keys): 1 is uniform"), _mean(record, "entropy")),
    ]
    return tuple(maps)


def _mean(record: HeadRows, name: str) -> Floats:
    values = record.sampled(name)
    counted = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counted, values, 0).sum(-1) / counted.sum(-1))


def attended(anatomy: Anatomy, corpus: Corpus, progress: Progress) -> tuple[Map, ...]:
    """What every head attends to, as `heads.specialise` measures it; nothing if the text was too short."""
    text = texts(corpus, 1)
    if not text.windows or len(text.windows[0].ids) < LENGTH_LEAST:
        return ()
    progress("looking at patterns", 0, 1)
    documents = [window.document for window in text.windows]
    state = measure_patterns(anatomy, text, repeated(corpus, documents, anatomy.context, SEED))
    return tuple(Map(Column(kind, MEANINGS[kind]), mean(state.of(kind).sum(0))) for kind in ROLES)


def _table(maps: Sequence[Map], roles: NDArray[np.str_]) -> Table:
    columns = [Column("layer", "layer"), Column("head", "head"), *(m.column for m in maps)]
    columns += [Column("role", "the kind of token that gets half of its attention or more")] if roles.any() else []
    rows: list[dict[str, Cell]] = []
    for layer, head in np.ndindex(*roles.shape):
        row: dict[str, Cell] = {"layer": layer, "head": f"L{layer}H{head}"}
        row |= {m.column.name: _cell(m, float(m.values[layer, head])) for m in maps}
        row |= {"role": str(roles[layer, head])} if roles.any() else {}
        rows.append(row)
    return Table.of(columns, rows)


def _cell(m: Map, value: float) -> Cell:
    if np.isnan(value):
        return None
    return int(value) if m.column.name.startswith("n99") else value


_SHORT = {
    "sigma_1_qk": "σ1 QK",
    "participation_qk": "PR QK",
    "sigma_1_vo": "σ1 VO",
    "participation_vo": "PR VO",
    "null_query": "null",
    "r2_cosine": "R²",
    "rho": "ρ",
    "entropy": "ent.",
}


def _layers(maps: Sequence[Map], letters: Sequence[str]) -> Table:
    """One row per layer: the median head, and every head's role by its letter."""
    chosen = [m for m in maps if m.column.name in _SHORT]
    columns = [Column("layer", "layer")]
    columns += [Column(_SHORT[m.column.name], m.column.meaning, m.column.unit) for m in chosen]
    columns += [Column("roles", "one letter per head")] if any(letters) else []
    rows: list[tuple[Cell, ...]] = []
    for layer, roles in enumerate(letters):
        medians = [float(np.nanmedian(m.values[layer])) if np.isfinite(m.values[layer]).any() else None for m in chosen]
        rows.append((f"L{layer}", *medians, *([roles] if roles else [])))
    return Table(tuple(Column(c.name, c.meaning) for c in columns), tuple(rows))


def _extremes(maps: Sequence[Map]) -> Table:
    """The three heads that lead in each number."""
    wanted = {
        "sigma_1_qk": "strongest W_QK, σ1",
        "sigma_1_vo": "strongest W_VO, σ1",
        "r2_cosine": "most cosine, R²",
        "rho": "nearest to geodesic, ρ",
        **{name: f"to {meaning}" for name, (_, meaning) in ROLES.items()},
    }
    rows: list[tuple[Cell, ...]] = []
    for m in maps:
        if m.column.name in wanted and np.isfinite(m.values).any():
            order = np.argsort(-np.nan_to_num(m.values.ravel(), nan=-np.inf), kind="stable")[:3]
            places = [np.unravel_index(i, m.values.shape) for i in order]
            cells = [f"L{place[0]}H{place[1]} {m.values[place]:.3g}" for place in places]
            rows.append((wanted[m.column.name], *cells, *[""] * (3 - len(cells))))
    return Table((Column("", "what"), *(Column(name, "head and value") for name in ("1st", "2nd", "3rd"))), tuple(rows))


def _quantities(maps: Sequence[Map], measured: Sequence[Map]) -> tuple[Quantity, ...]:
    """Maps of layer × head; numbers of one kind side by side on one scale."""
    named = {m.column.name: m for m in (*maps, *measured)}
    strengths = {f"σ1 of {SHOWN[m]}": named[f"sigma_1_{m}"] for m in SHOWN if f"sigma_1_{m}" in named}
    quantities = [_map(m, name, "σ1", log=True) for name, m in strengths.items()]
    both = {SHOWN[m]: named[f"participation_{m}"] for m in SHOWN if f"participation_{m}" in named}
    quantities.append(_row("participation ratio", "(Σσ²)²/Σσ⁴ of either matrix", "directions", "matrix", both))
    if not measured:
        return tuple(quantities)
    null = {side: named[f"null_{side}"] for side in ("query", "key", "value")}
    meaning = "share of |z|² in the null space of the head, mean over tokens"
    quantities += [
        _row("null-space energy", meaning, "share", "side", null),
        _map(named["r2_cosine"], "R² of the score on cos(q, k)", "R²"),
        _map(named["rho"], "Spearman ρ of score and −angle", "ρ"),
        _map(named["entropy"], "attention entropy", "share of ln(keys)"),
    ]
    kinds = {name: named[name] for name in ROLES if name in named and np.isfinite(named[name].values).any()}
    meaning = "mean share of attention, over queries that see such a token"
    return (*quantities, *([_row("attention to", meaning, "share", "kind", kinds)] if kinds else []))


def _map(m: Map, name: str, unit: str, log: bool = False) -> Quantity:
    layers, heads = map(range, m.values.shape)
    return head_map(name, m.column.meaning, unit, m.values, layers, heads, log)


def _row(name: str, meaning: str, unit: str, axis: str, maps: dict[str, Map]) -> Quantity:
    stacked = np.stack([m.values for m in maps.values()])
    layers, heads = ([f"{letter}{i}" for i in range(n)] for letter, n in zip("LH", stacked.shape[1:], strict=True))
    coords = {axis: list(maps), "layer": layers, "head": heads}
    return Quantity(name, meaning, unit, (axis, "layer", "head"), coords, stacked)


def _title(maps: Sequence[Map], roles: NDArray[np.str_]) -> str:
    counts = sorted(((int((roles == name).sum()), meaning) for name, (_, meaning) in ROLES.items()), reverse=True)
    others = "".join(f", {n} to {meaning}" for n, meaning in counts[1:] if n)
    first = next(m for m in maps if m.column.name.startswith("sigma_1"))
    matrix = SHOWN["qk" if first.column.name.endswith("qk") else "vo"]
    ends = f"σ1 of {matrix} runs from {first.values.min():.3g} to {first.values.max():.3g}"
    if not roles.any():
        return f"{roles.size} heads: {ends}"
    most, meaning = counts[0]
    if not most:
        return f"None of {roles.size} heads attends mostly to one kind of token; {ends}"
    return f"{most} of {roles.size} heads attend{'s' if most == 1 else ''} mostly to {meaning}{others}; {ends}"

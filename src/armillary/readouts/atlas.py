"""How do all heads of a model differ? One map for each number: from the weights, and from a short pass over text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from armillary.anatomy import Anatomy
from armillary.errors import TextError
from armillary.flow.documents import sample
from armillary.flow.tokens import Corpus, encode
from armillary.geometry.factored import n99, participation
from armillary.probes.instruments.heads_record import AttentionRecord
from armillary.probes.instruments.heads_watch import AttentionWatch
from armillary.probes.instruments.patterns import FIELDS, LENGTH_LEAST, induction, repeated, scores, texts
from armillary.probes.instruments.roles import MEANINGS, ROLES, letters, name_roles
from armillary.probes.machinery.shared_pass import observe
from armillary.readouts.ask import SHOWN, Gauge, Matrix
from armillary.readouts.head_spectra import matrices_of
from armillary.results import Column, Quantity, Table
from armillary.results.sheet import Sheet
from armillary.results.table import Cell

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
TOKENS, SEED = 1500, 0


@dataclass(frozen=True)
class Map:
    """One number for every head: its column, and its values [layer, head]."""

    column: Column
    values: Floats


def atlas(anatomy: Anatomy, matrices: Sequence[Matrix], gauge: Gauge, progress: Progress) -> Sheet:
    maps = from_weights(anatomy, matrices, gauge.offset, progress)
    notes: list[str] = []
    seen: tuple[Map, ...] = ()
    if anatomy.tokenizer is None:
        notes.append(f"From the weights alone: {anatomy.name} came without a tokenizer, so no text was read.")
    else:
        corpus = text_for(anatomy)
        seen = (*from_text(watched(anatomy, corpus, progress)), *attended(anatomy, corpus, progress))
        notes.append(
            f"Read: {corpus.source}, {corpus.documents} documents, {corpus.tokens} tokens; a capital names what takes half of "
            "a head's attention, a small letter what takes a quarter: "
            + ", ".join(f"{letter} {said}" for letter, said in ROLES.values())
            + "."
        )
    kinds = {m.column.name: m.values for m in seen if m.column.name in ROLES}
    shape = (anatomy.layers, anatomy.n_heads)
    roles = name_roles(kinds) if kinds else np.full(shape, "", dtype="<U9")
    every = (*maps, *seen)
    return Sheet(
        name="atlas",
        title=_title(maps, roles),
        caption=gauge.caption(anatomy).rsplit(" · ", 1)[0],
        tables={"heads": _table(every, roles)},
        quantities=_quantities(maps, seen),
        notes=tuple(notes),
        about=gauge.about(anatomy) | ({"text": {"source": corpus.source, "tokens": corpus.tokens}} if seen else {}),
        screen={
            "layers, median head": _layers(every, letters(kinds) if kinds else [""] * anatomy.layers),
            "heads that stand out": _extremes(every),
        },
    )


def from_weights(anatomy: Anatomy, matrices: Sequence[Matrix], offset: int, progress: Progress) -> tuple[Map, ...]:
    """Singular values of every head, in a few numbers."""
    found = []
    for layer in range(anatomy.layers):
        progress("decomposing heads", layer, anatomy.layers)
        found.append([one.values() for one in matrices_of(anatomy, layer, matrices, offset)])
    made = []
    for at, matrix in enumerate(matrices):
        values, name = torch.stack([layer[at] for layer in found]).cpu(), SHOWN[matrix]
        columns = (
            (f"sigma_1_{matrix}", f"largest singular value of folded {name}", "", values[..., 0]),
            (f"participation_{matrix}", f"(Σσ²)²/Σσ⁴ of {name}", "directions", participation(values)),
            (f"n99_{matrix}", f"singular values that hold 99 % of Σσ of {name}", "directions", n99(values)),
        )
        made += [Map(Column(*said), grid.double().numpy()) for *said, grid in columns]
    return tuple(made)


def text_for(anatomy: Anatomy) -> Corpus:
    corpus = encode(sample(), anatomy.tokenizer, anatomy.context, TOKENS, SEED)
    top = max(max(window.ids) for window in corpus.windows)
    if top >= anatomy.vocabulary:
        raise TextError(
            f"the tokenizer gives token {top}, but the model knows {anatomy.vocabulary}: they do not belong together; pass "
            "the model's own tokenizer."
        )
    return corpus


def watched(anatomy: Anatomy, corpus: Corpus, progress: Progress) -> AttentionRecord:
    watch = AttentionWatch(anatomy, corpus, SEED)
    read = 0

    def tick(tokens: int) -> None:
        nonlocal read
        read += tokens
        progress(f"reading {corpus.tokens} tokens", read, corpus.tokens)

    progress(f"reading {corpus.tokens} tokens", 0, corpus.tokens)
    with torch.no_grad():
        observe(anatomy, corpus, (), tick, watch)
    return watch.record


def from_text(record: AttentionRecord) -> tuple[Map, ...]:
    """What the sampled queries of a pass say of every head; nothing where the text was too short for any."""
    if not record.queries:
        return ()
    score, cosine, both = (record.sampled(name).sum(-1) for name in ("score_power", "cosine_power", "score_cosine"))
    with np.errstate(invalid="ignore", divide="ignore"):
        explained = both**2 / (score * cosine)
    made = [
        Map(Column("null_query", "share of |z|² that W_QK cannot see, queries"), _mean(record, "null_query")),
        Map(Column("null_key", "the same of keys"), _mean(record, "null_key")),
        Map(Column("null_value", "share of |z|² that W_VO cannot see, by attention"), _mean(record, "null_value")),
        Map(Column("r2_cosine", "R² of scores on cos(q, k), each query centred"), explained),
        Map(Column("rho", "Spearman ρ of score and −angle of directions, mean over queries"), _mean(record, "rho")),
        Map(Column("entropy", "of attention, over ln(keys): 1 is uniform"), _mean(record, "entropy")),
    ]
    return tuple(made)


def _mean(record: AttentionRecord, name: str) -> Floats:
    values = record.sampled(name)
    counted = np.isfinite(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counted, values, 0).sum(-1) / counted.sum(-1))


def attended(anatomy: Anatomy, corpus: Corpus, progress: Progress) -> tuple[Map, ...]:
    """What every head attends to, as `heads.specialise` measures it; nothing where the text was too short."""
    ids, _ = texts(corpus.windows, 1)
    if ids.size == 0 or ids.shape[1] < LENGTH_LEAST:
        return ()
    progress("looking at patterns", 0, 2)
    sums = scores(anatomy, ids).sum(0)
    progress("looking at patterns", 1, 2)
    prefix = corpus.windows[0].prefix
    again = repeated(corpus.windows, len(ids), anatomy.context, SEED)
    if again.shape[1] - prefix >= 4:
        sums[FIELDS.index("induction")] = induction(anatomy, again, prefix).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = sums[..., 1] / sums[..., 0]
    return tuple(Map(Column(kind, MEANINGS[kind]), found[FIELDS.index(kind)]) for kind in ROLES)


def _table(maps: Sequence[Map], roles: NDArray[np.str_]) -> Table:
    columns = [Column("layer", "layer"), Column("head", "head"), *(m.column for m in maps)]
    columns += [Column("role", "what takes half of its attention or more")] if roles.any() else []
    rows: list[dict[str, Cell]] = []
    for layer, head in np.ndindex(*roles.shape):
        row: dict[str, Cell] = {"layer": layer, "head": f"L{layer}H{head}"}
        row |= {m.column.name: _cell(m, float(m.values[layer, head])) for m in maps}
        row |= {"role": str(roles[layer, head])} if roles.any() else {}
        rows.append(row)
    return Table.of(columns, rows)


def _cell(found: Map, value: float) -> Cell:
    if np.isnan(value):
        return None
    return int(value) if found.column.name.startswith("n99") else value


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
    """A line a layer: the median head, and every head's role by its letter."""
    chosen = [m for m in maps if m.column.name in _SHORT]
    columns = [Column("layer", "layer")]
    columns += [Column(_SHORT[m.column.name], m.column.meaning, m.column.unit) for m in chosen]
    columns += [Column("roles", "one letter a head")] if any(letters) else []
    rows: list[tuple[Cell, ...]] = []
    for layer, said in enumerate(letters):
        medians = [float(np.nanmedian(m.values[layer])) if np.isfinite(m.values[layer]).any() else None for m in chosen]
        rows.append((f"L{layer}", *medians, *([said] if said else [])))
    return Table(tuple(Column(c.name, c.meaning) for c in columns), tuple(rows))


def _extremes(maps: Sequence[Map]) -> Table:
    """Who leads in each number."""
    wanted = {
        "sigma_1_qk": "strongest W_QK, σ1",
        "sigma_1_vo": "strongest W_VO, σ1",
        "r2_cosine": "most cosine, R²",
        "rho": "nearest to geodesic, ρ",
        **{name: f"to {said}" for name, (letter, said) in ROLES.items()},
    }
    rows: list[tuple[Cell, ...]] = []
    for m in maps:
        if m.column.name in wanted and np.isfinite(m.values).any():
            order = np.argsort(-np.nan_to_num(m.values.ravel(), nan=-np.inf), kind="stable")[:3]
            places = [np.unravel_index(i, m.values.shape) for i in order]
            said = [f"L{place[0]}H{place[1]} {m.values[place]:.3g}" for place in places]
            rows.append((wanted[m.column.name], *said, *[""] * (3 - len(said))))
    return Table((Column("", "what"), *(Column(name, "head and value") for name in ("1st", "2nd", "3rd"))), tuple(rows))


def _quantities(maps: Sequence[Map], seen: Sequence[Map]) -> tuple[Quantity, ...]:
    """Maps of layer × head; numbers of one kind side by side on one scale."""
    named = {m.column.name: m for m in (*maps, *seen)}
    made = [_map(named[f"sigma_1_{m}"], f"σ1 of {SHOWN[m]}", "σ1", log=True) for m in SHOWN if f"sigma_1_{m}" in named]
    both = {SHOWN[m]: named[f"participation_{m}"] for m in SHOWN if f"participation_{m}" in named}
    made.append(_row("participation ratio", "(Σσ²)²/Σσ⁴ of either matrix", "directions", "matrix", both))
    if not seen:
        return tuple(made)
    null = {side: named[f"null_{side}"] for side in ("query", "key", "value")}
    made.append(
        _row("null-space energy", "share of |z|² that the head cannot see, mean of tokens", "share", "side", null)
    )
    made.append(_map(named["r2_cosine"], "R² of the score on cos(q, k)", "R²"))
    made.append(_map(named["rho"], "Spearman ρ of score and −angle", "ρ"))
    made.append(_map(named["entropy"], "attention entropy", "share of ln(keys)"))
    kinds = {name: named[name] for name in ROLES if name in named and np.isfinite(named[name].values).any()}
    if kinds:
        made.append(
            _row("attention to", "mean share of attention, where there is such a token", "share", "kind", kinds)
        )
    return tuple(made)


def _coords(shape: tuple[int, ...]) -> dict[str, list[str]]:
    return {"layer": [f"L{i}" for i in range(shape[0])], "head": [f"H{i}" for i in range(shape[1])]}


def _map(one: Map, name: str, unit: str, log: bool = False) -> Quantity:
    logs = ("value",) if log else ()
    return Quantity(name, one.column.meaning, unit, ("layer", "head"), _coords(one.values.shape), one.values, logs=logs)


def _row(name: str, meaning: str, unit: str, axis: str, maps: dict[str, Map]) -> Quantity:
    stacked = np.stack([m.values for m in maps.values()])
    coords = {axis: list(maps), **_coords(stacked.shape[1:])}
    return Quantity(name, meaning, unit, (axis, "layer", "head"), coords, stacked)


def _title(maps: Sequence[Map], roles: NDArray[np.str_]) -> str:
    counts = sorted(((int((roles == name).sum()), said) for name, (_, said) in ROLES.items()), reverse=True)
    others = "".join(f", {n} to {said}" for n, said in counts[1:] if n)
    first = next(m for m in maps if m.column.name.startswith("sigma_1"))
    ends = f"σ1 of {SHOWN['qk' if first.column.name.endswith('qk') else 'vo']} runs from {first.values.min():.3g} to {first.values.max():.3g}"
    if not roles.any():
        return f"{roles.size} heads: {ends}"
    most, said = counts[0]
    if not most:
        return f"None of {roles.size} heads attends mostly to one kind of token; {ends}"
    return f"{most} of {roles.size} heads attend{'s' if most == 1 else ''} mostly to {said}{others}; {ends}"

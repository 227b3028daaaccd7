"""E10 as a sheet: tables by layer and by place in the sentence, with intervals over documents and the control."""

import numpy as np

from armillary.anatomy import Anatomy
from armillary.errors import TextError
from armillary.flow.documents import Documents
from armillary.readouts.ask import Gauge
from armillary.readouts.paper.approach import MEANS, Floats, Sums, approach, intervals, windows_of
from armillary.readouts.trajectory import moves
from armillary.results import Column, Quantity, Table
from armillary.results.sheet import Sheet
from armillary.results.table import Cell

RANDOM = "a random next word"
WHAT = "(e_next − e_own)·ln_f(x)"
COLUMNS = (
    Column("state", "state of the stream"),
    Column("difference", f"{WHAT}, mean over words", "logits"),
    Column("low", "its 95 % interval over documents, low end", "logits"),
    Column("high", "its 95 % interval over documents, high end", "logits"),
    Column("control", "the same with a random next word", "logits"),
    Column("next", "e_next·ln_f(x)", "logits"),
    Column("own", "e_own·ln_f(x)", "logits"),
    Column("other", "e·ln_f(x) of the random word", "logits"),
    Column("words", "words that count"),
    Column("documents", "documents that they stand in"),
)
BY_PLACE = (COLUMNS[0], Column("position", "place in the sentence, 1 is its first token"), *COLUMNS[1:])


def approach_sheet(anatomy: Anatomy, documents: Documents, gauge: Gauge) -> Sheet:
    windows = windows_of(anatomy, documents)
    if not windows:
        raise TextError(f"{documents.source} holds no sentence of 6 tokens or more; give prose.")
    sums = approach(anatomy, windows).known
    by_state, by_place = intervals(sums.by_state), intervals(sums.values)
    start, end = by_state[0, 0], by_state[0, -1]
    first = "The model's first position, where nothing came before, counts in the maps alone. " if sums.first else ""
    return Sheet(
        name="E10-approach",
        title=f"{WHAT} goes from {start[0]:.3g} to {end[0]:.3g} logits through the layers; with {RANDOM} from "
        f"{start[1]:.3g} to {end[1]:.3g}".replace("-", "−"),
        caption=f"{anatomy.name} · {documents.source} · {sums.sentences} sentences of {len(sums.values)} documents, each read by "
        "itself",
        tables={"by-layer": _by_layer(sums, by_state), "by-position": _by_place(sums, by_place)},
        quantities=_quantities(sums, by_state, by_place),
        notes=(
            f"e are rows of the unembedding{'' if anatomy.ln_final is not None else ', and x is read as it is: no final norm'}; "
            "bias and soft cap of the logits are left out. The random word is another place's next word, neither the word nor its "
            f"next; as a word leaves itself, the number rises for it too. {first}Intervals: 95 %, bootstrap over documents.",
            "Frequent words are said by many states wherever they stand, and the same sentences make a place's whole column: places "
            "differ by chance as far as the table's intervals reach.",
        ),
        about=gauge.about(anatomy),
    )


def _row(interval: Floats, sums: Floats) -> dict[str, Cell]:
    value, low, high = interval
    found = {name: _cell(value[MEANS.index(name)]) for name in MEANS}
    words, documents = int(sums[:, 0].sum()), int((sums[:, 0] > 0).sum())
    return {**found, "low": _cell(low[0]), "high": _cell(high[0]), "words": words, "documents": documents}


def _cell(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _by_layer(sums: Sums, found: Floats) -> Table:
    rows = [{"state": s, **_row(found[:, i], sums.by_state[:, i])} for i, s in enumerate(sums.states)]
    return Table.of(COLUMNS, rows)


def _by_place(sums: Sums, found: Floats) -> Table:
    places = range(sums.values.shape[2])
    return Table.of(
        BY_PLACE,
        [
            {"state": state, "position": p + 1, **_row(found[:, i, p], sums.values[:, i, p])}
            for i, state in enumerate(sums.states)
            for p in places
        ],
    )


def _quantities(sums: Sums, by_state: Floats, by_place: Floats) -> tuple[Quantity, ...]:
    after = ["embed", *moves(sums.states)]
    at = {name: i for i, name in enumerate(MEANS)}

    def line(name: str, meaning: str, part: str, control: str, said: str) -> Quantity:
        value, low, high = by_state[..., at[part]]
        return Quantity(
            name, meaning, "logits", ("after",), {"after": after}, value, low, high, {said: by_state[0][:, at[control]]}
        )

    positions = [str(p + 1) for p in range(sums.values.shape[2])]
    return (
        line(
            WHAT,
            "how much more a state says the next word than the word itself; band: 95 % over documents",
            "difference",
            "control",
            RANDOM,
        ),
        line("e_next·ln_f(x)", "how much it says the next word", "next", "other", "a random word"),
        line("e_own·ln_f(x)", "how much it says the word itself", "own", "other", "a random word"),
        Quantity(
            "the difference by place in the sentence",
            "mean over sentences; before the first layer (the tables have it) a word says itself, and would outshine the rest",
            "logits",
            ("after", "position"),
            {"after": after[1:], "position": positions},
            by_place[0, 1:, :, at["difference"]],
            controls={RANDOM: by_place[0, 1:, :, at["control"]]},
        ),
    )

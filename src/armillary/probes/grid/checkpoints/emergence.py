"""Role and share of the gradient of every head at every kept checkpoint of a training run: measured, stored, read."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import OutputError
from armillary.probes.machinery import Floats, T, mean
from armillary.results.disk.files import read_json

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus
    from armillary.probes.grid.checkpoints.phenomena import Phenomena

NAME = "emergence.json"
SIDES = "qkvo"
DIGITS = 6


@dataclass(frozen=True, eq=False)
class Emergence:
    """What was measured at every checkpoint, on one text."""

    steps: tuple[int, ...]
    counts: Mapping[str, int]
    """Phenomenon → how many tokens are marked, and how many others are compared with them."""
    roles: Floats
    """[step, phenomenon, layer, head]: share of attention."""
    shares: Floats
    """[step, phenomenon, (marked, other), layer, head]: |∂L/∂W_h|² over its sum over the heads of the layer."""
    shares_with_output: Floats
    """The same with the slices of W_O; NaN where they were not measured."""
    damaged: tuple[str, ...] = ()
    making: Mapping[str, Any] = field(default_factory=dict)
    """How a stored table came about; empty for one that was measured just now."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.counts)

    @property
    def excess(self) -> Floats:
        """[step, phenomenon, layer, head]: share on marked tokens less that on others."""
        return np.asarray(self.shares[:, :, 0] - self.shares[:, :, 1])

    @property
    def others(self) -> Floats:
        """[step, phenomenon, layer, head]: share on other tokens."""
        return self.shares[:, :, 1]


def measure_emergence(
    anatomy: "Anatomy",
    corpus: "Corpus",
    seed: int,
    tick: Callable[[int], None] = lambda tokens: None,
    say: Callable[[int], None] = lambda step: None,
) -> Emergence:
    """At every checkpoint of the run that the model is the end of; one that cannot be loaded is named and left out."""
    from armillary.anatomy.loading.load import load_model
    from armillary.errors import ModelError
    from armillary.probes.grid.checkpoints.phenomena import mark

    assert anatomy.checkpoints is not None, "the model came without checkpoints"
    phenomena = mark(anatomy, corpus, seed)
    steps, roles, squares = list[int](), list[Floats](), list[Floats]()
    damaged = list(anatomy.checkpoints.damaged)
    for checkpoint in anatomy.checkpoints.each:
        say(checkpoint.step)
        try:
            dtype = str(anatomy.dtype).removeprefix("torch.")
            model = load_model(checkpoint.path, anatomy.tokenizer, str(anatomy.device), dtype)
        except ModelError as error:
            damaged.append(f"step {checkpoint.step} was left out: {error}")
            continue
        _check_shape(anatomy, model, checkpoint.step)
        steps.append(checkpoint.step)
        roles.append(_roles(model, corpus, phenomena, seed, tick))
        squares.append(_squares(model, phenomena, tick))
    own = SIDES[:1] if anatomy.n_kv_heads < anatomy.n_heads else SIDES[:3]
    shape = (0, len(phenomena.names), 2, anatomy.layers, anatomy.n_heads)
    each = np.stack(squares) if squares else np.zeros((*shape, len(SIDES)))
    return Emergence(
        steps=tuple(steps),
        counts=phenomena.counts,
        roles=np.stack(roles) if roles else np.zeros((*shape[:2], *shape[3:])),
        shares=_shares(each, own),
        shares_with_output=_shares(each, own + "o"),
        damaged=tuple(damaged),
    )


def _check_shape(last: "Anatomy", model: "Anatomy", step: int) -> None:
    from armillary.errors import ModelError

    for name in ("family", "layers", "n_heads", "n_kv_heads", "vocabulary"):
        mine, theirs = getattr(model, name), getattr(last, name)
        if mine != theirs:
            raise ModelError(
                f"the checkpoints are not of one model: {name} is {mine} at step {step} and {theirs} at the last; keep "
                "those of one run."
            )


def _roles(
    model: "Anatomy", corpus: "Corpus", phenomena: "Phenomena", seed: int, tick: Callable[[int], None]
) -> Floats:
    """[phenomenon, layer, head]."""
    from armillary.probes.instruments.patterns import measure_patterns, repeated, texts

    text = texts(corpus, T.documents_least)
    copies = repeated(corpus, [window.document for window in text.windows], model.context, seed)
    state = measure_patterns(model, text, copies, tick)
    return np.stack([mean(state.of(name).sum(0)) for name in phenomena.names])


def _squares(model: "Anatomy", phenomena: "Phenomena", tick: Callable[[int], None]) -> Floats:
    """[phenomenon, (marked, other), layer, head, side]: squared length of the summed loss's gradient at each slice."""
    from torch import Tensor

    from armillary.probes.grid.backpropagation.backward import marked_slices

    sums: dict[tuple[str, int, int, str], Tensor] = {}
    for marked in phenomena.batches:
        slices = marked_slices(model, marked.batch, list(marked.marks.values()))
        for (name, side), layers in zip(marked.marks, slices, strict=True):
            for layer, given in layers.items():
                for part in SIDES if given.o is not None else SIDES[:3]:
                    key, more = (name, side, layer, part), given.gradient(part)
                    sums[key] = sums[key] + more if key in sums else more
        tick(marked.batch.tokens * (1 + 2 * len(marked.marks)))
    squares = np.full((len(phenomena.names), 2, model.layers, model.n_heads, len(SIDES)), np.nan)
    for (name, side, layer, part), gradient in sums.items():
        heads = gradient.double().square().sum((1, 2)).cpu().numpy()
        squares[phenomena.names.index(name), side, layer, :, SIDES.index(part)] = np.repeat(
            heads, model.n_heads // len(heads)
        )
    return squares


def _shares(squares: Floats, sides: str) -> Floats:
    """[…, layer, head] from squares […, layer, head, side]: over the heads of a layer; NaN where nothing flows."""
    chosen = squares[..., [SIDES.index(side) for side in sides]].sum(-1)
    total = chosen.sum(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(total > 0, chosen / total, np.nan))


def shipped(anatomy: "Anatomy") -> Emergence | None:
    """The table that came with a built-in model, or None."""
    from armillary.anatomy.loading.catalogue import shipped as models

    name = str(anatomy.provenance.get("source", "")).removeprefix("builtin:")
    if anatomy.provenance.get("kind") != "builtin" or name not in models():
        return None
    path = models()[name] / NAME
    return read_emergence(path) if path.exists() else None


def emergence_json(table: Emergence) -> str:
    """One line per checkpoint and phenomenon."""
    rows = []
    for at, step in enumerate(table.steps):
        for place, name in enumerate(table.names):
            row = {"step": step, "phenomenon": name, "role": _plain(table.roles[at, place])}
            for side, key in enumerate(("share_marked", "share_other")):
                row[key] = _plain(table.shares[at, place, side])
                row[f"{key}_with_output"] = _plain(table.shares_with_output[at, place, side])
            rows.append(json.dumps(row))
    head = {"making": dict(table.making), "steps": table.steps, "tokens": dict(table.counts), "damaged": table.damaged}
    text = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}")
    return text + ',\n "rows": [\n  ' + ",\n  ".join(rows) + "\n ]\n}\n"


def read_emergence(path: Path) -> Emergence:
    try:
        record = read_json(path)
        steps, counts = tuple(record["steps"]), dict(record["tokens"])
        rows = {(row["step"], row["phenomenon"]): row for row in record["rows"]}

        def column(key: str) -> Floats:
            return np.array([[rows[step, name][key] for name in counts] for step in steps], dtype=np.float64)

        def sides(end: str) -> Floats:
            return np.stack([column(f"share_marked{end}"), column(f"share_other{end}")], 2)

        making, damaged = record["making"], tuple(record["damaged"])
        return Emergence(steps, counts, column("role"), sides(""), sides("_with_output"), damaged, making)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(f"{path} cannot be read ({error}); write it again.") from error


def _plain(values: Floats) -> Any:
    """Nested lists of six digits; None for NaN."""
    if values.ndim:
        return [_plain(row) for row in values]
    return None if np.isnan(values) else float(f"{float(values):.{DIGITS}g}")

"""What do heads attend to? Scores of every head from its patterns on a text, and on random tokens repeated once."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.attention import visible
from armillary.flow.capture import run, still, watching_patterns
from armillary.flow.tokens import Window
from armillary.probes.machinery.evidence import Floats, Ints

FIELDS = ("previous", "next", "first", "self", "same", "induction", "content", "entropy", "differs")
BATCH = 512
# A query of fewer keys has little choice; a window must hold as many queries again.
KEYS_LEAST, LENGTH_LEAST, LENGTH = 8, 16, 64
# Patterns of these many queries are kept to compare one text's with the others'.
QUERIES = 16
REPEATED = 24
Tick = Callable[[int], None]


def texts(windows: Sequence[Window], least: int, longest: int = LENGTH) -> tuple[Ints, Ints]:
    """The beginnings of windows, all of one length [n, t], with their documents: as long as leaves three quarters of them,
    or `least`."""
    first: dict[int, Window] = {}
    for window in windows:
        first.setdefault(window.document, window)
    lengths = sorted((len(window.ids) for window in first.values()), reverse=True)
    if not lengths:
        return np.zeros((0, 0), dtype=np.int64), np.zeros(0, dtype=np.int64)
    length = min(longest, lengths[min(len(lengths) - 1, max(least, 3 * len(lengths) // 4) - 1)])
    kept = [window for window in first.values() if len(window.ids) >= length]
    ids = np.array([window.ids[:length] for window in kept], dtype=np.int64)
    return ids, np.array([window.document for window in kept], dtype=np.int64)


def repeated(windows: Sequence[Window], count: int, context: int, seed: int) -> Ints:
    """[count, t]: different tokens of the text in random order, and the same once more, after what the tokenizer puts first.

    Tokens that occur in the text are ordinary ones: no special token, none that the model never met.
    """
    bodies = [window.ids[window.prefix : len(window.ids) - window.suffix] for window in windows]
    known = np.array(sorted({token for body in bodies for token in body}), dtype=np.int64)
    before = list(windows[0].ids[: windows[0].prefix])
    length = min(REPEATED, len(known), (context - len(before)) // 2)
    rng = np.random.default_rng([seed, 53])
    drawn = [rng.choice(known, length, replace=False) for _ in range(count)]
    return np.array([[*before, *row, *row] for row in drawn], dtype=np.int64).reshape(count, -1)


def scores(anatomy: Anatomy, ids: Ints, tick: Tick = lambda tokens: None) -> Floats:
    """[text, field, layer, head, (queries, sum)] of all fields but induction."""
    made = np.zeros((len(ids), len(FIELDS), anatomy.layers, anatomy.n_heads, 2))
    places = np.unique(np.linspace(KEYS_LEAST, ids.shape[1] - 1, QUERIES).astype(int))
    kept: list[list[Tensor]] = [[] for _ in range(anatomy.layers)]

    def watch(rows: slice, layer: int, pattern: Tensor) -> None:
        sees = visible(anatomy.blocks[layer].attention, ids.shape[1], anatomy.causal, pattern.device)
        words = torch.as_tensor(ids[rows], device=pattern.device)
        for name, (count, total) in _looked(pattern.float(), sees, words).items():
            made[rows, FIELDS.index(name), layer, :, 0] = count
            made[rows, FIELDS.index(name), layer, :, 1] = total
        kept[layer].append(pattern[:, :, places].float().cpu())

    _watched(anatomy, ids, watch, tick)
    for layer, parts in enumerate(kept):
        total = _content(torch.cat(parts))
        made[:, FIELDS.index("content"), layer, :, 0] = len(places) * (len(ids) > 1)
        made[:, FIELDS.index("content"), layer, :, 1] = total
    return made


def induction(anatomy: Anatomy, ids: Ints, prefix: int, tick: Tick = lambda tokens: None) -> Floats:
    """[text, layer, head, (queries, sum)]: attention of a token's second occurrence to what followed the first."""
    made = np.zeros((len(ids), anatomy.layers, anatomy.n_heads, 2))
    half = (ids.shape[1] - prefix) // 2
    again = torch.arange(half - 1) + prefix + half
    after = again - half + 1

    def watch(rows: slice, layer: int, pattern: Tensor) -> None:
        made[rows, layer, :, 0] = half - 1
        made[rows, layer, :, 1] = _numbers(pattern[:, :, again, after].double().sum(-1))

    _watched(anatomy, ids, watch, tick)
    return made


def _watched(anatomy: Anatomy, ids: Ints, watch: Callable[[slice, int, Tensor], None], tick: Tick) -> None:
    step = max(1, BATCH // ids.shape[1])
    for start in range(0, len(ids), step):
        rows = slice(start, min(start + step, len(ids)))
        with still(anatomy.model), watching_patterns(anatomy, partial(watch, rows)):
            run(anatomy, torch.as_tensor(ids[rows]))
        tick(ids[rows].size)


def _numbers(values: Tensor) -> Floats:
    return np.asarray(values.double().cpu().numpy())


def _looked(pattern: Tensor, sees: Tensor, ids: Tensor) -> dict[str, tuple[Floats, Floats]]:
    """name → queries counted [text, 1 or head], and sums over them [text, head], of patterns [text, head, t, t]."""
    length = pattern.shape[-1]
    late = torch.arange(KEYS_LEAST, length, device=pattern.device)
    others = ~torch.eye(length, dtype=torch.bool, device=pattern.device)
    same = ((ids[:, :, None] == ids[:, None]) & sees & others)[:, late]
    has = same.any(-1)
    rows = pattern[:, :, late]
    at = {
        "previous": pattern[:, :, late, late - 1],
        "first": pattern[:, :, late, 0],
        "self": pattern[:, :, late, late],
        "entropy": -torch.xlogy(rows, rows).sum(-1) / sees.sum(-1)[late].clamp_min(2).log(),
        "differs": _between(rows),
    }
    counted = np.full((len(pattern), 1), float(len(late)))
    found = {name: (counted, _numbers(value.double().sum(-1))) for name, value in at.items()}
    if bool(sees[0, 1]):
        after = late[:-1]
        found["next"] = (counted - 1, _numbers(pattern[:, :, after, after + 1].double().sum(-1)))
    found["same"] = (
        _numbers(has.sum(-1))[:, None],
        _numbers(((rows * same[:, None]).sum(-1) * has[:, None]).double().sum(-1)),
    )
    return found


def _between(rows: Tensor) -> Tensor:
    """[text, head, query]: total variation between a head's pattern and that of the layer's other heads, on average."""
    heads = rows.shape[1]
    apart = [(rows - rows[:, head : head + 1]).abs().sum(-1).sum(1) / 2 for head in range(heads)]
    return torch.stack(apart, 1) / max(1, heads - 1)


def _content(kept: Tensor) -> Floats:
    """[text, head], summed over queries: total variation between a text's pattern and the mean of the other texts' at the same
    places. What only depends on places is the same in all."""
    others = (kept.sum(0, keepdim=True) - kept) / max(1, len(kept) - 1)
    return _numbers((kept - others).abs().sum(-1).double().sum(-1) / 2)

"""Which keys can no query select, and what does a query along the plane's normal attend to? Document by document."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy.folded import Folded, fold
from armillary.anatomy.norm import Norm
from armillary.anatomy.space import Vectors
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Batch
from armillary.geometry.clouds.hull import selectable
from armillary.probes.machinery import MODEL, Floats, Ints, spread_layers
from armillary.probes.machinery.bench import DOCUMENTS, QUICK_DOCUMENTS, Bench

# A head of 32 axes needs more than 33 keys before one can lie inside the hull of the others, so documents are read
# further here than in other experiments.
KEYS_MOST = 256
# Layers spread over the depth, heads spread over the layer, and keys of a document that are tried.
LAYERS, HEADS, TRIED, TRIED_TWIN = 6, 8, 8, 2
RANDOM_QUERIES = 8
# Width of the source's models.
FEW = 8
HULLS = ("inside", "unscaled", "few", "few_unscaled", "stream", "stream_unscaled")
"""Keys in the axes of a head, with the norm and without its scaling; the same in eight random axes of the head; the
vectors that keys are made of, in all axes."""
ENTROPIES = ("normal", "unprojected", "random")
"""Of the query along the normal, of the same with the mean of coordinates left in, and of random queries."""


@dataclass(frozen=True, eq=False)
class KeyHulls:
    """Sums over documents: name → [document group, head, (count, sum)]."""

    heads: tuple[str, ...]
    sums: Mapping[str, Floats]
    reached: Floats
    """[head]: the share of |1|² that lies in the space of directions a query can take."""
    keys: Floats
    """How many keys each document has."""
    axes: int
    projected: bool
    """Does the norm project? LayerNorm does."""


@dataclass(frozen=True, eq=False)
class _Layer:
    """What a layer's keys are made from."""

    layer: int
    site: str
    norm: Norm
    folded: Folded
    rows: Ints
    """The heads that are looked at, one for each set of keys."""
    seen: Tensor
    """[h, d, k]: γ W_K of these heads, before centring: a query q gives the scores z · (γ W_K q)."""
    best: Tensor
    """[h, k]: the query whose γ W_K q comes nearest to 1."""


def key_hulls(bench: Bench, arm: str) -> KeyHulls | None:
    """None where documents are too short, or no layer reads a norm."""
    side = bench.arm(arm)
    documents = QUICK_DOCUMENTS if bench.quick else DOCUMENTS
    text = side.corpus.thinned(KEYS_MOST * min(documents, side.corpus.documents), documents)
    windows = [window for window in text.windows if len(window.ids) >= 3]
    layers = [layer for index in spread_layers(side.anatomy, LAYERS) if (layer := _layer(side, index)) is not None]
    if not windows or not layers:
        return None
    names = tuple(f"L{layer.layer}H{row}" for layer in layers for row in layer.rows)
    sums = {name: np.zeros((bench.corpus.groups, len(names), 2)) for name in (*HULLS, *ENTROPIES, "used")}
    rng = np.random.default_rng([bench.seed, 71])
    for batch in side.batches(windows):
        received = _received(side, batch, [layer.site for layer in layers])
        groups = side.groups(batch).tolist()
        for row, window in enumerate(batch.windows):
            tried = np.sort(rng.permutation(len(window.ids))[: TRIED if arm == MODEL else TRIED_TWIN])
            start = 0
            for layer in layers:
                heads = slice(start, start := start + len(layer.rows))
                states = received[layer.site][row, : len(window.ids)]
                for name, values in _document(layer, states, tried, rng, arm == MODEL).items():
                    sums[name][groups[row], heads] += values
    reached = np.concatenate([_reached(layer) for layer in layers])
    keys = np.array([len(window.ids) for window in windows], dtype=float)
    projected = all(layer.norm.kind == "layernorm" for layer in layers)
    return KeyHulls(names, sums, reached, keys, side.anatomy.k, projected)


def _layer(bench: Bench, index: int) -> _Layer | None:
    folded = fold(bench.anatomy, index)
    if folded.norm is None:
        return None
    attention = folded.attention
    groups = attention.W_K.shape[0]
    chosen = np.unique(np.linspace(0, groups - 1, min(groups, HEADS)).round().astype(np.int64))
    gain = folded.norm.gain.to(folded.A_K)
    seen = gain[:, None] * attention.W_K[torch.from_numpy(chosen)].to(folded.A_K)
    return _Layer(
        index, folded.reads.site, folded.norm, folded, chosen * attention.group, seen, torch.linalg.pinv(seen).sum(-1)
    )


def _received(bench: Bench, batch: Batch, sites: list[str]) -> dict[str, Tensor]:
    """What the norms receive [b, t, d]."""
    states: dict[str, Tensor] = {}

    def keep(site: str) -> Watcher:
        def watch(given: Tensor | None, value: Tensor) -> None:
            assert given is not None, "a norm takes a tensor"
            states[site] = given.detach().reshape(*value.shape).double()

        return watch

    with still(bench.anatomy.model), watching(bench.anatomy, {site: keep(site) for site in sites}):
        last = run(bench.anatomy, batch.ids, batch.mask)
    bench.tick(batch.tokens)
    return {site: value.reshape(*last.shape[:2], -1) for site, value in states.items()}


def _document(layer: _Layer, x: Tensor, tried: Ints, rng: np.random.Generator, whole: bool) -> dict[str, Floats]:
    """name → [head, (count, sum)] of one document's states [t, d]; of a twin not everything is asked."""
    norm, folded = layer.norm, layer.folded
    z, scale = norm.direction(x), (norm.power(x) + norm.eps).rsqrt()
    keys = _keys(layer, z)
    clouds = {"inside": keys}
    if whole:
        plain = x - x.mean(-1, keepdim=True) if norm.kind == "layernorm" else x
        unscaled = _keys(layer, plain * scale.median())
        turn = _orthogonal(rng, keys)
        clouds |= {"unscaled": unscaled, "few": keys @ turn, "few_unscaled": unscaled @ turn}
        clouds |= {"stream": z[None], "stream_unscaled": plain[None]}
    shares = {name: _inside(cloud, tried, len(layer.rows)) for name, cloud in clouds.items()}
    if norm.kind != "layernorm":
        return shares
    queries = folded.queries(Vectors(z, folded.reads))
    if whole:
        shares |= _entropies(layer, x.mean(-1) * scale[:, 0], keys, _bare(layer, z), queries, rng)
    own = torch.stack([queries[row] @ seen.mT for row, seen in zip(layer.rows, layer.seen, strict=True)])
    along = own.sum(-1).square() / own.square().sum(-1).clamp_min(1e-300)
    counts = torch.full_like(along[:, 0], along.shape[1])
    return shares | {"used": torch.stack([counts, along.sum(1)], -1).cpu().numpy()}


def _entropies(
    layer: _Layer, means: Tensor, keys: Tensor, bare: Tensor, queries: Tensor, rng: np.random.Generator
) -> dict[str, Floats]:
    """name → [head, (documents, entropy)] of queries as long as the head's median one."""
    group = layer.folded.attention.group
    lengths = torch.stack([queries[row : row + group].norm(dim=-1).median() for row in layer.rows])
    drawn = rng.standard_normal((len(layer.rows), RANDOM_QUERIES, keys.shape[-1]))
    directions = torch.cat([layer.best[:, None], torch.from_numpy(drawn).to(layer.best)], 1)
    directions = lengths[:, None, None] * torch.nn.functional.normalize(directions, dim=-1)
    entropy = _entropy(layer, directions, keys)
    # Without projection z keeps its mean of coordinates, a multiple of 1, which reaches the keys through γ W_K.
    uncentred = _turned(layer, bare + means[None, :, None] * layer.seen.sum(1)[:, None])
    values = {"normal": entropy[:, 0], "random": entropy[:, 1:].mean(1)}
    values["unprojected"] = _entropy(layer, directions[:, :1], uncentred)[:, 0]
    return {name: np.stack([np.ones(len(layer.rows)), value], -1) for name, value in values.items()}


def _bare(layer: _Layer, z: Tensor) -> Tensor:
    """Keys before any norm of their own and before rotation [h, t, k]."""
    rows = torch.from_numpy(layer.rows)
    return z @ layer.folded.A_K[rows] + layer.folded.a_K[rows, None]


def _keys(layer: _Layer, z: Tensor) -> Tensor:
    """Keys as scores take them [h, t, k], from z or from something in its place."""
    keys = layer.folded.keys(Vectors(z, layer.folded.reads))
    return _rotated(layer, keys[torch.from_numpy(layer.rows)])


def _turned(layer: _Layer, keys: Tensor) -> Tensor:
    """Bare keys through the norm that keys may have, and rotated."""
    norm = layer.folded.attention.k_norm
    return _rotated(layer, keys if norm is None else norm(keys))


def _rotated(layer: _Layer, keys: Tensor) -> Tensor:
    rotary = layer.folded.attention.rotary
    if rotary is None:
        return keys
    rotation = rotary.rotation(torch.arange(keys.shape[1], device=keys.device))
    return rotation(keys.transpose(0, 1)[None])[0].transpose(0, 1)


def _inside(clouds: Tensor, tried: Ints, heads: int) -> Floats:
    """[head, (keys, those that no query can select)]; one cloud serves all heads of the layer."""
    counts = [len(tried) - int(selectable(cloud.cpu().numpy(), tried).sum()) for cloud in clouds]
    inside = np.full(heads, counts[0]) if len(counts) == 1 else np.array(counts)
    return np.stack([np.full(heads, float(len(tried))), inside.astype(float)], -1)


def _entropy(layer: _Layer, queries: Tensor, keys: Tensor) -> Floats:
    """[head, query]: entropy of attention over all keys, over ln(keys)."""
    cap = layer.folded.attention.softcap
    scores = queries @ keys.mT * layer.folded.attention.scale
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    pattern = scores.log_softmax(-1)
    return np.asarray((-(pattern.exp() * pattern).sum(-1) / np.log(keys.shape[1])).cpu().numpy())


def _orthogonal(rng: np.random.Generator, keys: Tensor) -> Tensor:
    """[h, k, FEW]: random axes of each head; all of them where it has no more."""
    k = keys.shape[-1]
    drawn = rng.standard_normal((len(keys), k, min(k, FEW)))
    return torch.from_numpy(np.linalg.qr(drawn)[0]).to(keys)


def _reached(layer: _Layer) -> Floats:
    """[head]: the share of 1 that γ W_K q can be for some q."""
    nearest = layer.seen @ layer.best[..., None]
    return np.asarray((nearest.square().sum((1, 2)) / nearest.shape[1]).cpu().numpy())

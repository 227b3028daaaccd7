"""What is measured of a model's health? One pass, a few short ones, and its weights."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import run, still
from armillary.flow.tokens import Corpus
from armillary.geometry.clouds.crowding import crowded
from armillary.probes.filter.activations.hidden import HiddenLayer, hidden_pass
from armillary.probes.filter.activations.units import Units, find_units
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.instruments.patterns import LENGTH_LEAST, PatternSums, measure_patterns, repeated, texts
from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import MODEL, Evidence, Flags, Floats, T, mean
from armillary.probes.machinery.bench import Bench, text_loss
from armillary.probes.machinery.shared_pass import observe
from armillary.probes.others.largest.massive_places import Extremes, extremes
from armillary.probes.others.streams.cones import Cones, cones
from armillary.probes.others.streams.sampled_stream import Streams, sampled_streams
from armillary.probes.sphere.ellipsoid import flat_axes, gain_axes
from armillary.probes.sphere.spectra.clouds import membership, participation

DUPLICATE = 0.99
ROWS = 8


@dataclass(frozen=True, eq=False)
class Weights:
    """What the weights show without a text."""

    broken: tuple[str, ...]
    """Parameters that hold NaN or infinity."""
    largest: float
    largest_name: str
    flat: dict[str, int]
    """Norm → axes whose |γ| is 0, or below 1 % of the median."""
    axes: int
    short: Flags
    """[v]: embeddings below 1 % of the median length."""
    twins: Flags
    """[v]: embeddings with another at a cosine of 0.99, about their mean."""


@dataclass(frozen=True, eq=False)
class Losses:
    """Nats per token on the text and on random tokens repeated once."""

    text: float
    bits_per_byte: float
    first: float
    second: float


@dataclass(frozen=True, eq=False)
class Vitals:
    """All that the checks read."""

    anatomy: Anatomy
    corpus: Corpus
    weights: Weights
    losses: Losses
    sites: tuple[str, ...]
    lengths: Floats
    """[norm]: mean ‖x‖ of ordinary tokens."""
    states: tuple[str, ...]
    dimensions: Floats
    """[state]: participation ratio of ordinary tokens, in axes. Dimensions are standardised: one that is loud in a
    healthy model (SmolLM2 has some) would pass for a collapse."""
    cones: Cones
    extremes: Extremes
    patterns: PatternSums | None
    writes: Floats
    """[layer, head]: mean length of a head's write, over that of the layer's median head."""
    hidden: tuple[HiddenLayer, ...]
    units: tuple[Units, ...]
    mute: tuple[Flags, ...]
    """Per layer [m]: units whose row of W_out is shorter than 1 % of the layer's median row that is not zero."""
    logits: float
    """The largest |logit|; NaN without a language-model head."""

    def pattern(self, field: str) -> Floats:
        """[layer, head] of one field; NaN where texts are too short."""
        if self.patterns is None:
            return np.full((self.anatomy.layers, self.anatomy.n_heads), np.nan)
        return mean(self.patterns.of(field).sum(0))


def read_weights(anatomy: Anatomy, seed: int = 0) -> Weights:
    broken, largest, name = [], 0.0, ""
    for label, weight in anatomy.model.named_parameters():
        peak = float(weight.detach().abs().max()) if weight.numel() else 0.0
        if not math.isfinite(peak):
            broken.append(label)
        elif peak > largest:
            largest, name = peak, label
    flat = {site: _flat(np.abs(gain_axes(norm))) for site, norm in anatomy.norms.items()}
    rows = anatomy.W_E.detach().float().cpu()
    length = rows.norm(dim=1)
    finite = bool(rows.isfinite().all())
    short = (length < 0.01 * length.median()).numpy() if finite else np.zeros(len(rows), dtype=bool)
    twins = crowded(rows, DUPLICATE, 1).numpy() if finite else np.zeros(len(rows), dtype=bool)
    return Weights(tuple(broken), largest, name, flat, anatomy.d * len(flat), short, twins)


def _flat(axes: Floats) -> int:
    """Axes that are 0 count even where all are: the median says nothing then."""
    return int((flat_axes(axes) | (axes == 0)).sum())


def measure(
    anatomy: Anatomy, corpus: Corpus, seed: int = 0, tell: Callable[[str], None] = lambda what: None
) -> Vitals | Weights:
    """Everything, or the weights alone where they hold NaN or infinity."""
    tell("weights")
    weights = read_weights(anatomy, seed)
    if weights.broken:
        return weights
    bench = Bench(anatomy, corpus, (), seed)
    tell("stream")
    states = observe(anatomy, corpus, (LENGTHS, SAMPLES), seed)
    evidence = Evidence(anatomy, corpus, (), {i: {MODEL: state} for i, state in states.items()}, seed)
    streams = sampled_streams(evidence, MODEL)
    tell("losses")
    losses = _losses(bench)
    tell("heads")
    text = texts(bench.text, 1)
    patterns = None
    if text.windows and len(text.windows[0].ids) >= LENGTH_LEAST:
        patterns = measure_patterns(anatomy, text, None)
    writes = _head_writes(bench)
    tell("units")
    hidden = tuple(hidden_pass(bench, (), True))
    forwards = [block.feed_forward for block in anatomy.blocks]
    return Vitals(
        anatomy,
        corpus,
        weights,
        losses,
        tuple(anatomy.norms),
        mean(states[LENGTHS].sums("length", (0,)).sum(1)),
        tuple(streams.x),
        _dimensions(streams, corpus),
        cones(evidence, MODEL),
        extremes(bench),
        patterns,
        writes,
        hidden,
        tuple(find_units(layer, ffn, seed) for layer, ffn in zip(hidden, forwards, strict=True)),
        tuple(_mute(ffn.W_out) for ffn in forwards),
        _largest_logit(bench),
    )


def _mute(w_out: Tensor) -> Flags:
    length = w_out.detach().float().norm(dim=1)
    written = length[length > 0]
    return np.asarray((length <= SILENT * (written.median() if len(written) else 0)).cpu().numpy())


def _dimensions(streams: Streams, corpus: Corpus) -> Floats:
    member = membership(streams.document, corpus.groups)
    once = np.ones((1, corpus.groups))

    def of(x: Floats) -> float:
        spread = x.std(0)
        return float(participation((x - x.mean(0)) / np.where(spread > 0, spread, 1), member, once)[0])

    return np.array([of(x.astype(np.float64)) if len(x) > 1 else np.nan for x in streams.x.values()])


def _losses(bench: Bench) -> Losses:
    nothing = float("nan")
    loss = text_loss(bench)
    if loss is None or not sum(loss.tokens):
        return Losses(nothing, nothing, nothing, nothing)
    nats, size = sum(loss.nats), sum(loss.bytes)
    bits = nats / math.log(2) / max(1, size) if bench.anatomy.tokenizer is not None else nothing
    return Losses(nats / max(1, sum(loss.tokens)), bits, *_copying(bench))


def _copying(bench: Bench) -> tuple[float, float]:
    """Nats per token in the first and in the second copy of random tokens of the text."""
    documents = sorted({window.document for window in bench.text.windows})[:ROWS]
    again = repeated(bench.corpus, documents, bench.anatomy.context, bench.seed)
    length = (len(again.windows[0].ids) - again.windows[0].prefix) // 2
    if length < 4:
        return float("nan"), float("nan")
    batch = next(iter(again.batches(1 << 16)))
    nats = bench.token_losses(batch)[:, again.windows[0].prefix :]
    return float(nats[:, : length - 1].mean()), float(nats[:, length : 2 * length - 1].mean())


def _head_writes(bench: Bench) -> Floats:
    """[layer, head]: the mean length of what a head writes, over that of the layer's median head."""
    anatomy = bench.anatomy
    sites = [f"L{layer}.z" for layer in range(anatomy.layers)]
    total = torch.zeros(anatomy.layers, anatomy.n_heads, dtype=torch.float64)
    for batch in bench.batches():
        for layer, z in enumerate(bench.states(batch, sites).values()):
            out = anatomy.blocks[layer].attention.W_O.float()
            heads = z.float().reshape(*z.shape[:2], anatomy.n_heads, -1)
            squared = torch.einsum("bthk,hkl,bthl->bth", heads, out @ out.mT, heads).clamp_min(0)
            total[layer] += (squared.sqrt() * batch.mask[..., None].to(z.device)).sum((0, 1)).double().cpu()
    middle = total.median(1, keepdim=True).values
    return np.asarray((total / middle.clamp_min(1e-300)).numpy())


def _largest_logit(bench: Bench) -> float:
    if not bench.scored:
        return float("nan")
    batch = bench.batches()[0]
    with still(bench.anatomy.model):
        logits: Tensor = run(bench.anatomy, batch.ids, batch.mask, logits=True)
    return float(logits.float().abs().max())


SILENT = T.null_write

"""Which states of which windows are compared, and how far apart are they?"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits import Edit
from armillary.flow.tokens import Batch, Corpus, Window
from armillary.geometry.sphere import angle
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import Floats
from armillary.probes.machinery.thresholds import THRESHOLDS as T

# A window of fewer tokens has nothing to append to, or to slide out of.
LEAST = 8


def stations(anatomy: Anatomy) -> tuple[str, ...]:
    """Where the stream is looked at: before the first block and after each."""
    return ("L0.resid_pre", *(f"L{i}.resid_post" for i in range(anatomy.layers)))


def even_windows(corpus: Corpus, length: int, documents: int) -> tuple[Window, ...]:
    """Windows of one length, at most `length`, one a document: as long as three quarters of the documents allow.

    Where that leaves too few of them for intervals, down to half as long, so that more fit. Tokens that the tokenizer
    added are left out, so that a window that slides does not lose them with its first step.
    """
    bodies: dict[int, tuple[int, ...]] = {}
    for window in corpus.windows:
        body = window.ids[window.prefix : len(window.ids) - window.suffix]
        if len(body) > len(bodies.get(window.document, ())):
            bodies[window.document] = body
    lengths = sorted((len(body) for body in bodies.values()), reverse=True)
    fits = min(length, lengths[(3 * len(lengths) - 1) // 4])
    shorter = lengths[min(T.documents_least, len(lengths)) - 1]
    fits = shorter if fits / 2 <= shorter < fits else fits
    if fits < LEAST:
        return ()
    chosen = [Window(document, body[:fits]) for document, body in sorted(bodies.items()) if len(body) >= fits]
    return tuple(chosen[:documents])


def stream(bench: Bench, batch: Batch, *edits: Edit) -> Tensor:
    """The stream at every station [state, b, t, d] in float64."""
    found = bench.states(batch, stations(bench.anatomy), *edits)
    return torch.stack([found[name].double() for name in stations(bench.anatomy)])


def turned(anatomy: Anatomy, one: Tensor, other: Tensor) -> Tensor:
    """Angles between two streams as the norms see them, in radians: without their mean where a LayerNorm takes it out.

    A state of zero length, or one that overflowed, has no direction: NaN.
    """
    if anatomy.blocks[0].ln1.kind == "layernorm":
        one, other = one - one.mean(-1, keepdim=True), other - other.mean(-1, keepdim=True)
    return angle(one, other)


def by_group(bench: Bench, batch: Batch, values: Tensor) -> Floats:
    """[group, state, (count, sum)] of values [state, b, t] over the tokens where they are finite."""
    real = torch.isfinite(values)
    rows = torch.stack((real.double().sum(2), torch.where(real, values, 0).sum(2)), -1)
    made = np.zeros((bench.corpus.groups, len(values), 2))
    np.add.at(made, bench.groups(batch).numpy(), rows.transpose(0, 1).cpu().numpy())
    return made


def largest_by_group(bench: Bench, batch: Batch, values: Tensor) -> Floats:
    """[group, state]: the largest of values [state, b, t] in each document; 0 where it has none."""
    made = np.zeros((bench.corpus.groups, len(values)))
    np.maximum.at(made, bench.groups(batch).numpy(), values.amax(2).T.cpu().numpy())
    return made


def cut(batch: Batch, stop: int) -> Batch:
    """The same rows, their first `stop` tokens."""
    return replace(batch, ids=batch.ids[:, :stop], mask=batch.mask[:, :stop], following=batch.following[:, :stop])

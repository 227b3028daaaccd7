"""Windows of equal length, the states compared in them, and sums of comparisons per document group."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from armillary.anatomy import Anatomy, Norm
from armillary.edits import Edit, Freeze
from armillary.flow.capture import Watcher, watching
from armillary.flow.tokens import Batch, Corpus, Window
from armillary.geometry.sphere import angle
from armillary.probes.machinery import Floats, T
from armillary.probes.machinery.bench import Bench

# A shorter window has nothing to append to or to slide out of.
LEAST = 8


def stations(anatomy: Anatomy) -> tuple[str, ...]:
    """The states that are compared: before the first block and after each block."""
    return ("L0.resid_pre", *(f"L{i}.resid_post" for i in range(anatomy.layers)))


def even_windows(corpus: Corpus, length: int, documents: int) -> tuple[Window, ...]:
    """One window per document, all of one length: at most `length`, as long as three quarters of the documents allow.

    If that leaves too few documents for an interval, windows may be down to half as long. Tokens that the tokenizer
    added are left out, so that a sliding window does not lose them with its first step.
    """
    bodies = _bodies(corpus)
    lengths = sorted((len(body) for body in bodies.values()), reverse=True)
    fits = min(length, lengths[(3 * len(lengths) - 1) // 4])
    shorter = lengths[min(T.documents_least, len(lengths)) - 1]
    fits = shorter if fits / 2 <= shorter < fits else fits
    if fits < LEAST:
        return ()
    chosen = [Window(document, body[:fits]) for document, body in sorted(bodies.items()) if len(body) >= fits]
    return tuple(chosen[:documents])


def _bodies(corpus: Corpus) -> dict[int, tuple[int, ...]]:
    """The longest window of every document, without what the tokenizer added."""
    bodies: dict[int, tuple[int, ...]] = {}
    for window in corpus.windows:
        body = window.ids[window.prefix : len(window.ids) - window.suffix]
        if len(body) > len(bodies.get(window.document, ())):
            bodies[window.document] = body
    return bodies


def filled(corpus: Corpus, windows: tuple[Window, ...], length: int) -> tuple[Window, ...]:
    """The windows, each filled up in front to `length` with the end of the text before its document.

    Before the first document stands the last one: the text is read as a ring, and no window holds a token twice.
    """
    bodies = _bodies(corpus)
    text = [token for _, body in sorted(bodies.items()) for token in body]
    starts = dict(zip(sorted(bodies), np.cumsum([0, *(len(body) for _, body in sorted(bodies.items()))]), strict=False))
    full = []
    for window in windows:
        more = min(length, len(text)) - len(window.ids)
        start = int(starts[window.document])
        front = [text[i % len(text)] for i in range(start - more, start)] if more > 0 else []
        full.append(Window(window.document, (*front, *window.ids)))
    return tuple(full)


def stream(bench: Bench, batch: Batch, *edits: Edit) -> Tensor:
    """The stream at every station [state, b, t, d], in float64."""
    states = bench.states(batch, stations(bench.anatomy), *edits)
    return torch.stack([states[name].double() for name in stations(bench.anatomy)])


def stream_and_powers(bench: Bench, batch: Batch, *edits: Edit) -> tuple[Tensor, dict[str, Tensor]]:
    """The stream, and the squared length [b, t, 1] that every norm divides by."""
    norms, powers = bench.anatomy.norms, dict[str, Tensor]()
    with watching(bench.anatomy, {site: _power(norms[site], site, powers) for site in norms}):
        return stream(bench, batch, *edits), powers


def _power(norm: Norm, site: str, powers: dict[str, Tensor]) -> Watcher:
    def see(given: Tensor | None, output: Tensor) -> None:
        assert given is not None, "a norm takes a tensor"
        powers[site] = norm.power(given)

    return see


def frozen(anatomy: Anatomy, powers: Mapping[str, Tensor], slid: int = 0) -> tuple[Edit, ...]:
    """Edits that freeze every norm to the scale of a power: one for all tokens, or one per token [b, t, 1] that is left
    after `slid` tokens went out of the window."""
    # The columns of a scale are those of the whole text: tokens that slid out have some that nobody reads.
    whole = {
        site: pad(power, (0, 0, slid, 0), value=1.0) if power.ndim == 3 else power for site, power in powers.items()
    }
    return tuple(Freeze(site, torch.rsqrt(power + anatomy.norms[site].eps)) for site, power in whole.items())


def first_apart(powers: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """First tokens with their own power, the tokens after them with those of `others`."""
    return {s: torch.cat((p[:, :1], others[s].expand_as(p)[:, 1:]), 1) for s, p in powers.items()}


def angles_between(anatomy: Anatomy, a: Tensor, b: Tensor) -> Tensor:
    """Angles between two streams in radians, as the norms see them: centred if the norms are LayerNorms.

    A state of length zero, or one that overflowed, has no direction: its angle is NaN.
    """
    if anatomy.centred:
        a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    return angle(a, b)


def by_group(bench: Bench, batch: Batch, values: Tensor) -> Floats:
    """[group, state, (count, sum)] of values [state, b, t] over the tokens where they are finite."""
    finite = torch.isfinite(values)
    rows = torch.stack((finite.double().sum(2), torch.where(finite, values, 0).sum(2)), -1)
    sums = np.zeros((bench.corpus.groups, len(values), 2))
    np.add.at(sums, bench.groups(batch).numpy(), rows.transpose(0, 1).cpu().numpy())
    return sums


def largest_by_group(bench: Bench, batch: Batch, values: Tensor) -> Floats:
    """[group, state]: the largest of values [state, b, t] in each group; 0 for a group without tokens."""
    largest = np.zeros((bench.corpus.groups, len(values)))
    np.maximum.at(largest, bench.groups(batch).numpy(), values.amax(2).T.cpu().numpy())
    return largest


def cut(batch: Batch, stop: int) -> Batch:
    """The first `stop` tokens of every row."""
    return replace(batch, ids=batch.ids[:, :stop], mask=batch.mask[:, :stop], following=batch.following[:, :stop])

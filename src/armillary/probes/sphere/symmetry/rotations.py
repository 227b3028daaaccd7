"""Does a map treat all directions alike? Rotating its input must then rotate its output and change nothing else."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits.edit import Change, changing
from armillary.flow.capture import run, still
from armillary.flow.tokens import Batch
from armillary.probes.machinery import Floats
from armillary.probes.machinery.bench import Bench
from armillary.probes.sphere.symmetry.cycle import Sublayer, sublayers

DOCUMENTS, TOKENS = 12, 24


# A model, its twins and its norms are rotated by the same matrix.
@lru_cache(maxsize=4)
def rotation(d: int, seed: int, fixes_ones: bool) -> Tensor:
    """A random rotation or reflection of row vectors [d, d], float64; with `fixes_ones` it leaves (1, …, 1) where it
    is, so that it maps the plane of LayerNorm to itself.

    >>> turn = rotation(5, 0, True)
    >>> bool(torch.allclose(turn @ turn.T, torch.eye(5).double()))
    True
    >>> bool(torch.allclose(turn.sum(0), torch.ones(5).double()))
    True
    """
    rng = torch.Generator().manual_seed(seed)
    free = d - 1 if fixes_ones else d
    q, r = torch.linalg.qr(torch.randn(free, free, generator=rng, dtype=torch.float64))
    q = q * r.diagonal().sign()
    if not fixes_ones:
        return q
    plane = torch.linalg.qr(torch.cat((torch.ones(d, 1), torch.eye(d)[:, 1:]), 1).double())[0][:, 1:]
    return plane @ q @ plane.T + 1 / d


@dataclass(frozen=True, eq=False)
class RotationErrors:
    """Per sublayer [document group, sublayer, (tokens, |f(y)|², |f(yR) − f(y)R|²)]."""

    parts: tuple[Sublayer, ...]
    sums: Floats

    @staticmethod
    def error(sums: Floats) -> Floats:
        """‖f(yR) − f(y)R‖/‖f(y)‖: 0 for a map that treats all directions alike, √2 for an unrelated result."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(sums[..., 1] > 0, np.sqrt(sums[..., 2] / sums[..., 1]), np.nan))


def passes(anatomy: Anatomy) -> float:
    """As many passes over the evaluation text, of a model and of its twins."""
    from armillary.probes.machinery.bench import TOKENS as EVALUATION
    from armillary.probes.machinery.plan import arms_of

    return (arms_of(anatomy) - 1) * 2 * DOCUMENTS * TOKENS / EVALUATION


def sublayer_errors(bench: Bench) -> RotationErrors:
    """Of every attention and feed-forward, on the beginnings of a few documents."""
    anatomy, parts = bench.anatomy, sublayers(bench.anatomy)
    sums = np.zeros((bench.corpus.groups, len(parts), 3))
    turn = rotation(anatomy.d, bench.seed, anatomy.centred).to(anatomy.device)
    stop = None if bench.corpus.whole else TOKENS
    windows = [replace(window, ids=window.ids[:stop]) for window in bench.text.windows[:DOCUMENTS]]
    for batch in bench.batches(windows):
        mask, groups = batch.mask.reshape(-1), bench.groups(batch)[:, None].expand(batch.mask.shape).reshape(-1)
        inside = mask.to(anatomy.device)
        results = _results(anatomy, batch, parts, turn)
        bench.tick(2 * batch.tokens)
        for index, part in enumerate(parts):
            plain, turned = (rows.reshape(-1, anatomy.d)[inside] for rows in results[part.write].chunk(2))
            np.add.at(sums[:, index], groups[mask].numpy(), _terms(plain, turned, turn))
    return RotationErrors(parts, sums)


def _results(anatomy: Anatomy, batch: Batch, parts: Sequence[Sublayer], turn: Tensor) -> dict[str, Tensor]:
    """Each write f(y), and below it f(yR), in float64: one pass of two copies of the text.

    The second copy gets the first one's y, rotated, at every norm; and its writes are replaced by the first one's, so
    that no sublayer hears of what another did to the rotated copy.
    """
    results: dict[str, Tensor] = {}

    def rotate(y: Tensor, x: Tensor | None) -> Tensor:
        first = y.chunk(2)[0]
        return torch.cat((first, (first.double() @ turn).to(y.dtype)))

    def restore(site: str) -> Change:
        def change(write: Tensor, given: Tensor | None) -> Tensor:
            results[site] = write.double()
            return write.chunk(2)[0].repeat(2, 1, 1)

        return change

    with still(anatomy.model), ExitStack() as stack:
        for norm in dict.fromkeys(part.norm for part in parts):
            stack.enter_context(changing(anatomy, norm, rotate))
        for part in parts:
            stack.enter_context(changing(anatomy, part.write, restore(part.write)))
        run(anatomy, batch.ids.repeat(2, 1), batch.mask.repeat(2, 1))
    return results


def _terms(plain: Tensor, turned: Tensor, turn: Tensor) -> Floats:
    """[token, (1, |f|², |f(yR) − f(y)R|²)]."""
    off = (turned - plain @ turn).square().sum(1)
    return np.asarray(torch.stack((torch.ones_like(off), plain.square().sum(1), off), 1).cpu().numpy())


def norm_errors(anatomy: Anatomy, site: str, x: Tensor, document: Tensor, groups: int, seed: int) -> Floats:
    """[document group, (bare norm, with gain and shift), (tokens, |f|², |f(xR) − f(x)R|²)] of one norm."""
    norm = anatomy.norms[site]
    turn = rotation(norm.d, seed, norm.kind == "layernorm")
    gain = norm.gain.double().cpu()
    shift = torch.zeros_like(gain) if norm.shift is None else norm.shift.double().cpu()
    bare = norm.direction(x), norm.direction(x @ turn)
    sums = np.zeros((groups, 2, 3))
    for index, (plain, turned) in enumerate((bare, tuple(z * gain + shift for z in bare))):
        np.add.at(sums[:, index], (document % groups).numpy(), _terms(plain, turned, turn))
    return sums

"""Scores how far every token's state lies from the states of other documents, beside the loss of its prediction."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Batch
from armillary.probes.machinery import MODEL, Floats
from armillary.probes.machinery.bench import Bench
from armillary.probes.stability.errors.error_prediction import HEAD_SCORES, ScoredTokens, ranked
from armillary.probes.stability.errors.head_anomalies import HeadReadings, anomalies
from armillary.probes.stability.manifold_errors import SCORES

# All windows of the default budget; with more, the search for neighbours would take longer than seconds.
TOKENS, DOCUMENTS = 4096, 64
NEIGHBOUR = 10
TWINS, QUICK_TWINS = 5, 2


def sites_of(anatomy: Anatomy) -> tuple[str, ...]:
    """The last norm of the model, and the first norm of its middle block."""
    middle = f"L{anatomy.layers // 2}.ln1"
    norms = list(anatomy.norms)
    return tuple(dict.fromkeys((norms[-1], middle if middle in norms else norms[0])))


def score_tokens(bench: Bench) -> dict[str, ScoredTokens] | None:
    """arm → the tokens of the model and of its untrained twins; None if the model predicts no next token."""
    if not bench.scored:
        return None
    arms = (MODEL, *bench.twins[: QUICK_TWINS if bench.quick else TWINS])
    return {arm: _scored(bench.arm(arm)) for arm in arms}


def _scored(bench: Bench) -> ScoredTokens:
    sites = sites_of(bench.anatomy)
    text = bench.corpus.thinned(TOKENS, DOCUMENTS)
    parts = [_read(bench, batch, sites) for batch in bench.batches(text.windows)]
    y = {site: torch.cat([part[1][site] for part in parts]).double().cpu().numpy() for site in sites}
    columns = {name: torch.cat([part[0][name] for part in parts]).cpu().numpy() for name in parts[0][0]}
    fold = columns["fold"]
    # The mean prediction over the other half estimates how frequent each word is.
    unigram = [np.log(_average(parts, 1 - half) + 1e-12) for half in (0, 1)]
    rarity = {
        name: -np.where(fold == 0, unigram[0][columns[name]], unigram[1][columns[name]])
        for name in ("current", "before", "target")
    }
    scores = {
        (site, name): _crossed(y[site], fold, score)
        for site in sites
        for name, score in zip(SCORES, (mahalanobis, angle_to_mean, neighbour), strict=True)
    }
    heads = {name: torch.cat([part[3][name] for part in parts]).double().cpu().numpy() for name in HEAD_SCORES}
    return ScoredTokens(
        sites,
        scores | anomalies(heads, fold),
        columns["loss"],
        columns["entropy"],
        rarity["current"],
        rarity["before"],
        rarity["target"],
        np.log1p(columns["place"]),
        columns["group"],
        fold,
    )


Read = tuple[dict[str, Tensor], dict[str, Tensor], Tensor, dict[str, Tensor]]


def _read(bench: Bench, batch: Batch, sites: tuple[str, ...]) -> Read:
    """Of every token that has a next one, except first ones: columns [n], y [n, d] per site, the summed predictions,
    and what heads do [n, head]."""
    anatomy, seen = bench.anatomy, dict[str, Tensor]()
    heads = HeadReadings(anatomy)

    def watcher(site: str) -> Watcher:
        return lambda given, value: seen.update({site: value.detach()})

    with still(anatomy.model), watching(anatomy, {s: watcher(s) for s in sites} | heads.watchers()):
        scores = run(anatomy, batch.ids, batch.mask, logits=True).float().log_softmax(-1)
    bench.tick(batch.tokens)
    place = torch.arange(batch.ids.shape[1]).expand(batch.ids.shape)
    rows = (batch.following >= 0) & (place > 0)
    scores, target = scores[rows.to(scores.device)], batch.following[rows]
    likely = scores.exp()
    columns = {
        "loss": -scores.gather(1, target.to(scores.device)[:, None])[:, 0].double().cpu(),
        "entropy": -(likely * scores).sum(1).double().cpu(),
        "current": batch.ids[rows],
        "before": batch.ids.roll(1, 1)[rows],
        "target": target,
        "place": place[rows],
        "group": bench.groups(batch)[:, None].expand(batch.ids.shape)[rows],
        "fold": torch.full((len(target),), batch.fold),
    }
    y = {site: seen[site][rows.to(seen[site].device)] for site in sites}
    return columns, y, likely.double().sum(0).cpu(), heads.rows(rows)


def _average(parts: list[Read], fold: int) -> Floats:
    held_out = [part for part in parts if bool((part[0]["fold"] == fold).any())]
    count = sum(len(part[0]["fold"]) for part in held_out)
    total = sum((part[2] for part in held_out), torch.zeros_like(parts[0][2]))
    return np.asarray(total.numpy() / max(1, count))


def _crossed(y: Floats, fold: Floats, score: Callable[[Floats, Floats], Floats]) -> Floats:
    """Each half scored by a fit on the other, as ranks from 0 to 1 within the half: two fits have two scales."""
    ranks = np.zeros(len(y))
    for half in (0, 1):
        held_out = fold == half
        if held_out.any() and (~held_out).sum() > NEIGHBOUR:
            ranks[held_out] = ranked(score(y[~held_out], y[held_out]))
    return ranks


def mahalanobis(fit: Floats, other: Floats) -> Floats:
    """Distance from the mean in units of the covariance, shrunk towards a sphere (Ledoit and Wolf 2004)."""
    mean = fit.mean(0)
    x = fit - mean
    n, d = x.shape
    covariance = x.T @ x / n
    level = np.trace(covariance) / d
    if not level > 0:
        # States that are all alike: there is one distance, in whatever unit.
        return np.asarray(np.linalg.norm(other - mean, axis=1))
    away = ((covariance - level * np.eye(d)) ** 2).sum()
    noise = ((x**2).sum(1) ** 2).sum() / n**2 - (covariance**2).sum() / n
    share = min(1.0, max(noise / max(away, 1e-300), 1e-6))
    shrunk = (1 - share) * covariance + share * level * np.eye(d)
    white = np.linalg.solve(np.linalg.cholesky(shrunk), (other - mean).T)
    return np.asarray(np.sqrt((white**2).sum(0)))


def angle_to_mean(fit: Floats, other: Floats) -> Floats:
    mean = fit.mean(0)
    along = other @ mean / np.maximum(np.linalg.norm(other, axis=1) * np.linalg.norm(mean), 1e-300)
    return np.asarray(np.arccos(np.clip(along, -1, 1)))


def neighbour(fit: Floats, other: Floats) -> Floats:
    """Distance to the tenth nearest state of the other half."""
    squared = (other**2).sum(1)[:, None] + (fit**2).sum(1)[None] - 2 * other @ fit.T
    return np.asarray(np.sqrt(np.maximum(np.partition(squared, NEIGHBOUR - 1, axis=1)[:, NEIGHBOUR - 1], 0)))

"""What do the statistics of twelve claims come to, derived anew in plain NumPy from their printed definitions?

Written from `armillary claims <id>` and the meanings of tables' columns, not from the probes. Where these leave a
choice, a comment names the one with which the numbers agree. A function takes what a model computed
(`crosscheck_run.py`) and returns columns of a claim's table: one number per site, head, state or layer.
"""

from collections.abc import Callable

import numpy as np
from crosscheck_heads import ROUNDING, Columns, angle, centred, cosine, geodesic, length, specialise, swaps
from crosscheck_run import Array, Run


def _columns(rows: list[dict[str, float]]) -> Columns:
    return {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}


def radius(run: Run) -> Columns:
    """sphere.radius, over all tokens."""
    rows = []
    for site in run.sites:
        r = np.concatenate([length(run.directions(trace.inputs[site])) for trace in run.traces])
        r = r / np.sqrt(run.unembedding.shape[1])
        # A choice, here and below: standard deviations divide by n.
        rows.append({"mean_radius": r.mean(), "sd_radius": r.std(), "min_radius": r.min(), "max_radius": r.max()})
    return _columns(rows)


def concentration(run: Run) -> Columns:
    """sphere.concentration, over all tokens but first ones (these models have no massive activations)."""
    rows = []
    for site in run.sites:
        x = np.concatenate([length(trace.inputs[site][1:]) for trace in run.traces])
        spread = {"cv_length": x.std() / x.mean(), "cv_squared": np.square(x).std() / np.square(x).mean()}
        rows.append({**spread, "mean_length": x.mean()})
    return _columns(rows)


def _covariance(run: Run, site: str, documents: slice = slice(None)) -> Array:
    z = np.concatenate([run.directions(trace.inputs[site][1:]) for trace in run.traces[documents]])
    z = z - z.mean(0)
    return z.T @ z / len(z)


def two_zeros(run: Run) -> Columns:
    """spectrum.two-zeros: how many eigenvalues vanish, and the three smallest, over the median."""
    rows = []
    for site in run.sites:
        covariance, gain = _covariance(run, site), run.affine(site)[0]
        z, y = (np.linalg.eigvalsh(c) for c in (covariance, covariance * np.outer(gain, gain)))
        zeros_z, zeros_y = ((values < 1e-6 * np.median(values)).sum() for values in (z, y))
        smallest, second, third = z[:3] / np.median(z)
        rows.append(
            {"zeros_z": zeros_z, "zeros_y": zeros_y, "smallest": smallest, "second": second, "third": third}
        )  # fmt: skip
    return _columns(rows)


def spill(run: Run) -> Columns:
    """How far rounding may move an eigenvalue: a covariance summed in float32 is off in proportion to its largest."""
    values = [np.linalg.eigvalsh(_covariance(run, site)) for site in run.sites]
    off = np.array([ROUNDING * z.max() / np.median(z) for z in values])
    return dict.fromkeys(("smallest", "second", "third"), off)


def dimension(run: Run) -> Columns:
    """spectrum.dimension: participation ratio after and before the norm, and entropy rank.

    A choice: Σλ² = tr C² is no product of a covariance with itself, which would be too large. It comes from pairs of
    tokens of different documents, or, over all tokens, from the two halves of the documents, and there (Σλ)² as well.
    """
    rows = []
    for site in run.sites:
        before = [trace.inputs[site][1:] for trace in run.traces]
        even, odd = _covariance(run, site, slice(0, None, 2)), _covariance(run, site, slice(1, None, 2))
        share = np.linalg.eigvalsh(_covariance(run, site))
        share = share[share > 1e-12 * share.max()] / share.sum()
        rows.append(
            {
                "participation": _participation([run.directions(x) for x in before]),
                "participation_before": _participation(before),
                "participation_all": np.trace(even) * np.trace(odd) / np.trace(even @ odd),
                "entropy_rank": np.exp(-(share * np.log(share)).sum()),
            }
        )
    return _columns(rows)


def _participation(documents: list[Array]) -> float:
    """(tr C)² over the mean squared product of two tokens of different documents."""
    vectors = np.concatenate(documents)
    vectors = vectors - vectors.mean(0)
    document = np.repeat(np.arange(len(documents)), [len(x) for x in documents])
    products = vectors @ vectors.T
    return np.diag(products).mean() ** 2 / np.square(products[document[:, None] != document]).mean()


def travel(run: Run) -> Columns:
    """words.travel: mean angles of every state to the token's own word, to the next word, and to the state before.

    First and last tokens are left out. A choice: states are compared with each other by their directions.
    """
    columns: dict[str, list[Array]] = {"own": [], "next": [], "angle moved by each sublayer": []}
    for trace in run.traces:
        states = [state[1:-1] for state in run.states(trace)]
        for name, ids in (("own", trace.ids[1:-1]), ("next", trace.ids[2:])):
            columns[name].append(np.stack([angle(run.final(state), run.unembedding[ids]) for state in states]))
        z = run.directions(np.stack(states))
        columns["angle moved by each sublayer"].append(angle(z[:-1], z[1:]))
    return {name: np.concatenate(rows, axis=1).mean(1) for name, rows in columns.items()}


def output(run: Run) -> Columns:
    """words.output: R² of the logits on cosine, length and bias, over the vocabulary."""
    gain, shift = run.affine(run.family.final)
    rows, bias = run.unembedding * gain, run.unembedding @ shift
    rows = centred(rows) if run.family.centred else rows
    z = np.concatenate([run.directions(trace.inputs[run.family.final][1:-1]) for trace in run.traces])
    logits = z @ rows.T + bias
    cos = z @ rows.T / length(rows) / length(z)[:, None]
    parts = [cos, np.broadcast_to(length(rows), cos.shape), np.broadcast_to(bias, cos.shape)]
    return {
        "share": np.array([_r2(logits, part).mean() for part in parts]),
        "same_word": np.array([(part.argmax(-1) == logits.argmax(-1)).mean() for part in parts]),
    }


def _r2(y: Array, x: Array) -> Array:
    """Of y on x along the last axis; 0 where x is constant."""
    y, x = centred(y), centred(x)
    size = np.square(x).sum(-1) * np.square(y).sum(-1)
    return np.where(size > 0, np.square((x * y).sum(-1)) / np.where(size > 0, size, 1), 0)


def drift(run: Run) -> Columns:
    """stability.drift: the angle of z between a token's states in a window and in one that starts later."""
    window = len(run.traces[0].ids)
    half, first = window // 2, window // 2 + window // 8
    # A choice: angles between directions, so that under LayerNorm the mean is taken out.
    states = [run.directions(run.stream(trace))[:, first:] for trace in run.traces]
    columns = {}
    for name, slide in (("angle_one", 1), ("angle_half", half)):
        later = run.read([trace.ids[slide:] for trace in run.traces])
        slid = [run.directions(run.stream(trace))[:, first - slide :] for trace in later]
        columns[name] = np.mean([angle(a, b).mean(1) for a, b in zip(states, slid, strict=True)], axis=0)
    return columns


def _hidden(run: Run, layer: int) -> tuple[Array, Array]:
    """Hidden coordinates before the activation and at the input of W_out, first tokens left out."""
    pre, out = run.path(layer, run.family.pre), run.path(layer, run.family.out)
    before, after = [trace.outputs[pre][1:] for trace in run.traces], [trace.inputs[out][1:] for trace in run.traces]
    return np.concatenate(before), np.concatenate(after)


def discard(run: Run) -> Columns:
    """ffn.discard: coordinates below zero, below 1 % of the peak, and what those below zero carry."""
    rows = []
    for before, after in (_hidden(run, layer) for layer in range(run.layers)):
        square, peak = np.square(after), np.abs(after).max(-1, keepdims=True)
        carried = ((before < 0) * square).sum(-1) / square.sum(-1)
        quiet = np.abs(after) < 0.01 * peak
        rows.append({"below": (before < 0).mean(), "quiet": quiet.mean(), "carried": carried.mean()})
    return _columns(rows)


def crossings(run: Run) -> Columns:
    """By how much the shares may change where rounding decides on which side of its limit a coordinate lies."""
    rows = []
    for before, after in (_hidden(run, layer) for layer in range(run.layers)):
        size, peak = (np.abs(x).max(-1, keepdims=True) for x in (before, after))
        quiet = np.abs(np.abs(after) - 0.01 * peak) < ROUNDING * peak
        rows.append({"below": (np.abs(before) < ROUNDING * size).mean(), "quiet": quiet.mean()})
    return _columns(rows)


def coarse(run: Run) -> Columns:
    """flow.coarse: C(Δ), its mean over the farthest quarter of distances, and the integrated length."""
    z = np.stack([run.directions(run.stream(trace))[:, 1:] for trace in run.traces], axis=1)
    z = z - z.mean(1, keepdims=True)
    tokens = z.shape[2]
    # A choice: the mean product of all pairs over the mean square of all tokens.
    square = np.square(z).sum(-1).mean((1, 2))
    distances = range(1, tokens // 2 + 1)
    products = [(z[:, :, :-apart] * z[:, :, apart:]).sum(-1).mean((1, 2)) for apart in distances]
    correlation = np.stack(products, axis=1) / square[:, None]
    far = len(distances) // 4
    shared = correlation[:, -far:].mean(1)
    beyond = (correlation[:, :-far] - shared[:, None]) / (1 - shared[:, None])
    return {
        "correlation by distance": correlation,
        "neighbour": correlation[:, 0],
        "shared": shared,
        "length": 0.5 + beyond.sum(1),
    }


STATISTICS: dict[str, Callable[[Run], Columns]] = {
    "sphere.radius": radius,
    "sphere.concentration": concentration,
    "spectrum.two-zeros": two_zeros,
    "spectrum.dimension": dimension,
    "attention.cosine": cosine,
    "attention.geodesic": geodesic,
    "words.travel": travel,
    "words.output": output,
    "stability.drift": drift,
    "ffn.discard": discard,
    "heads.specialise": specialise,
    "flow.coarse": coarse,
}
"""What each claim's statistic is."""

SLACK: dict[str, Callable[[Run], Columns]] = {
    "spectrum.two-zeros": spill,
    "attention.geodesic": swaps,
    "ffn.discard": crossings,
}
"""What rounding may add where a number is small beside what it comes from, or jumps: ranks, shares below a limit."""

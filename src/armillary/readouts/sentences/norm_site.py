"""What does one norm do? Lengths before and after on a sentence, its massive tokens, its ellipsoid, its spectrum."""

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy, Norm
from armillary.anatomy.vocabulary import Vocabulary
from armillary.errors import ArmillaryError, nearest
from armillary.flow.capture import run, still, watching
from armillary.flow.glimpse import MASSIVE
from armillary.geometry.clouds.spectrum import eigenvalues, participation_ratio
from armillary.probes.instruments.covariances import COVARIANCES, CovarianceSums
from armillary.probes.machinery import T
from armillary.readouts.atlas import observed, sample_text
from armillary.readouts.head_spectra import Progress
from armillary.readouts.sentence_states import first_window, token_text
from armillary.readouts.trajectory import check, plural
from armillary.results import Column, Quantity, Table
from armillary.results.numbers import number
from armillary.results.sheets.sheet import Sheet

TOP = 8
LEAST, MOST = 1500, 6000
"""Tokens of the built-in text that a spectrum is taken from: as many as the width asks for, within these."""
MASSIVE_COLUMNS = (
    Column("position", "position in the sentence, from 1"),
    Column("token", "the token"),
    Column("dimension", "where its largest coordinate is"),
    Column("coordinate", "the largest coordinate before the norm"),
    Column("times", f"its size over the median size of all coordinates here; over {MASSIVE:,.0f} it is called massive"),
    Column("massive", "is it massive?"),
)


def norm_named(anatomy: Anatomy, site: str) -> Norm:
    if site not in anatomy.norms:
        raise ArmillaryError(f"{site!r} is not a norm of this model; {nearest(site, anatomy.norms)}")
    return anatomy.norms[site]


def norm_lengths(anatomy: Anatomy, site: str, sentence: str) -> Sheet:
    """Every token's length before and after a norm, and the tokens with the largest coordinates."""
    check(sentence)
    norm = norm_named(anatomy, site)
    window, _ = first_window(anatomy, sentence)
    x, y = _seen(anatomy, site, torch.tensor([window.ids]))
    vocabulary = Vocabulary.of(anatomy)
    words = [token_text(vocabulary, token) for token in window.ids]
    before, after = (side.norm(dim=-1).cpu().numpy() for side in (x, y))
    ratio = before.max() / before.min() if before.min() > 0 else float("inf")
    table, massive = _massive(x, words)
    typical = float((norm.gain.double().square().sum() + _power(norm.shift)).sqrt())
    coords = {"token": words}
    quantities = (
        Quantity("length before the norm", "of every token", "length", ("token",), coords, before, logs=("value",)),
        Quantity(
            "length after the norm", "with gain and shift", "length", ("token",), coords, after,
            theory={"√Σ(γ² + β²), a random direction": np.full(len(words), typical)},
        ),
    )  # fmt: skip
    spread = f"{after.max() / after.min():.3g}" if after.min() > 0 else "∞"
    return Sheet(
        name=f"lengths-{site}",
        title=f"At {site} lengths differ by a factor of {number(float(ratio))} before the norm and {spread} after it",
        caption=f"{anatomy.name} · {plural(len(words), 'token')} · {massive} massive",
        tables={"largest coordinates": table},
        quantities=quantities,
    )


def mean_scale(anatomy: Anatomy, site: str, sentence: str) -> float:
    """What a norm multiplies the tokens of a sentence by before gain and shift, in the mean."""
    check(sentence)
    norm = norm_named(anatomy, site)
    window, _ = first_window(anatomy, sentence)
    x, _ = _seen(anatomy, site, torch.tensor([window.ids]))
    return float(torch.rsqrt(norm.power(x) + norm.eps).mean())


def _power(shift: Tensor | None) -> Tensor | float:
    return 0.0 if shift is None else shift.double().square().sum()


def _seen(anatomy: Anatomy, site: str, ids: Tensor) -> tuple[Tensor, Tensor]:
    """What a norm receives and gives on one text [t, d], in float64."""
    rows: list[Tensor] = []

    def see(given: Tensor | None, value: Tensor) -> None:
        assert given is not None
        rows[:] = [given[0].double(), value[0].double()]

    with still(anatomy.model), watching(anatomy, {site: see}):
        run(anatomy, ids)
    return rows[0], rows[1]


def _massive(x: Tensor, words: list[str]) -> tuple[Table, int]:
    """The tokens with the largest coordinates, and how many are massive."""
    size = x.abs()
    median = float(size.median())
    largest = size.max(-1)
    times = (largest.values / median if median > 0 else largest.values * float("nan")).cpu().numpy()
    dimensions = largest.indices.cpu().numpy()
    order = np.argsort(-np.nan_to_num(times), kind="stable")[:TOP]
    rows = [
        (
            int(t) + 1,
            words[t],
            int(dimensions[t]),
            float(x[t, dimensions[t]]),
            float(times[t]),
            bool(times[t] > MASSIVE),
        )
        for t in order
    ]
    return Table(MASSIVE_COLUMNS, tuple(rows)), int((times > MASSIVE).sum())


def covariances(anatomy: Anatomy, progress: Progress) -> tuple[CovarianceSums, int]:
    """Covariances of directions at all norms on the built-in text, and how many tokens it has."""
    budget = int(min(MOST, max(LEAST, 3.5 * anatomy.d)))
    if anatomy.tokenizer is None:
        raise ArmillaryError(
            f"{anatomy.name} came without a tokenizer, so no text can be read, and there is no spectrum."
        )
    corpus = sample_text(anatomy, budget)
    return observed(anatomy, corpus, COVARIANCES, progress), corpus.tokens


def norm_shape(anatomy: Anatomy, site: str, sums: CovarianceSums, tokens: int) -> Sheet:
    """The ellipsoid's semi-axes |γ|, and the eigenvalues of directions with those that vanish set to zero."""
    norm = norm_named(anatomy, site)
    gains = np.sort(norm.gain.double().abs().cpu().numpy())[::-1].copy()
    first, second = sums.halves(site)
    values = eigenvalues((first + second).covariance()).cpu().numpy()[::-1].copy()
    vanishing = values < T.zero_eigenvalue * float(np.median(values))
    long, short = np.quantile(gains, [0.95, 0.05])
    warp = f"{long / short:.3g}" if short > 0 else "∞"
    index = [float(i) for i in range(1, norm.d + 1)]
    shift = 0.0 if norm.shift is None else float(norm.shift.double().norm())
    count = int(vanishing.sum())
    notes = [f"Eigenvalues below {T.zero_eigenvalue:g} of their median vanish; they are marked at the floor."]
    if tokens < T.tokens_per_axis * norm.d:
        notes.append(f"{tokens:,} tokens are few for {norm.d} axes: fewer than {T.tokens_per_axis:g} each.")
    return Sheet(
        name=f"norm-{site}",
        title=f"At {site} long semi-axes are {warp} times the short ones; {count} of {norm.d} eigenvalues vanish",
        caption=f"{anatomy.name} · {norm.kind} · centre moved by {number(shift)} · built-in text, {tokens:,} tokens",
        tables={"in numbers": _numbers(gains, values, count)},
        quantities=(
            Quantity("semi-axes of the ellipsoid", "|γ|, largest first; 0 is a flat axis", "|γ|", ("axis",),
                     {"axis": index}, gains, logs=("value",)),
            Quantity("spectrum of directions", "eigenvalues of their covariance, largest first", "variance",
                     ("eigenvalue index",), {"eigenvalue index": index}, np.where(vanishing, 0.0, values),
                     logs=("value",)),
        ),
        notes=tuple(notes),
    )  # fmt: skip


def _numbers(gains: np.ndarray, values: np.ndarray, vanishing: int) -> Table:
    rows = [
        ("largest |γ|", float(gains[0])),
        ("median |γ|", float(np.median(gains))),
        ("smallest |γ|", float(gains[-1])),
        ("participation ratio of directions", participation_ratio(values)),
        ("eigenvalues that vanish", vanishing),
    ]
    return Table((Column("what", "of the norm"), Column("value", "its value")), tuple(rows))

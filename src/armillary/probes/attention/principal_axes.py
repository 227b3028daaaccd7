"""What have W_QK's singular vectors to do with the data?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.probes.attention.weights import LayerHeads, heads
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Flags, Floats
from armillary.probes.machinery.parallel import over_sites
from armillary.probes.machinery.per_head import head_map, head_table, name_heads
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Control, Finding, Statistic, Verdict

if TYPE_CHECKING:
    from torch import Tensor

RANK = 8
NULLS = 32
BLOCKS = 8
SIDES = ("query", "key")
COLUMNS = (
    Column("head", "head"),
    Column("query", "overlap of the query side with the activations' axes: mean cos² of the principal angles"),
    Column("key", "the same of the key side"),
    Column("null", "the larger side's mean for Gaussian heads behind the same norm"),
    Column("p", "chance that such a head overlaps as much, normal approximation on the larger side"),
    Column("leans", "significant over all heads and at least twice the null"),
    Column("query_words", "overlap of the query side with the axes of the token embeddings"),
    Column("key_words", "the same of the key side"),
)


@dataclass(frozen=True)
class Axes:
    """Principal angles between leading singular subspaces and principal axes."""

    claim: ClassVar[Claim] = Claim(
        id="qk.axes",
        chapter="B",
        statement="The leading singular vectors of W_QK lie along the principal axes of the data.",
        source="S0 R",
        definition=(
            f"Per head and side, the mean cos² of the principal angles between the {RANK} leading singular vectors of W_QK "
            f"(Δ = 0) and the {RANK} principal axes of the directions at the norm that the head reads; and of the token "
            "embeddings sent through the same norm. The statistic is the larger side's overlap over that of random heads, in "
            "the median head; its interval is a jackknife over eight groups of documents."
        ),
        control="Gaussian W_Q and W_K behind the same gain and centring (a gain alone favours axes); random initialisation",
        rule=(
            f"A head leans to the data's axes when its overlap is significant (Benjamini–Hochberg, {T.false_discovery:.0%}) and "
            f"at least {T.axes_factor:.0f} times the null. Supported: ≥ {T.heads_many:.0%} of heads do, and the median head "
            f"shares {T.axes_share:.0%} of its subspace. Refuted: ≤ {T.sites_few:.0%} of heads. Qualified otherwise."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("spectra", "sample")

    def conclude(self, evidence: Evidence) -> Finding:
        found = _measured(evidence, MODEL)
        best = found["data"].max(0)
        mean, spread = found["null"]
        ratio = best / mean
        p = _chance(best, mean, spread)
        leaning = _significant(p) & (ratio >= T.axes_factor)
        value = float(np.median(ratio))
        error = _jackknife(evidence, found)
        null = np.broadcast_to(mean, p.shape)
        verdict = _verdict(leaning, float(np.median(best)))
        twin = _measured(evidence, RANDOM) if RANDOM in evidence.records else None
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic(
                "overlap with the data's axes over a random head's, median head", value, value - error, value + error
            ),
            n=leaning.size,
            controls=_controls(twin),
            reading=_reading(found, ratio, leaning),
            headline=f"W_QK's leading vectors overlap the data's axes {value:.2g} times as much as a random head's",
            table=head_table(evidence, COLUMNS, (*found["data"], null, p, leaning, *found["words"])),
            quantities=(
                head_map(
                    "overlap with the data's axes over a random head's",
                    f"{RANK} leading singular vectors of W_QK, larger side, against {RANK} principal axes",
                    "times the null",
                    ratio,
                    {} if twin is None else {RANDOM: twin["data"].max(0) / twin["null"][0]},
                    log=True,
                ),
            ),
        )


def _measured(evidence: Evidence, arm: str) -> dict[str, Any]:
    """Overlaps [side, layer, head] with the data's and the words' axes, and mean and spread of the null [layer, 1]."""
    layers = heads(evidence, arm)
    anatomy = evidence.twin if arm == RANDOM else evidence.anatomy
    assert anatomy is not None

    def one(name: str) -> dict[str, Any]:
        return _layer(evidence, arm, layers[int(name)], int(name))

    made = over_sites([str(i) for i in range(len(layers))], one)
    parts = list(made.values())
    return {
        "data": np.stack([part["data"] for part in parts], 1),
        "words": np.stack([part["words"] for part in parts], 1),
        "null": tuple(np.array([part["null"][i] for part in parts])[:, None] for i in (0, 1)),
        "layers": layers,
    }


def _layer(evidence: Evidence, arm: str, layer: LayerHeads, index: int) -> dict[str, Any]:
    anatomy = evidence.twin if arm == RANDOM else evidence.anatomy
    assert anatomy is not None
    axes = _principal(_covariance(evidence, arm, index))
    words = _principal(_word_covariance(anatomy, index))
    rank = axes.shape[1]
    sides = [side[..., :rank] for side in (layer.qk.left, layer.qk.right)]
    # NumPy draws them: torch with the survey's seed would repeat the numbers that initialised the random twin.
    generator = np.random.default_rng([evidence.seed, index])
    drawn = _overlaps(_random_heads(layer, generator)[..., :rank], axes)
    return {
        "data": np.stack([_overlaps(side, axes) for side in sides]),
        "words": np.stack([_overlaps(side, words) for side in sides]),
        "null": (float(np.mean(drawn)), float(np.std(drawn, ddof=1))),
    }


def _overlaps(sides: "Tensor", axes: "Tensor") -> Floats:
    """Of every head's subspace [h, d, r] with one set of axes [d, s]."""
    from armillary.geometry.subspace import overlap

    return np.asarray(overlap(sides.cpu(), axes.expand(len(sides), -1, -1)).numpy())


def _site(evidence: Evidence, index: int) -> str:
    from armillary.anatomy.folded import reading_norm

    # Where no norm stands before the first layer, the next one that does is the nearest thing to its data.
    return reading_norm(evidence.anatomy, index)[0] or evidence.sites[0]


def _covariance(evidence: Evidence, arm: str, index: int) -> "Tensor":
    first, second = evidence.records[arm][_site(evidence, index)].spectra or (None, None)
    assert first is not None and second is not None
    return (first + second).covariance()


def _word_covariance(anatomy: Any, index: int) -> "Tensor":
    import torch

    from armillary.anatomy.vocabulary import Vocabulary

    # Five thousand words, evenly spread over the vocabulary, show its axes; their texts do not matter.
    some = torch.arange(0, anatomy.vocabulary, max(1, anatomy.vocabulary // 5000), device=anatomy.device)
    z = Vocabulary(anatomy, ("",) * anatomy.vocabulary, frozenset()).directions(index, some).values
    z = z - z.mean(0)
    return z.T @ z / len(z)


def _principal(covariance: "Tensor") -> "Tensor":
    import torch

    rank = min(RANK, covariance.shape[0] - 1)
    return torch.linalg.eigh(covariance.double().cpu()).eigenvectors[:, -rank:]


def _random_heads(layer: LayerHeads, generator: np.random.Generator) -> "Tensor":
    """Leading vectors [NULLS, d, r] of heads with Gaussian weights behind this layer's gain and centring."""
    import torch

    from armillary.geometry.factored import Factored

    folded = layer.folded
    _, d, k = folded.A_Q.shape
    norm = folded.norm
    made = []
    for _ in range(2):
        side = torch.from_numpy(generator.standard_normal((NULLS, d, k)))
        if norm is not None:
            side = side * norm.gain.double().cpu()[:, None]
            side = side - side.mean(1, keepdim=True) if norm.kind == "layernorm" else side
        made.append(side)
    return Factored(*made).svd().left


def _chance(values: Floats, mean: Floats, spread: Floats) -> Floats:
    from scipy.stats import norm

    # The larger of two sides: twice the chance of one.
    return np.asarray(np.minimum(1.0, 2 * norm.sf((values - mean) / np.maximum(spread, 1e-12))))


def _significant(p: Floats) -> Flags:
    from armillary.geometry.resample import benjamini_hochberg

    return benjamini_hochberg(p.reshape(-1), T.false_discovery).reshape(p.shape)


def _jackknife(evidence: Evidence, found: dict[str, Any]) -> float:
    """1.96 standard errors of the median ratio: the axes of the sampled tokens, without each group of documents in turn."""
    from armillary.geometry.resample import jackknife_se
    from armillary.probes.sphere.site_sample import sampled

    layers = found["layers"]
    clouds = {str(i): sampled(evidence.records[MODEL][_site(evidence, i)]) for i in range(len(layers))}
    groups = [np.unique(cloud.document % BLOCKS) for cloud in clouds.values()]
    if min(map(len, groups)) < 2 or min(map(len, clouds.values())) < 4 * RANK:
        return float("nan")

    def without_each(name: str) -> Floats:
        """[group, head]: the layer's ratios."""
        index, cloud = int(name), clouds[name]
        sides = (layers[index].qk.left, layers[index].qk.right)
        made = []
        for group in np.unique(cloud.document % BLOCKS):
            z = cloud.z[cloud.document % BLOCKS != group]
            axes = _leading(z - z.mean(0), evidence.seed)
            made.append(np.max([_overlaps(side[..., : axes.shape[1]], axes) for side in sides], axis=0))
        return np.stack(made) / found["null"][0][index]

    parts = over_sites(list(clouds), without_each)
    medians = np.median(np.concatenate(list(parts.values()), 1), axis=1)
    return 1.96 * float(jackknife_se(medians))


def _leading(z: "Tensor", seed: int) -> "Tensor":
    """Leading right singular vectors by subspace iteration: a jackknife needs no more digits than it can tell."""
    import torch

    rank = min(RANK, z.shape[1] - 1, len(z) - 1)
    basis = torch.randn(z.shape[1], 2 * rank, generator=torch.Generator().manual_seed(seed), dtype=z.dtype)
    for _ in range(8):
        basis = torch.linalg.qr(z.T @ (z @ basis)).Q
    return basis @ torch.linalg.svd(z @ basis, full_matrices=False).Vh.T[:, :rank]


def _verdict(leaning: Flags, shared: float) -> Verdict:
    if leaning.mean() <= T.sites_few:
        return "refuted"
    return "supported" if leaning.mean() >= T.heads_many and shared >= T.axes_share else "qualified"


def _controls(twin: dict[str, Any] | None) -> tuple[Control, ...]:
    made = [Control("Gaussian heads", 1.0, 1.0, 1.0)]
    if twin is not None:
        value = float(np.median(twin["data"].max(0) / twin["null"][0]))
        made.append(Control(RANDOM, value, value, value))
    return tuple(made)


def _reading(found: dict[str, Any], ratio: Floats, leaning: Flags) -> str:
    words = np.median(found["words"].max(0) / found["null"][0])
    query, key = (float(np.median(side)) for side in found["data"])
    few = "" if leaning.mean() >= T.heads_many or not leaning.any() else f" ({name_heads(leaning)})"
    return (
        f"{int(leaning.sum())} of {leaning.size} heads lean to the data's main axes{few}: the overlap is {query:.2f} on the query "
        f"side and {key:.2f} on the key side, of 1, {np.median(ratio):.2g} times a random head's; with the axes of the bare "
        f"embeddings {words:.2g} times."
    )

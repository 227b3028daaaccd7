"""What does a model's geometry look like right now, in a few numbers?

One look, on one text, through the survey's own pass and measures. The model, its modes and the random state are
afterwards what they were.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from armillary.anatomy import Anatomy
from armillary.anatomy.anatomy import Attention
from armillary.anatomy.read import read
from armillary.errors import ModelError, TextError
from armillary.flow.capture import run, still, watching, watching_patterns
from armillary.flow.glimpse import FIRST, KINDS, ORDINARY
from armillary.flow.tokens import Corpus
from armillary.geometry.spectrum import eigenvalues, entropy_rank
from armillary.probes.instruments.norm_record import NormRecord
from armillary.probes.machinery.parallel import over_sites
from armillary.probes.machinery.shared_pass import observe

# Eager attention writes out every t × t pattern: a few short rows keep a look cheap, and every snapshot says how many.
PATTERN_ROWS, PATTERN_WIDTH = 4, 128
DEAD = 0.01


class DivergedError(ModelError):
    """A model whose stream holds NaN or infinity: there is no geometry to look at."""


@dataclass(frozen=True)
class Snapshot:
    """The geometry of one model on one text. NaN where a number is undefined.

    length             mean ‖x‖ over ordinary tokens, per norm site
    length_first       the same over first positions
    effective_rank     exp of the entropy of the eigenvalues of z's covariance, per norm site; 0 where nothing spreads.
                       Few tokens pull it down, alike at every look: compare looks at the same text only
    attention_entropy  mean over queries of entropy / ln(visible keys), per head; 1 is uniform
    dead_units         share of feed-forward units that never reach 1 % of what the median unit reaches, per layer
    """

    length: Mapping[str, float]
    length_first: Mapping[str, float]
    effective_rank: Mapping[str, float]
    attention_entropy: Mapping[str, float]
    dead_units: Mapping[str, float]
    tokens: int
    pattern_rows: int
    pattern_width: int
    """Attention was read on so many rows, so many tokens of each."""

    def scalars(self) -> dict[str, float]:
        """Flat names: `length/L3.ln1`, `attention_entropy/L5H9`, `dead_units/L3.mlp_post`."""
        groups = [(name, value) for name, value in vars(self).items() if isinstance(value, Mapping)]
        return {f"{name}/{place}": number for name, group in groups for place, number in group.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and numbers, for JSON."""
        return {name: plain(value) for name, value in vars(self).items()}


def snapshot(model: nn.Module, corpus: Corpus) -> Snapshot:
    """Look once. Runs in evaluation mode without gradients; everything is afterwards as it was, bit for bit."""
    # Takes no anatomy: Gemma's gain is a sum made at reading, and in one read earlier would be that of an earlier step.
    anatomy = read(model)
    check_rows(corpus)
    _check_fits(corpus, anatomy)
    ids = _pattern_ids(corpus)
    devices = [anatomy.device] if anatomy.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.autocast(anatomy.device.type, enabled=False), still(model):
        entropy = _attention_entropy(anatomy, ids)
        records, dead = _observe(anatomy, corpus)
    return Snapshot(
        length={site: _mean_length(record, ORDINARY) for site, record in records.items()},
        length_first={site: _mean_length(record, FIRST) for site, record in records.items()},
        effective_rank=over_sites(list(records), lambda site: _effective_rank(records[site])),
        attention_entropy=entropy,
        dead_units=dead,
        tokens=corpus.tokens,
        pattern_rows=ids.shape[0],
        pattern_width=ids.shape[1],
    )


def check_rows(corpus: Corpus) -> None:
    """Refuse a text too short to look at, whatever the model."""
    if max((len(window.ids) for window in corpus.windows), default=0) < 2:
        raise TextError("the text has no row of two tokens, and first positions do not count; give longer rows.")


def _check_fits(corpus: Corpus, anatomy: Anatomy) -> None:
    longest = max(len(window.ids) for window in corpus.windows)
    largest = max(max(window.ids, default=0) for window in corpus.windows)
    if longest > anatomy.context or largest >= anatomy.vocabulary:
        raise TextError(
            f"the text has rows of up to {longest} tokens and ids up to {largest}; this model reads {anatomy.context} "
            f"tokens and knows {anatomy.vocabulary} ids. Give shorter rows, made by the model's own tokenizer."
        )


def plain(value: Any) -> Any:
    """None for NaN and infinities, which JSON does not know."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _observe(anatomy: Anatomy, corpus: Corpus) -> tuple[dict[str, NormRecord], dict[str, float]]:
    """The survey's pass, with a look at every feed-forward unit on the way."""
    masks = deque(batch.mask.reshape(-1) for batch in corpus.batches())
    peaks: dict[str, Tensor] = {}

    def watcher(site: str) -> Callable[[Tensor | None, Tensor], None]:
        def watch(x: Tensor | None, y: Tensor) -> None:
            assert x is not None, "a projection takes a tensor"
            # OPT hands its feed-forward rows already flattened.
            peak = x.reshape(-1, x.shape[-1])[masks[0].to(x.device)].abs().amax(0)
            peaks[site] = torch.maximum(peaks[site], peak) if site in peaks else peak

        return watch

    def turn(tokens: int) -> None:
        masks.popleft()

    watchers = {f"L{i}.mlp_post": watcher(f"L{i}.mlp_post") for i in range(anatomy.layers)}
    with watching(anatomy, watchers):
        records = observe(anatomy, corpus, ("lengths", "spectra"), turn)
    return records, {site: _dead_share(peak.cpu().double()) for site, peak in peaks.items()}


def _dead_share(peaks: Tensor) -> float:
    # Where most units are dead the median is 0 and nothing lies below it.
    return float(((peaks < DEAD * peaks.median()) | (peaks == 0)).double().mean())


def _mean_length(record: NormRecord, kind: int) -> float:
    assert record.lengths is not None
    column = record.lengths.sum[:, record.lengths.names.index("length")]
    total, count = (part.view(len(KINDS), -1).sum(1)[kind] for part in (column, record.lengths.count))
    return float(total / count)


def _effective_rank(record: NormRecord) -> float:
    assert record.spectra is not None
    values = eigenvalues((record.spectra[0] + record.spectra[1]).covariance()).values
    return entropy_rank(values) if float(values.sum()) > 0 else 0.0


def _pattern_ids(corpus: Corpus) -> Tensor:
    """The longest few rows, cut to one width: no padding, so that every query's visible keys are known."""
    longest = sorted(corpus.windows, key=lambda window: -len(window.ids))[:PATTERN_ROWS]
    rows = [window.ids for window in longest if len(window.ids) > 1]
    width = min(PATTERN_WIDTH, *map(len, rows))
    return torch.tensor([row[:width] for row in rows])


def _attention_entropy(anatomy: Anatomy, ids: Tensor) -> dict[str, float]:
    """Every head's entropy. Each pattern is reduced where it arises and never kept."""
    visible = [_visible(block.attention, anatomy.causal, ids.shape[1]) for block in anatomy.blocks]
    found: dict[str, float] = {}

    def watch(layer: int, pattern: Tensor) -> None:
        entropy = normalised_entropy(pattern.cpu(), visible[layer])
        found.update({f"L{layer}H{head}": value for head, value in enumerate(entropy.tolist())})

    with watching_patterns(anatomy, watch):
        last = run(anatomy, ids)
    if not bool(last.isfinite().all()):
        raise DivergedError("the stream holds NaN or infinity: training has diverged; begin again at a lower rate.")
    return found


def normalised_entropy(pattern: Tensor, visible: Tensor) -> Tensor:
    """Mean entropy of attention [b, h, t, t] over ln(visible keys [t]), per head; queries with one key are left out.

    >>> normalised_entropy(torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]]), torch.tensor([1, 2]))
    tensor([1.], dtype=torch.float64)
    """
    entropy = torch.special.entr(pattern.double()).sum(-1)[..., visible > 1]
    return (entropy / visible[visible > 1].double().log()).mean((0, 2))


def _visible(attention: Attention, causal: bool, width: int) -> Tensor:
    """How many keys each query may look at. Counted, not read off a pattern: a sharp softmax underflows to 0."""
    offset = torch.arange(width)[:, None] - torch.arange(width)
    seen = (offset >= 0) if causal else torch.ones_like(offset, dtype=torch.bool)
    return (seen if attention.window is None else seen & (offset < attention.window)).sum(1)

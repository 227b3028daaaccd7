"""What does a model's geometry look like right now, in a few numbers?

One look, on one text, through the survey's own pass and measures. The model, its modes and the random state are
afterwards what they were.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.errors import ModelError, TextError
from armillary.flow.capture import still
from armillary.flow.glimpse import FIRST, ORDINARY, Tokens
from armillary.flow.tokens import Corpus
from armillary.geometry.clouds.spectrum import eigenvalues, entropy_rank
from armillary.measures import Largest, Moments, Named, State
from armillary.probes.instruments.covariances import COVARIANCES
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.instruments.patterns import Patterns, PatternSums
from armillary.probes.machinery.instrument import MODEL, View
from armillary.probes.machinery.intervals import mean
from armillary.probes.machinery.processes.threads import over_sites
from armillary.probes.machinery.shared_pass import observe
from armillary.probes.machinery.tables import head_names

# Eager attention writes out every t × t pattern: a few short rows keep a look cheap, and every snapshot says how many.
PATTERN_ROWS, PATTERN_WIDTH = 4, 128
DEAD = 0.01


class DivergedError(ModelError):
    """The model's stream contains NaN or infinity, so there is no geometry to measure."""


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
    text = _pattern_text(corpus)
    patterns = Patterns(first_query=1 if anatomy.causal else 0, compared=0)
    devices = [anatomy.device] if anatomy.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.autocast(anatomy.device.type, enabled=False), still(model):
        seen: PatternSums = observe(anatomy, text, [patterns])[patterns]
        if not bool(seen.sums.sum.isfinite().all()):
            raise DivergedError("the stream contains NaN or infinity: training has diverged; use a lower rate.")
        entropy = mean(seen.of("entropy").sum(0))
        states = observe(anatomy, corpus, (LENGTHS, COVARIANCES, PEAKS))
    lengths, covariances, peaks = states[LENGTHS], states[COVARIANCES], states[PEAKS]
    sites = list(anatomy.norms)
    return Snapshot(
        length=dict(zip(sites, mean(lengths.sums("length", [ORDINARY]).sum(1)).tolist(), strict=True)),
        length_first=dict(zip(sites, mean(lengths.sums("length", [FIRST]).sum(1)).tolist(), strict=True)),
        effective_rank=over_sites(sites, lambda site: _effective_rank(*covariances.halves(site))),
        attention_entropy=dict(zip(head_names(*entropy.shape), entropy.ravel().tolist(), strict=True)),
        dead_units={site: _dead_share(peak.values.cpu()) for site, peak in peaks.peaks.items()},
        tokens=corpus.tokens,
        pattern_rows=len(text.windows),
        pattern_width=len(text.windows[0].ids),
    )


@dataclass
class UnitPeaks(State):
    """Per layer, the largest magnitude of every feed-forward unit."""

    peaks: "Named[Largest]"


@dataclass(frozen=True)
class Peaks:
    """The instrument that finds dead units."""

    name: str = "peaks"
    arms: tuple[str, ...] = (MODEL,)
    overwrites: bool = False

    def start(self, anatomy: Anatomy, corpus: Corpus, seed: int) -> "PeakWatch":
        return PeakWatch(anatomy)

    def count(self, state: UnitPeaks) -> tuple[int, str]:
        return len(state.peaks), "layers"

    def bytes(self, anatomy: Anatomy) -> int:
        return 0


class PeakWatch:
    def __init__(self, anatomy: Anatomy) -> None:
        self.sites = [f"L{layer}.mlp_post" for layer in range(anatomy.layers)]
        self.state = UnitPeaks(Named.of(self.sites, lambda: Largest(anatomy.m)))

    def begin(self, tokens: Tokens) -> None:
        self._rows = tokens.rows

    def see(self, site: str, view: View) -> None:
        rows = view.value.flatten(0, 1).index_select(0, self._rows)
        self.state.peaks[site].include(rows.abs().amax(0))

    def end(self) -> None:
        pass


PEAKS = Peaks()


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


def _dead_share(peaks: Tensor) -> float:
    # Where most units are dead the median is 0 and nothing lies below it.
    return float(((peaks < DEAD * peaks.median()) | (peaks == 0)).double().mean())


def _effective_rank(first: Moments, second: Moments) -> float:
    values = eigenvalues((first + second).covariance())
    return entropy_rank(values) if float(values.sum()) > 0 else 0.0


def _pattern_text(corpus: Corpus) -> Corpus:
    """The longest few rows, cut to one width: no padding, so that every query's visible keys are known."""
    longest = sorted(corpus.windows, key=lambda window: -len(window.ids))[:PATTERN_ROWS]
    rows = [window for window in longest if len(window.ids) > 1]
    width = min(PATTERN_WIDTH, *(len(window.ids) for window in rows))
    return replace(corpus, windows=tuple(replace(w, ids=w.ids[:width], suffix=0) for w in rows))

"""Do the states of a word form clusters by sense? States of sentences, and how often the same sense is the nearer one.

Of three sentences with one word, two have the same sense. By chance the state in the first is nearer to that of its own
sense in half of the cases, whatever the shape of the clusters, so nothing has to be fitted.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.edits import Edit, Silence, edited
from armillary.edits.edit import changing
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.tokens import Batch, Window
from armillary.probes.machinery import MODEL, SHUFFLED, Floats
from armillary.probes.machinery.bench import Bench
from armillary.probes.words.senses.homographs import SenseSentence, readable, shuffled, words_of

OFF, NEAR = "attention off", "two words before it alone"
# Cosines of float32 states that differ by less are equal.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class SenseScores:
    """How often the nearer of two sentences is the one of the same sense."""

    words: tuple[str, ...]
    arms: Mapping[str, Floats]
    """Arm → [word, site]; every arm but the model at the same sites."""
    sentences: int


def sense_scores(bench: Bench, sites: Sequence[str]) -> SenseScores:
    """Scores of every arm at these norm sites, all on the same sentences: every second one where it should be quick.
    No words where the tokenizer shows none."""
    sentences = readable(bench.anatomy, bench.corpus)[:: 2 if bench.quick else 1]
    if not sentences:
        return SenseScores((), {}, 0)
    rng = np.random.default_rng([bench.seed, 71])
    windows, at = _as_written(sentences)
    arms = {
        MODEL: scores(word_states(bench, sites, windows, at), sentences),
        SHUFFLED: scores(word_states(bench, sites, [shuffled(s, rng) for s in sentences], at), sentences),
        NEAR: scores(word_states(bench, sites, *_near(sentences)), sentences),
        OFF: scores(_off(bench, sites, sentences), sentences),
    }
    for arm in bench.twins:
        arms[arm] = scores(word_states(bench.arm(arm), sites, windows, at), sentences)
    return SenseScores(tuple(words_of(sentences)), arms, len(sentences))


def word_states(
    bench: Bench, sites: Sequence[str], windows: Sequence[Window], at: Sequence[tuple[int, int]], *edits: Edit
) -> Tensor:
    """[place, site, d]: unit vectors of z at these places, each the number of a window and a position in it."""
    number = {id(window): i for i, window in enumerate(windows)}
    states = torch.zeros(len(at), len(sites), bench.anatomy.d)
    for batch in bench.batches(windows):
        row = {number[id(window)]: i for i, window in enumerate(batch.windows)}
        chosen = [i for i, (window, _) in enumerate(at) if window in row]
        places = [(row[at[i][0]], at[i][1]) for i in chosen]
        with still(bench.anatomy.model), edited(bench.anatomy, *edits):
            states[chosen] = _see(bench.anatomy, batch, sites, places)
        bench.tick(batch.tokens)
    return states


def _see(anatomy: Anatomy, batch: Batch, sites: Sequence[str], at: Sequence[tuple[int, int]]) -> Tensor:
    """[place, site, d] of one batch."""
    states: dict[str, Tensor] = {}
    rows, places = torch.tensor(at, device=anatomy.device).T

    def watcher(site: str) -> Watcher:
        def watch(given: Tensor | None, value: Tensor) -> None:
            assert given is not None, "a norm takes a tensor"
            z = anatomy.norms[site].direction(given.reshape(*batch.ids.shape, -1)[rows, places])
            states[site] = torch.nn.functional.normalize(z.float(), dim=-1).cpu()

        return watch

    with watching(anatomy, {site: watcher(site) for site in sites}):
        run(anatomy, batch.ids, batch.mask)
    return torch.stack([states[site] for site in sites], 1)


def _as_written(sentences: Sequence[SenseSentence]) -> tuple[list[Window], list[tuple[int, int]]]:
    windows = [sentence.window for sentence in sentences]
    return windows, [(i, sentence.place) for i, sentence in enumerate(sentences)]


def _near(sentences: Sequence[SenseSentence]) -> tuple[list[Window], list[tuple[int, int]]]:
    """Windows without what stands more than two tokens before the word, and where the word is now."""
    windows, at = [], []
    for number, sentence in enumerate(sentences):
        window, begin = sentence.window, max(sentence.window.prefix, sentence.place - 2)
        windows.append(replace(window, ids=(*window.ids[: window.prefix], *window.ids[begin:])))
        at.append((number, window.prefix + sentence.place - begin))
    return windows, at


def _off(bench: Bench, sites: Sequence[str], sentences: Sequence[SenseSentence]) -> Tensor:
    """With attention off a state depends on its own token and place alone: one window of each token repeated is read,
    at all places where the token stands."""
    tokens = [sentence.window.ids[sentence.place] for sentence in sentences]
    different = list(dict.fromkeys(tokens))
    before = sentences[0].window.ids[: sentences[0].window.prefix]
    length = max(sentence.place for sentence in sentences) + 1 - len(before)
    windows = [Window(0, (*before, *[token] * length), len(before)) for token in different]
    at = [(different.index(token), sentence.place) for token, sentence in zip(tokens, sentences, strict=True)]
    return word_states(bench, sites, windows, at, *silence(bench.anatomy))


def silence(anatomy: Anatomy) -> tuple[Edit, ...]:
    """All heads of all layers give nothing; where mixers are not attention, they write nothing."""
    if "heads" in anatomy.opaque:
        return tuple(Mute(layer) for layer in range(anatomy.layers))
    return tuple(Silence(layer, tuple(range(anatomy.n_heads))) for layer in range(anatomy.layers))


@dataclass(frozen=True)
class Mute:
    """Set what the mixer of layer `layer` writes to zero."""

    layer: int
    example: ClassVar[str] = "Mute(layer=3)"

    @property
    def unchanged(self) -> int:
        return self.layer

    def on(self, anatomy: Anatomy) -> AbstractContextManager[None]:
        return changing(anatomy, f"L{self.layer}.attn_out", lambda write, given: torch.zeros_like(write))


def scores(states: Tensor, sentences: Sequence[SenseSentence]) -> Floats:
    """[word, site]: how often a sentence of the same sense is nearer than one of the other; ties count half."""
    result = []
    for word in words_of(sentences):
        chosen = [i for i, sentence in enumerate(sentences) if sentence.listed.word == word]
        vectors = states[chosen].transpose(0, 1)
        result.append(triplets(vectors @ vectors.mT, torch.tensor([sentences[i].listed.sense for i in chosen])))
    return torch.stack(result).double().numpy()


def triplets(cosines: Tensor, sense: Tensor) -> Tensor:
    """[site] from cosines [site, sentence, sentence]: the share of triplets in which the same sense is nearer.

    >>> triplets(torch.tensor([[[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]]]), torch.tensor([0, 0, 1]))
    tensor([1.])
    """
    same = (sense[:, None] == sense) & ~torch.eye(len(sense), dtype=torch.bool)
    triplet = (same[:, :, None] & (sense[:, None] != sense)[:, None]).float()
    gap = cosines[..., None] - cosines[:, :, None]
    nearer = (gap > ROUNDING).float() + (gap.abs() <= ROUNDING).float() / 2
    # Each sentence counts alike, however many of either sense there are.
    each, count = (nearer * triplet).sum((2, 3)), triplet.sum((1, 2))
    return (each / count.clamp_min(1)).sum(1) / (count > 0).sum()

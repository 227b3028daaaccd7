"""The states of one sentence in one forward pass, their angles, and the words that they read as.

Every state is moved into the space in which the model compares it with words: after the final norm, γ⊙z + β, where
words are the rows of the unembedding. States of a model without a final norm (norms after each write) are used as they
are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy.loading.quiet import quiet
from armillary.anatomy.vocabulary import _BYTES, Vocabulary
from armillary.errors import ModelError, TextError
from armillary.flow.capture import run, still, watching
from armillary.flow.documents import Documents
from armillary.flow.tokens import Window, encode
from armillary.geometry.readout import top_tokens
from armillary.geometry.sphere import angle
from armillary.probes.instruments.words import states as states_of
from armillary.probes.words.lens import logits, reads
from armillary.results.sheets.trajectory import Floats, Reading

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

Readings = tuple[tuple[tuple[Reading, ...], ...], ...]
# Logits in memory at once: 64 MB of float32.
_LOGITS = 1 << 24


@dataclass(frozen=True, eq=False)
class _Lens:
    """What the drawn states read as, and the model's prediction after the last word (None if not asked for)."""

    readings: Readings
    probability: Floats
    prediction: int | None


def first_window(anatomy: "Anatomy", sentence: str) -> tuple[Window, int]:
    """The first window of the sentence, and the number of tokens in all windows."""
    if anatomy.tokenizer is None:
        raise TextError(
            f"{anatomy.name} came without a tokenizer, so a sentence cannot be read; pass tokenizer=… (Python) or a "
            "folder that contains tokenizer.json."
        )
    source = Documents("the sentence", (sentence,), ordered=True)
    with quiet():
        windows = encode(source, anatomy.tokenizer, anatomy.context, budget=1 << 30).windows
    check_ids(anatomy, windows)
    return windows[0], sum(len(body(window)) for window in windows)


def check_ids(anatomy: "Anatomy", windows: Sequence[Window]) -> None:
    if max(max(window.ids) for window in windows) >= anatomy.vocabulary:
        raise TextError(
            f"the tokenizer gives tokens beyond the model's {anatomy.vocabulary:,}: they do not belong together; pass "
            "the model's own tokenizer."
        )


def body(window: Window) -> tuple[int, ...]:
    """The window's ids without the special tokens that the tokenizer added."""
    return window.ids[window.prefix : len(window.ids) - window.suffix]


def sentence_states(
    anatomy: "Anatomy", window: Window, drawn: tuple[int, ...], sublayers: bool, top: int
) -> tuple[dict[str, Any], Floats, Floats]:
    """One forward pass over a window, of which only the states of drawn words are kept.

    Returns the words, angles and readings as fields of a `Trajectory`, the drawn words' states [n, S, d] as unit
    vectors in the space of words, and the unit vectors [n, d] of their next words (of the words themselves if the
    model predicts none).
    """
    ids, vocabulary, predicts = body(window), Vocabulary.of(anatomy), reads(anatomy)
    sites = stream_sites(anatomy, sublayers)
    watch = _Watch(anatomy, window, drawn)
    with still(anatomy.model), watching(anatomy, dict.fromkeys(sites, watch.see)):
        run(anatomy, torch.tensor([window.ids]))
    raw, units = torch.stack(watch.raw, 1), torch.stack(watch.units, 1)
    _check_directions(anatomy, units, [*sites.values()])
    after = [[*ids[1:], -1][i] for i in drawn]
    lens = _lens(vocabulary, raw, units, after, top) if predicts else _nearest(vocabulary, units, top)
    goals = [lens.prediction if i < 0 else i for i in after] if predicts else [ids[i] for i in drawn]
    targets = torch.nn.functional.normalize(_vectors(anatomy)[goals].double(), dim=-1).cpu()
    moved, own, following = (np.stack(rows, 1) if rows else np.zeros((len(ids), 0)) for rows in watch.angles)
    if lens.prediction is not None:
        following[-1] = angle(units[-1], targets[-1]).numpy()
    words = tuple(token_text(vocabulary, i) for i in ids)
    last = None if lens.prediction is None else token_text(vocabulary, lens.prediction)
    fields: dict[str, Any] = {"words": words, "next_words": (*words[1:], last) if predicts else (None,) * len(words)}
    fields |= {"states": tuple(sites.values()), "readings": lens.readings, "probability": lens.probability}
    fields |= {"moved": np.degrees(moved), "own": np.degrees(own), "following": np.degrees(following)}
    return fields, units.numpy(), targets.numpy()


def _check_directions(anatomy: "Anatomy", units: Tensor, states: Sequence[str]) -> None:
    """Refuse states [n, S, d] of length zero, as an edit can make them: they point nowhere."""
    lost = (~(units.abs().sum(-1) > 0)).any(0).nonzero()
    if len(lost):
        raise ModelError(
            f"a word of {anatomy.name} has length zero, or contains NaN, at {states[int(lost[0])]}; it has no "
            "direction there, and cannot be drawn on a sphere."
        )


def _vectors(anatomy: "Anatomy") -> Tensor:
    """The vectors that states are compared with [v, d]."""
    return anatomy.W_E if anatomy.W_U is None else anatomy.W_U.T


def stream_sites(anatomy: "Anatomy", sublayers: bool) -> dict[str, str]:
    """Site → state of the stream, in order; without `sublayers`, only the states between layers."""
    sites = states_of(anatomy)
    first = next(iter(sites))
    return {site: state for site, state in sites.items() if sublayers or site == first or not state.endswith("mid")}


class _Watch:
    """Records states and angles; sites are reached in order, so one watcher serves them all."""

    def __init__(self, anatomy: "Anatomy", window: Window, drawn: tuple[int, ...]) -> None:
        self._anatomy = anatomy
        self._rows = slice(window.prefix, len(window.ids) - window.suffix)
        self._drawn = list(drawn)
        self._words = _vectors(anatomy)[list(body(window))].double()
        self._last: Tensor | None = None
        self.angles: tuple[list[Floats], list[Floats], list[Floats]] = ([], [], [])
        self.raw: list[Tensor] = []
        self.units: list[Tensor] = []

    def see(self, given: Tensor | None, output: Tensor) -> None:
        norm = self._anatomy.ln_final
        state = output if self._anatomy.order == "post" else given
        assert state is not None
        x = state[0, self._rows]
        y = (x if norm is None else norm(x)).double()
        moved, own, following = self.angles
        if self._last is not None:
            moved.append(angle(self._last, y).cpu().numpy())
        own.append(angle(y, self._words).cpu().numpy())
        ahead = np.full(len(y), np.nan)
        if reads(self._anatomy):
            ahead[:-1] = angle(y[:-1], self._words[1:]).cpu().numpy()
        following.append(ahead)
        self._last = y
        self.raw.append(x[self._drawn].float())
        self.units.append(torch.nn.functional.normalize(y[self._drawn], dim=-1).cpu())


def _lens(vocabulary: Vocabulary, raw: Tensor, units: Tensor, after: list[int], top: int) -> _Lens:
    """Every drawn state [n, S, d] in words; `after` holds the next word of each, −1 for the model's prediction."""
    a = vocabulary.anatomy
    count, steps, _ = raw.shape
    prediction = int(logits(a, raw[-1, -1:]).argmax()) if -1 in after else None
    goal = torch.tensor([prediction if i < 0 else i for i in after], device=a.device).repeat_interleave(steps)
    rows, directions = raw.flatten(0, 1), units.flatten(0, 1).float().to(a.device)
    ids, chances, angles, hits = [], [], [], []
    size = max(1, _LOGITS // a.vocabulary)
    for start in range(0, len(rows), size):
        chunk = slice(start, start + size)
        log_p = logits(a, rows[chunk]).log_softmax(-1)
        hits.append(log_p.gather(-1, goal[chunk, None])[:, 0].exp())
        best = log_p.topk(min(top, log_p.shape[-1]), -1)
        ids.append(best.indices)
        chances.append(best.values.exp())
        angles.append(angle(directions[chunk, None], _vectors(a)[best.indices]))
    probability = torch.cat(hits).double().cpu().numpy().reshape(count, steps)
    readings = _readings(vocabulary, torch.cat(ids), torch.cat(angles), torch.cat(chances), steps)
    return _Lens(readings, probability, prediction)


def _nearest(vocabulary: Vocabulary, units: Tensor, top: int) -> _Lens:
    """The nearest words by angle, for a model that predicts none."""
    count, steps, _ = units.shape
    words, allowed = _vectors(vocabulary.anatomy).cpu().float(), torch.from_numpy(vocabulary.shown)
    tokens = top_tokens(units.flatten(0, 1).float(), words, top, allowed=allowed, cosine=True)
    readings = _readings(vocabulary, tokens.ids, tokens.scores.clamp(-1, 1).acos(), None, steps)
    return _Lens(readings, np.full((count, steps), np.nan), None)


def _readings(vocabulary: Vocabulary, ids: Tensor, angles: Tensor, probability: Tensor | None, steps: int) -> Readings:
    degrees = torch.rad2deg(angles.double()).tolist()
    absent: list[list[Any]] = [[None] * ids.shape[1]] * len(ids)
    chances = absent if probability is None else probability.double().tolist()
    rows = [
        tuple(Reading(token_text(vocabulary, i), *numbers) for i, *numbers in zip(*row, strict=True))
        for row in zip(ids.tolist(), degrees, chances, strict=True)
    ]
    return tuple(tuple(rows[start : start + steps]) for start in range(0, len(rows), steps))


def token_text(vocabulary: Vocabulary, token: int) -> str:
    """A token as text; bytes that are not text by themselves become lone surrogates, which views show as ⟨F0⟩."""
    text = vocabulary.texts[token]
    if not text:
        return f"⟨token {token}⟩"
    if "\ufffd" not in text:
        return text
    letters = vocabulary.anatomy.tokenizer.convert_ids_to_tokens(token)
    if not all(letter in _BYTES for letter in letters):
        return text
    return bytes(_BYTES[letter] for letter in letters).decode("utf-8", "surrogateescape")

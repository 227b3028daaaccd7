"""What is seen of one sentence as it passes through a model, once?

Every state is brought into the space in which the model compares it with words: after the final norm, γ⊙z + β, where
the words are the unembedding's rows. A model without a final norm (norms behind each write) is taken as its norms leave it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy.loading.quiet import quiet
from armillary.anatomy.vocabulary import _BYTES, Vocabulary
from armillary.errors import TextError
from armillary.flow.capture import run, still, watching
from armillary.flow.documents import Documents
from armillary.flow.tokens import Window, encode
from armillary.geometry.readout import top_tokens
from armillary.geometry.sphere import angle
from armillary.probes.instruments.words_record import states as states_of
from armillary.probes.words.lens import logits, reads
from armillary.results.trajectory import Floats, Reading

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

Readings = tuple[tuple[tuple[Reading, ...], ...], ...]
# Numbers of logits in memory at once: 64 MB of float32.
_NUMBERS = 1 << 24


@dataclass(frozen=True, eq=False)
class Passage:
    """What the pass left: texts and angles (in degrees) of all t words, states and readings of the n drawn ones."""

    words: tuple[str, ...]
    next_words: tuple[str | None, ...]
    states: tuple[str, ...]
    moved: Floats
    own: Floats
    following: Floats
    units: Floats
    """[n, S, d]: drawn words' states as unit vectors in the space of words."""
    targets: Floats
    """[n, d]: unit vectors of their next words, or of the words themselves where the model reads out none."""
    readings: Readings
    probability: Floats


@dataclass(frozen=True, eq=False)
class _Lens:
    """What drawn states read as, and the model's own choice after the last word (None where it is not asked for)."""

    readings: Readings
    probability: Floats
    choice: int | None


def first_window(anatomy: "Anatomy", sentence: str) -> tuple[Window, int]:
    """What the model reads at once of the sentence, and of how many tokens that is the beginning."""
    if anatomy.tokenizer is None:
        raise TextError(
            f"{anatomy.name} came without a tokenizer, so a sentence cannot be read; pass tokenizer=… (Python) or a folder "
            "that holds tokenizer.json."
        )
    source = Documents("the sentence", (sentence,), ordered=True)
    with quiet():
        windows = encode(source, anatomy.tokenizer, anatomy.context, budget=1 << 30).windows
    if max(max(window.ids) for window in windows) >= anatomy.vocabulary:
        raise TextError(
            f"the tokenizer gives tokens beyond the model's {anatomy.vocabulary:,}: they do not belong together; pass the "
            "model's own tokenizer."
        )
    return windows[0], sum(len(body(window)) for window in windows)


def body(window: Window) -> tuple[int, ...]:
    """The window's ids without those that the tokenizer added."""
    return window.ids[window.prefix : len(window.ids) - window.suffix]


def passage(anatomy: "Anatomy", window: Window, drawn: tuple[int, ...], sublayers: bool, top: int) -> Passage:
    """One forward pass; only drawn words' states outlive their layer."""
    ids, vocabulary, says = body(window), Vocabulary.of(anatomy), reads(anatomy)
    sites = _sites(anatomy, sublayers)
    watch = _Watch(anatomy, window, drawn)
    with still(anatomy.model), watching(anatomy, dict.fromkeys(sites, watch.see)):
        run(anatomy, torch.tensor([window.ids]))
    raw, units = torch.stack(watch.raw, 1), torch.stack(watch.kept, 1)
    after = [[*ids[1:], -1][i] for i in drawn]
    lens = _lens(vocabulary, raw, units, after, top) if says else _nearest(vocabulary, units, top)
    goals = [lens.choice if i < 0 else i for i in after] if says else [ids[i] for i in drawn]
    targets = torch.nn.functional.normalize(_vectors(anatomy)[goals].double(), dim=-1).cpu()
    moved, own, following = (np.stack(rows, 1) if rows else np.zeros((len(ids), 0)) for rows in watch.angles)
    if lens.choice is not None:
        following[-1] = angle(units[-1], targets[-1]).numpy()
    words = tuple(_text(vocabulary, i) for i in ids)
    last = None if lens.choice is None else _text(vocabulary, lens.choice)
    return Passage(
        words=words,
        next_words=(*words[1:], last) if says else (None,) * len(words),
        states=tuple(sites.values()),
        moved=np.degrees(moved),
        own=np.degrees(own),
        following=np.degrees(following),
        units=units.numpy(),
        targets=targets.numpy(),
        readings=lens.readings,
        probability=lens.probability,
    )


def _vectors(anatomy: "Anatomy") -> Tensor:
    """What states are compared with [v, d]."""
    return anatomy.W_E if anatomy.W_U is None else anatomy.W_U.T


def _sites(anatomy: "Anatomy", sublayers: bool) -> dict[str, str]:
    found = states_of(anatomy)
    first = next(iter(found))
    return {site: state for site, state in found.items() if sublayers or site == first or not state.endswith("mid")}


class _Watch:
    """Sites are passed in the order of the way, so one watcher serves them all."""

    def __init__(self, anatomy: "Anatomy", window: Window, drawn: tuple[int, ...]) -> None:
        self._anatomy = anatomy
        self._rows = slice(window.prefix, len(window.ids) - window.suffix)
        self._drawn = list(drawn)
        self._words = _vectors(anatomy)[list(body(window))].double()
        self._last: Tensor | None = None
        self.angles: tuple[list[Floats], list[Floats], list[Floats]] = ([], [], [])
        self.raw: list[Tensor] = []
        self.kept: list[Tensor] = []

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
        self.kept.append(torch.nn.functional.normalize(y[self._drawn], dim=-1).cpu())


def _lens(vocabulary: Vocabulary, raw: Tensor, units: Tensor, after: list[int], top: int) -> _Lens:
    """Every drawn state [n, S, d] in words; `after` gives each drawn word's next one, −1 for the model's own choice."""
    a = vocabulary.anatomy
    count, steps, _ = raw.shape
    choice = int(logits(a, raw[-1, -1:]).argmax()) if -1 in after else None
    goal = torch.tensor([choice if i < 0 else i for i in after], device=a.device).repeat_interleave(steps)
    rows, directions = raw.flatten(0, 1), units.flatten(0, 1).float().to(a.device)
    best, likely, near, hit = [], [], [], []
    size = max(1, _NUMBERS // a.vocabulary)
    for start in range(0, len(rows), size):
        some = slice(start, start + size)
        said = logits(a, rows[some]).log_softmax(-1)
        hit.append(said.gather(-1, goal[some, None])[:, 0].exp())
        found = said.topk(min(top, said.shape[-1]), -1)
        best.append(found.indices)
        likely.append(found.values.exp())
        near.append(angle(directions[some, None], _vectors(a)[found.indices]))
    probability = torch.cat(hit).double().cpu().numpy().reshape(count, steps)
    return _Lens(_readings(vocabulary, torch.cat(best), torch.cat(near), torch.cat(likely), steps), probability, choice)


def _nearest(vocabulary: Vocabulary, units: Tensor, top: int) -> _Lens:
    """The words nearest by angle, where the model reads out none."""
    count, steps, _ = units.shape
    words, allowed = _vectors(vocabulary.anatomy).cpu().float(), torch.from_numpy(vocabulary.shown)
    found = top_tokens(units.flatten(0, 1).float(), words, top, allowed=allowed, cosine=True)
    listed = _readings(vocabulary, found.ids, found.scores.clamp(-1, 1).acos(), None, steps)
    return _Lens(listed, np.full((count, steps), np.nan), None)


def _readings(vocabulary: Vocabulary, ids: Tensor, angles: Tensor, likely: Tensor | None, steps: int) -> Readings:
    degrees = torch.rad2deg(angles.double()).tolist()
    chances: list[list[Any]] = [[None] * ids.shape[1]] * len(ids) if likely is None else likely.double().tolist()
    rows = [
        tuple(Reading(_text(vocabulary, i), apart, chance) for i, apart, chance in zip(*row, strict=True))
        for row in zip(ids.tolist(), degrees, chances, strict=True)
    ]
    return tuple(tuple(rows[start : start + steps]) for start in range(0, len(rows), steps))


def _text(vocabulary: Vocabulary, token: int) -> str:
    """A token as text; bytes that are no text by themselves as lone surrogates, which views show as ⟨F0⟩."""
    found = vocabulary.texts[token]
    if not found:
        return f"⟨token {token}⟩"
    if "\ufffd" not in found:
        return found
    letters = vocabulary.anatomy.tokenizer.convert_ids_to_tokens(token)
    if not all(letter in _BYTES for letter in letters):
        return found
    return bytes(_BYTES[letter] for letter in letters).decode("utf-8", "surrogateescape")

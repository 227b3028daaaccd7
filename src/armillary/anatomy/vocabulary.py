"""A model's tokens: their text, their vectors, and which of them can be shown."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from armillary.anatomy.anatomy import Anatomy
from armillary.anatomy.folded import reading_norm
from armillary.anatomy.space import RAW, Space, Vectors
from armillary.errors import WordError, nearest


def _byte_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: the printable ones stand for themselves, the others follow from 256 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_letters()
# Rows of the vocabulary in float64 at a time: 64 MB at 1024 dimensions.
BLOCK = 8192


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """A model's tokens: their text, which of them can be shown, and their vectors in any space."""

    anatomy: Anatomy
    texts: tuple[str, ...]
    """Each token as text, with its leading space where it has one; bytes that are no text stand as U+FFFD."""
    special: frozenset[int]

    @classmethod
    def of(cls, anatomy: Anatomy) -> "Vocabulary":
        tokenizer: Any = anatomy.tokenizer
        if tokenizer is None:
            raise WordError(
                f"{anatomy.name} came without a tokenizer, so nothing can be shown in words; singular values, spectra "
                "and the atlas need none: leave out the word, or pass a folder that contains tokenizer.json."
            )
        known = min(anatomy.vocabulary, len(tokenizer))
        tokens = tokenizer.convert_ids_to_tokens(list(range(known)))
        special = {int(i) for i in tokenizer.all_special_ids}
        texts = _texts([token or "" for token in tokens])
        # Rows of the embedding beyond the tokenizer's words (padding to a round number) have no text at all.
        return cls(anatomy, (*texts, *[""] * (anatomy.vocabulary - known)), frozenset(special))

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def shown(self) -> NDArray[np.bool_]:
        """Tokens with visible text: no special tokens, broken bytes, white space or control characters."""
        fine = [text.strip() != "" and text.isprintable() and "\ufffd" not in text for text in self.texts]
        fine = [yes and i not in self.special for i, yes in enumerate(fine)]
        return np.array(fine, dtype=bool)

    def find(self, word: str) -> int:
        """The one token of a word: with a leading space if there is such a token, else without; else an error."""
        index = self._index
        candidates = [word] if word.startswith(" ") else [" " + word, word]
        for text in candidates:
            if text in index:
                return index[text]
        unknown = getattr(self.anatomy.tokenizer, "unk_token_id", None)
        ids = self.anatomy.tokenizer(candidates[0], add_special_tokens=False)["input_ids"]
        if not ids or unknown in ids:
            raise WordError(f"{word!r} is not a word of this vocabulary; {self._like(word)}")
        if len(ids) == 1:
            # The tokenizer normalises the word, for example to lower case.
            return int(ids[0])
        pieces = [self.texts[i] for i in ids]
        raise WordError(
            f"{word!r} is {len(pieces)} tokens here ({' · '.join(map(repr, pieces))}), but must be one; choose one "
            f"of them, with its space, or another word: {self._like(word)}"
        )

    @cached_property
    def _index(self) -> dict[str, int]:
        index: dict[str, int] = {}
        for i, text in enumerate(self.texts):
            if text and i not in self.special:
                index.setdefault(text, i)
        return index

    def _like(self, word: str) -> str:
        """The end of a message: words that are spelled like it, never the whole vocabulary."""
        hint = nearest(word, self._plain)
        return hint if hint.startswith("did you mean") else "none is spelled like it; try a shorter or more common one."

    @property
    def _plain(self) -> list[str]:
        return sorted({text.strip() for i, text in enumerate(self.texts) if self.shown[i] and text.strip().isalpha()})

    def embedded(self, ids: Tensor | None = None, dtype: torch.dtype = torch.float64) -> Vectors:
        """Token embeddings as the stream receives them, without any position [n, d]; computed in float64."""
        return Vectors(_by_blocks(self.anatomy.W_E, ids, self._embedded, dtype), RAW)

    def _embedded(self, rows: Tensor) -> Tensor:
        a = self.anatomy
        rows = rows * a.embed_scale
        return rows if a.token_type is None else rows + a.token_type[0].double()

    def directions(self, layer: int, ids: Tensor | None = None, dtype: torch.dtype = torch.float64) -> Vectors:
        """Token embeddings as a layer's heads would see them alone: z at the norm that attention reads."""
        site, norm = reading_norm(self.anatomy, layer)
        if norm is None:
            return self.embedded(ids, dtype)
        rows = _by_blocks(self.anatomy.W_E, ids, lambda block: norm.direction(self._embedded(block)), dtype)
        return Vectors(rows, Space("direction", site))

    def outputs(self, ids: Tensor | None = None, dtype: torch.dtype = torch.float64) -> Vectors:
        """What a vector of the stream is compared with to read it as words: the unembedding with the final norm's gain
        and centring folded in; the embedding itself where there is no unembedding."""
        a = self.anatomy

        def folded(rows: Tensor) -> Tensor:
            if a.ln_final is None or a.W_U is None:
                return rows
            rows = rows * a.ln_final.gain.double()
            return rows - rows.mean(1, keepdim=True) if a.ln_final.kind == "layernorm" else rows

        return Vectors(_by_blocks(a.W_E if a.W_U is None else a.W_U.T, ids, folded, dtype), RAW)


def _by_blocks(matrix: Tensor, ids: Tensor | None, change: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Tensor:
    """Rows of a matrix [v, d], all or some, each changed in float64 and stored in `dtype`.

    A large vocabulary in float64 takes gigabytes, and so does every step from it, so few rows are held at a time.
    """
    count = len(matrix) if ids is None else len(ids)
    rows = torch.empty(count, matrix.shape[1], dtype=dtype, device=matrix.device)
    for start in range(0, count, BLOCK):
        block = slice(start, start + BLOCK)
        rows[block] = change((matrix[block] if ids is None else matrix[ids[block]]).double()).to(dtype)
    return rows


def _texts(tokens: list[str]) -> list[str]:
    """Tokens as text.

    >>> _texts(["Ġthe", "Ã©", "Ċ"]), _texts(["▁the", "é"])
    ([' the', 'é', '\\n'], [' the', 'é'])
    """
    if any("Ġ" in token for token in tokens):
        return [_decoded(token) for token in tokens]
    return [token.replace("▁", " ") for token in tokens]


def _decoded(token: str) -> str:
    if not all(letter in _BYTES for letter in token):
        return token
    return bytes(_BYTES[letter] for letter in token).decode("utf-8", errors="replace")

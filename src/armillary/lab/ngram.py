"""How well can text be foretold by counting alone?

The classical answer, against which a trained model is held: an n-gram model with modified Kneser-Ney smoothing,
interpolated (Chen and Goodman 1998, An Empirical Study of Smoothing Techniques for Language Modeling). NumPy only.

An n-gram of five tokens does not fit into 64 bits, so n-grams are numbered order by order: a k-gram's key is the
number of its first k-1 tokens times the vocabulary, plus its last token, and its number is its rank among the keys.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

FALLBACK = (0.5, 1.0, 1.5)
"""Discounts where the counts of counts determine none (KenLM's default too): see `discounts`."""


@dataclass(frozen=True, eq=False)
class KneserNey:
    """Every n-gram seen, with its smoothed probability; index k of each tuple is for n-grams of k+1 tokens."""

    vocabulary: int
    keys: tuple[Int[np.ndarray, " n"], ...]
    """Sorted; a key's place is the n-gram's number. Of single tokens every one is there, seen or not."""
    probability: tuple[Float[np.ndarray, " n"], ...]
    """Of the last token given the ones before it."""
    backoff: tuple[Float[np.ndarray, " n"], ...]
    """What an n-gram as context leaves to the shorter context for tokens never seen after it; one order fewer."""

    @property
    def order(self) -> int:
        return len(self.keys)

    @classmethod
    def fit(cls, tokens: Int[np.ndarray, " n"], vocabulary: int, order: int = 5) -> "KneserNey":
        """Count one stream of token ids below `vocabulary`.

        >>> model = KneserNey.fit(np.array([0, 1, 0, 2]), vocabulary=3, order=2)
        >>> np.exp(-model.nats(np.array([0, 1]))) * 12  # p(0) = 4/12, p(1 | 0) = 5/12
        array([4., 5.])
        """
        if order < 1:
            raise ValueError(f"an n-gram model needs an order of at least 1, got {order}")
        stream = _checked(tokens, vocabulary, f"a model of order {order}", order)
        levels = _levels(stream, vocabulary, order)
        # What all else is interpolated with: one row that stands for the empty context, every token alike.
        probability = [np.full(1, 1.0 / vocabulary)]
        backoff = []
        for k, level in enumerate(levels):
            weights, left = _discounted(_counts(levels, k), level.prefix, 1 if k == 0 else len(levels[k - 1].keys))
            probability.append(weights + left[level.prefix] * probability[k][level.suffix])
            backoff.append(left)
        return cls(vocabulary, tuple(level.keys for level in levels), tuple(probability[1:]), tuple(backoff[1:]))

    def nats(self, tokens: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """-ln p of each token given the order-1 tokens before it, or as many as there are.

        >>> model = KneserNey.fit(np.array([0, 1, 0, 1, 0, 2] * 9), vocabulary=3)
        >>> bool(model.nats(np.array([0, 1, 0, 1])).mean() < np.log(3) < model.nats(np.array([1, 1, 1])).mean())
        True
        """
        stream = _checked(tokens, self.vocabulary, "a text", 1)
        found = stream  # the number of the k-gram that ends here, or -1
        p = self.probability[0][stream]
        for keys, probability, backoff in zip(self.keys[1:], self.probability[1:], self.backoff, strict=True):
            context = np.concatenate([[-1], found[:-1]])
            found = _find(keys, context * self.vocabulary + stream)
            p = np.where(found >= 0, probability[found], np.where(context >= 0, backoff[context], 1.0) * p)
        return -np.log(p)

    def bits_per_byte(self, tokens: Int[np.ndarray, " n"], text_bytes: int) -> float:
        """What the tokens of a text of so many bytes cost; all but the first, as in `exam.bits_per_byte`.

        >>> model = KneserNey.fit(np.array([0, 1, 0, 2]), vocabulary=3, order=2)
        >>> round(model.bits_per_byte(np.array([0, 1]), text_bytes=2), 6) == round(math.log2(12 / 5) / 2, 6)
        True
        """
        if len(tokens) < 2 or text_bytes < 1:
            raise ValueError(
                f"bits per byte need two tokens and a byte of text at least, got {len(tokens)} tokens and {text_bytes} bytes"
            )
        return float(self.nats(tokens)[1:].sum() / math.log(2) / text_bytes)


@dataclass(frozen=True, eq=False)
class _Level:
    """The distinct n-grams of one length."""

    keys: np.ndarray
    count: np.ndarray
    prefix: np.ndarray
    """The number of its context: of the n-gram without its last token."""
    suffix: np.ndarray
    """The number of the n-gram without its first token."""


def _checked(tokens: np.ndarray, vocabulary: int, what: str, least: int) -> np.ndarray:
    """The stream as int64: keys of n-grams overflow anything less."""
    stream = np.asarray(tokens)
    if stream.ndim != 1 or not np.issubdtype(stream.dtype, np.integer):
        raise ValueError(f"expected one stream of integer token ids, got {stream.dtype} of shape {stream.shape}")
    if len(stream) < least:
        raise ValueError(f"{what} needs at least {least} tokens, got {len(stream)}; give it more text")
    low, high = int(stream.min()), int(stream.max())
    if low < 0 or high >= vocabulary:
        raise ValueError(
            f"token ids go from {low} to {high}, which a vocabulary of {vocabulary} does not hold: check that the text "
            "was encoded with the tokenizer that the vocabulary belongs to"
        )
    return stream.astype(np.int64)


def _levels(stream: np.ndarray, vocabulary: int, order: int) -> list[_Level]:
    empty = np.zeros(vocabulary, dtype=np.int64)  # context and rest of a single token: the one empty n-gram, number 0
    levels = [_Level(np.arange(vocabulary), np.bincount(stream, minlength=vocabulary), empty, empty)]
    numbers = stream  # of the k-gram that starts here
    for k in range(1, order):
        keys, inverse, count = np.unique(
            numbers[:-1] * vocabulary + stream[k:], return_inverse=True, return_counts=True
        )
        # The n-gram without its first token starts one place later: no search, every occurrence says the same.
        suffix = np.empty(len(keys), dtype=np.int64)
        suffix[inverse] = numbers[1:]
        levels.append(_Level(keys, count, keys // vocabulary, suffix))
        numbers = inverse
    return levels


def _counts(levels: list[_Level], k: int) -> np.ndarray:
    """How often each n-gram occurs at the longest length; below it, after how many different tokens.

    The n-gram that opens the stream has no token before it: seen nowhere else, it counts 0 and keeps what its shorter
    context gives.
    """
    if k == len(levels) - 1:
        return levels[k].count
    return np.bincount(levels[k + 1].suffix, minlength=len(levels[k].keys))


def discounts(count: Int[np.ndarray, " n"]) -> tuple[float, float, float]:
    """What to take off a count of 1, of 2, and of 3 or more (Chen and Goodman's D1, D2, D3+).

    Where no n-gram has a count of 1, of 2 or of 3, or where a discount is not in (0, count], the estimate does not
    exist, and `FALLBACK` serves for that order.

    >>> discounts(np.array([1, 1, 1, 1, 2, 2, 3, 4]))
    (0.5, 1.25, 1.0)
    >>> discounts(np.array([1, 1, 5]))
    (0.5, 1.0, 1.5)
    """
    _, n1, n2, n3, n4 = np.bincount(np.minimum(count, 5), minlength=6)[:5].tolist()
    if not (n1 and n2 and n3):
        return FALLBACK
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return found if all(0 < d <= i for i, d in enumerate(found, start=1)) else FALLBACK


def _discounted(count: np.ndarray, context: np.ndarray, contexts: int) -> tuple[np.ndarray, np.ndarray]:
    """Each n-gram's own share of its context's mass, and what each context has left for shorter ones."""
    discount = np.array([0.0, *discounts(count)])[np.minimum(count, 3)]
    total = np.bincount(context, weights=count, minlength=contexts)
    taken = np.bincount(context, weights=discount, minlength=contexts)
    # A context that nothing follows (the stream's end, or seen as its beginning only) hands everything on.
    left = np.divide(taken, total, out=np.ones(contexts), where=total > 0)
    return (count - discount) / np.maximum(total, 1.0)[context], left


def _find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The place of each wanted key, or -1; a context that was not found (-1) makes a key below 0, which is nowhere."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1)

"""An n-gram model as a baseline: interpolated modified Kneser-Ney smoothing, in NumPy.

See Chen and Goodman 1998, An Empirical Study of Smoothing Techniques for Language Modeling.

An n-gram of five tokens does not fit into 64 bits, so n-grams are numbered order by order: a k-gram's key is the
number of its first k-1 tokens times the vocabulary, plus its last token, and its number is its rank among the keys.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

FALLBACK = (0.5, 1.0, 1.5)
"""Discounts if the counts of counts do not determine them (also KenLM's default): see `discounts`."""


@dataclass(frozen=True, eq=False)
class KneserNey:
    """Every observed n-gram with its smoothed probability; index k of each tuple is for n-grams of k+1 tokens."""

    vocabulary: int
    keys: tuple[Int[np.ndarray, " n"], ...]
    """Sorted; the index of a key is the n-gram's number. All single tokens are included, observed or not."""
    probability: tuple[Float[np.ndarray, " n"], ...]
    """Probability of the last token given the ones before it."""
    backoff: tuple[Float[np.ndarray, " n"], ...]
    """The weight that an n-gram as context gives to its shorter context; one order fewer."""

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
        # The base of the interpolation: the empty context, all tokens equally probable.
        probability = [np.full(1, 1.0 / vocabulary)]
        backoff = []
        for k, level in enumerate(levels):
            weights, left = _discounted(_counts(levels, k), level.prefix, 1 if k == 0 else len(levels[k - 1].keys))
            probability.append(weights + left[level.prefix] * probability[k][level.suffix])
            backoff.append(left)
        return cls(vocabulary, tuple(level.keys for level in levels), tuple(probability[1:]), tuple(backoff[1:]))

    def nats(self, tokens: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """-ln p of each token given the order-1 tokens before it, or fewer at the start.

        >>> model = KneserNey.fit(np.array([0, 1, 0, 1, 0, 2] * 9), vocabulary=3)
        >>> bool(model.nats(np.array([0, 1, 0, 1])).mean() < np.log(3) < model.nats(np.array([1, 1, 1])).mean())
        True
        """
        stream = _checked(tokens, self.vocabulary, "a text", 1)
        gram = stream  # the number of the k-gram that ends here, or -1
        p = self.probability[0][stream]
        for keys, probability, backoff in zip(self.keys[1:], self.probability[1:], self.backoff, strict=True):
            context = np.concatenate([[-1], gram[:-1]])
            gram = _find(keys, context * self.vocabulary + stream)
            p = np.where(gram >= 0, probability[gram], np.where(context >= 0, backoff[context], 1.0) * p)
        return -np.log(p)

    def bits_per_byte(self, tokens: Int[np.ndarray, " n"], text_bytes: int) -> float:
        """Bits per byte of a text of `text_bytes` bytes; all tokens but the first, as in `exam.bits_per_byte`.

        >>> model = KneserNey.fit(np.array([0, 1, 0, 2]), vocabulary=3, order=2)
        >>> round(model.bits_per_byte(np.array([0, 1]), text_bytes=2), 6) == round(math.log2(12 / 5) / 2, 6)
        True
        """
        if len(tokens) < 2 or text_bytes < 1:
            raise ValueError(
                f"bits per byte need at least two tokens and one byte of text, got {len(tokens)} tokens and "
                f"{text_bytes} bytes"
            )
        return float(self.nats(tokens)[1:].sum() / math.log(2) / text_bytes)


@dataclass(frozen=True, eq=False)
class _Level:
    """The distinct n-grams of one length."""

    keys: np.ndarray
    count: np.ndarray
    prefix: np.ndarray
    """The number of its context, the n-gram without its last token."""
    suffix: np.ndarray
    """The number of the n-gram without its first token."""


def _checked(tokens: np.ndarray, vocabulary: int, what: str, least: int) -> np.ndarray:
    """The stream as int64, because n-gram keys overflow smaller types."""
    stream = np.asarray(tokens)
    if stream.ndim != 1 or not np.issubdtype(stream.dtype, np.integer):
        raise ValueError(f"expected one stream of integer token ids, got {stream.dtype} of shape {stream.shape}")
    if len(stream) < least:
        raise ValueError(f"{what} needs at least {least} tokens, got {len(stream)}; give it more text")
    low, high = int(stream.min()), int(stream.max())
    if low < 0 or high >= vocabulary:
        raise ValueError(
            f"token ids go from {low} to {high}, outside a vocabulary of {vocabulary}: check that the text "
            "was encoded with the tokenizer that the vocabulary belongs to"
        )
    return stream.astype(np.int64)


def _levels(stream: np.ndarray, vocabulary: int, order: int) -> list[_Level]:
    empty = np.zeros(vocabulary, dtype=np.int64)  # prefix and suffix of a single token: the empty n-gram, number 0
    levels = [_Level(np.arange(vocabulary), np.bincount(stream, minlength=vocabulary), empty, empty)]
    numbers = stream  # number of the k-gram that starts here
    for k in range(1, order):
        keys, inverse, count = np.unique(
            numbers[:-1] * vocabulary + stream[k:], return_inverse=True, return_counts=True
        )
        # The n-gram without its first token starts one position later, so no search is needed.
        suffix = np.empty(len(keys), dtype=np.int64)
        suffix[inverse] = numbers[1:]
        levels.append(_Level(keys, count, keys // vocabulary, suffix))
        numbers = inverse
    return levels


def _counts(levels: list[_Level], k: int) -> np.ndarray:
    """How often each n-gram of the longest length occurs; for shorter ones, after how many different tokens.

    The n-gram at the start of the stream has no token before it: if it occurs nowhere else, it counts 0 and gets the
    probability of its shorter context.
    """
    if k == len(levels) - 1:
        return levels[k].count
    return np.bincount(levels[k + 1].suffix, minlength=len(levels[k].keys))


def discounts(count: Int[np.ndarray, " n"]) -> tuple[float, float, float]:
    """The discounts of a count of 1, of 2, and of 3 or more (Chen and Goodman's D1, D2, D3+).

    If no n-gram has a count of 1, of 2 or of 3, or if a discount is not in (0, count], the estimate does not exist and
    `FALLBACK` is used for that order.

    >>> discounts(np.array([1, 1, 1, 1, 2, 2, 3, 4]))
    (0.5, 1.25, 1.0)
    >>> discounts(np.array([1, 1, 5]))
    (0.5, 1.0, 1.5)
    """
    _, n1, n2, n3, n4 = np.bincount(np.minimum(count, 5), minlength=6)[:5].tolist()
    if not (n1 and n2 and n3):
        return FALLBACK
    y = n1 / (n1 + 2 * n2)
    values = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return values if all(0 < d <= i for i, d in enumerate(values, start=1)) else FALLBACK


def _discounted(count: np.ndarray, context: np.ndarray, contexts: int) -> tuple[np.ndarray, np.ndarray]:
    """Each n-gram's discounted share of its context, and the weight each context leaves to its shorter context."""
    discount = np.array([0.0, *discounts(count)])[np.minimum(count, 3)]
    total = np.bincount(context, weights=count, minlength=contexts)
    taken = np.bincount(context, weights=discount, minlength=contexts)
    # A context that nothing follows leaves all weight to its shorter context.
    left = np.divide(taken, total, out=np.ones(contexts), where=total > 0)
    return (count - discount) / np.maximum(total, 1.0)[context], left


def _find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The index of each wanted key, or -1; a missing context (-1) makes a negative key, which never occurs."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1)

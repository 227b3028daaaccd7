"""Is the n-gram model modified Kneser-Ney, and are its probabilities probabilities?"""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from armillary.lab import ngram
from armillary.lab.ngram import FALLBACK, KneserNey, discounts


def _markov(n: int, vocabulary: int, seed: int = 0) -> np.ndarray:
    """Each token is followed by one of few: text with structure, and counts of every size."""
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(vocabulary, 0.15), size=vocabulary)
    stream = [0]
    for _ in range(n - 1):
        stream.append(int(rng.choice(vocabulary, p=table[stream[-1]])))
    return np.array(stream, dtype=np.uint16)


class _Slow:
    """Chen and Goodman's equations, word for word, on dictionaries."""

    def __init__(self, tokens: np.ndarray, vocabulary: int, order: int, continuation: bool = True) -> None:
        stream = [int(t) for t in tokens]
        self.vocabulary, self.order = vocabulary, order
        grams = {k: Counter(zip(*(stream[i:] for i in range(k)), strict=False)) for k in range(1, order + 1)}
        self.counts = {order: dict(grams[order])}
        for k in range(1, order):
            before: dict[tuple[int, ...], set[int]] = defaultdict(set)
            for gram in grams[k + 1]:
                before[gram[1:]].add(gram[0])
            self.counts[k] = {g: len(b) for g, b in before.items()} if continuation else dict(grams[k])
        self.discount = {k: self._discount(c) for k, c in self.counts.items()}

    @staticmethod
    def _discount(counts: dict[tuple[int, ...], int]) -> tuple[float, ...]:
        n = [sum(c == i for c in counts.values()) for i in range(5)]
        if 0 in n[1:4]:
            return (0.0, *FALLBACK)
        y = n[1] / (n[1] + 2 * n[2])
        discounts = tuple(i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))
        return (0.0, *(discounts if all(0 < d <= i + 1 for i, d in enumerate(discounts)) else FALLBACK))

    def p(self, word: int, context: tuple[int, ...]) -> float:
        k = len(context) + 1
        shorter = self.p(word, context[1:]) if context else 1 / self.vocabulary
        follow = [c for gram, c in self.counts[k].items() if gram[:-1] == context]
        if not follow:
            return shorter
        d = self.discount[k]
        own = self.counts[k].get((*context, word), 0)
        discounted = own - d[min(own, 3)]
        return (discounted + sum(d[min(c, 3)] for c in follow) * shorter) / sum(follow)

    def nats(self, tokens: np.ndarray) -> np.ndarray:
        stream = [int(t) for t in tokens]
        return np.array(
            [-math.log(self.p(t, tuple(stream[max(0, i - self.order + 1) : i]))) for i, t in enumerate(stream)]
        )


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("vocabulary", [5, 11])
def test_it_is_the_slow_model(order, vocabulary) -> None:
    train, other = _markov(400, vocabulary), _markov(60, vocabulary, seed=1)
    unseen = np.random.default_rng(2).integers(vocabulary, size=40)
    fast, slow = KneserNey.fit(train, vocabulary, order), _Slow(train, vocabulary, order)
    for text in (train[:50], other, unseen):
        np.testing.assert_allclose(fast.nats(text), slow.nats(text), rtol=1e-12)


def test_the_comparison_covers_estimated_discounts() -> None:
    """Otherwise the test above might compare fallbacks only."""
    slow = _Slow(_markov(400, 11), 11, 5)
    assert all(slow.discount[k][1:] != FALLBACK for k in (2, 3, 4, 5))


def test_raw_counts_below_the_top_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: plain interpolated absolute discounting, which is what one gets from the wrong counts."""
    train, other = _markov(400, 11), _markov(60, 11, seed=1)
    right = KneserNey.fit(train, 11, 3).nats(other)
    monkeypatch.setattr(ngram, "_counts", lambda levels, k: levels[k].count)
    wrong = KneserNey.fit(train, 11, 3).nats(other)
    np.testing.assert_allclose(wrong, _Slow(train, 11, 3, continuation=False).nats(other), rtol=1e-12)
    assert np.abs(wrong - right).max() > 0.05


def _distribution(model: KneserNey, context: list[int]) -> np.ndarray:
    return np.exp([-model.nats(np.array([*context, w]))[-1] for w in range(model.vocabulary)])


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_probabilities_sum_to_one(order) -> None:
    vocabulary, rng = 13, np.random.default_rng(order)
    train = _markov(600, vocabulary - 1)  # the last token is never seen
    model = KneserNey.fit(train, vocabulary, order)
    contexts: list[list[int]] = [[], [vocabulary - 1], train[:4].tolist(), train[-4:].tolist()]
    for length in range(1, 6):
        start = int(rng.integers(len(train) - length))
        contexts += [train[start : start + length].tolist(), rng.integers(vocabulary, size=length).tolist()]
    for context in contexts:
        p = _distribution(model, context)
        assert abs(p.sum() - 1) < 1e-10
        assert p.min() > 0


def test_by_hand() -> None:
    """0 1 0 2: every count is 1, so that half is taken off each; p(w) is 1/3 at the bottom.

    p(1|0) = ½·½ + ½·⅓, p(0|0) = ½·⅓, p(0|1) = ½ + ½·⅓; nothing follows 2, so p(·|2) = ⅓.
    """
    model = KneserNey.fit(np.array([0, 1, 0, 2]), 3, order=2)
    np.testing.assert_allclose(_distribution(model, [0]), [1 / 6, 5 / 12, 5 / 12])
    np.testing.assert_allclose(_distribution(model, [1]), [2 / 3, 1 / 6, 1 / 6])
    np.testing.assert_allclose(_distribution(model, [2]), [1 / 3, 1 / 3, 1 / 3])


def test_a_frequent_word_of_one_context_is_not_likely_elsewhere() -> None:
    """Kneser and Ney's own reason: 'Francisco' (1) is frequent, but follows 'San' (0) only; 2 follows many."""
    pairs = [[0, 1]] * 20 + [[w, 2] for w in range(3, 13)]
    model = KneserNey.fit(np.concatenate(pairs), 15, order=2)
    p = _distribution(model, [13])
    assert p[2] > 3 * p[1]
    assert _distribution(model, [0])[1] > 0.8


def test_discounts() -> None:
    """n₁…n₄ = 4, 2, 1, 1: Y = 4/8."""
    assert discounts(np.repeat([1, 2, 3, 4], [4, 2, 1, 1])) == (0.5, 1.25, 1.0)
    assert discounts(np.array([0, 0, *np.repeat([1, 2, 3, 4, 9], [4, 2, 1, 1, 7])])) == (0.5, 1.25, 1.0)


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_missing_counts_of_counts_fall_back(missing) -> None:
    assert discounts(np.array([c for c in (1, 1, 1, 2, 2, 3, 4) if c != missing])) == FALLBACK


def test_discounts_below_nothing_fall_back() -> None:
    """Many threes and few twos: D2 = 2 - 3·Y·20 < 0 would make counts grow."""
    assert discounts(np.repeat([1, 2, 3], [100, 1, 20])) == FALLBACK


def test_structure_is_found_and_only_there() -> None:
    train, test = np.split(_markov(5500, 20), [5000])
    shuffled = np.random.default_rng(0).permutation(train)
    nats = {order: KneserNey.fit(train, 20, order).nats(test).mean() for order in (1, 2, 5)}
    assert nats[2] < nats[1] - 0.5 and nats[5] < nats[1] - 0.5
    assert nats[1] < math.log(20)
    control = KneserNey.fit(shuffled, 20, 2).nats(test).mean()
    assert control > nats[1] - 0.05


def test_order_one_is_discounted_frequency() -> None:
    """Counts 3, 1, 0: fallback takes 1.5 and 0.5 off, two in all, shared by three."""
    model = KneserNey.fit(np.array([0, 0, 0, 1]), 3, order=1)
    expected = np.array([1.5, 0.5, 0.0]) / 4 + 2 / 4 / 3
    np.testing.assert_allclose(np.exp(-model.nats(np.array([0, 1, 2]))), expected)
    assert model.order == 1


def test_bits_per_byte_leaves_the_first_token_out() -> None:
    model = KneserNey.fit(_markov(300, 6), 6, order=3)
    text = _markov(40, 6, seed=3)
    assert model.bits_per_byte(text, 100) == pytest.approx(model.nats(text)[1:].sum() / math.log(2) / 100)
    with pytest.raises(ValueError, match="got 1 tokens and 100 bytes"):
        model.bits_per_byte(text[:1], 100)
    with pytest.raises(ValueError, match="got 40 tokens and 0 bytes"):
        model.bits_per_byte(text, 0)


def test_the_shortest_texts() -> None:
    model = KneserNey.fit(np.array([2, 0, 1]), 4, order=3)
    assert abs(_distribution(model, [2, 0]).sum() - 1) < 1e-10
    assert KneserNey.fit(np.array([1]), 2, order=1).nats(np.array([1]))[0] < math.log(2)
    with pytest.raises(ValueError, match="a text needs at least 1 tokens, got 0"):
        model.nats(np.array([], dtype=np.int64))


@pytest.mark.parametrize(
    ("tokens", "vocabulary", "order", "message"),
    [
        (np.array([], dtype=np.uint16), 5, 1, "order 1 needs at least 1 tokens, got 0; give it more text"),
        (np.array([1, 2, 3]), 5, 4, "order 4 needs at least 4 tokens, got 3"),
        (np.array([1, 2, 3]), 5, 0, "order of at least 1, got 0"),
        (np.array([1, 5, 3]), 5, 2, "go from 1 to 5, outside a vocabulary of 5"),
        (np.array([1, -1, 3]), 5, 2, "go from -1 to 3"),
        (np.array([1.0, 2.0]), 5, 1, "integer token ids, got float64"),
        (np.array([[1, 2]]), 5, 1, "one stream"),
    ],
)
def test_what_cannot_be_counted_is_refused(tokens, vocabulary, order, message) -> None:
    with pytest.raises(ValueError, match=message):
        KneserNey.fit(tokens, vocabulary, order)


def test_small_integers_do_not_overflow() -> None:
    """Keys are products: uint16 as it lies on disk would wrap around."""
    train = (_markov(2000, 30).astype(np.int64) * 250).astype(np.uint16)
    wide = KneserNey.fit(train.astype(np.int64), 8192, 4).nats(train.astype(np.int64))
    np.testing.assert_array_equal(KneserNey.fit(train, 8192, 4).nats(train), wide)

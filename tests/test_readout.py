"""Are the words that are named the right ones, in the right order, whatever is left out or tied?"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from armillary.geometry import readout as module
from armillary.geometry.readout import Readout, both_ends, top_tokens


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(numbers: Tensor) -> Tensor:
    """Small whole numbers: their products are exact and tie all the time."""
    return (numbers * 1.5).round()


def by_sorting(
    directions: Tensor, words: Tensor, top: int, allowed: Tensor | None = None, lowest: bool = False
) -> Readout:
    scores = directions.double() @ words.double().mT
    ids = torch.arange(len(words)) if allowed is None else allowed.nonzero()[:, 0]
    order = scores[:, ids].sort(dim=1, descending=not lowest, stable=True)
    return Readout(ids[order.indices[:, :top]], order.values[:, :top].float())


def same(a: Readout, b: Readout) -> bool:
    return torch.equal(a.ids, b.ids) and torch.equal(a.scores, b.scores)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 9),
    st.integers(1, 400),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(0, 1000),
    st.sampled_from([None, 0.05, 0.5, 0.9]),
)
def test_sorting_everything_says_the_same(n: int, v: int, top: int, d: int, seed: int, share: float | None) -> None:
    directions, words = whole(gaussian(n, d, seed=seed)), whole(gaussian(v, d, seed=seed + 1))
    allowed = None
    if share is not None:
        allowed = torch.rand(v, generator=torch.Generator().manual_seed(seed)) < share
        allowed[seed % v] = True
    along, against = both_ends(directions, words, top, allowed=allowed)
    assert same(along, by_sorting(directions, words, top, allowed))
    assert same(against, by_sorting(directions, words, top, allowed, lowest=True))
    assert same(top_tokens(directions, words, top, allowed=allowed), along)
    # Against a direction is along its opposite.
    opposite = top_tokens(-directions, words, top, allowed=allowed)
    assert torch.equal(opposite.ids, against.ids)


@pytest.mark.parametrize("held", [1, 999, 5000])
def test_how_much_is_held_at_once_changes_nothing(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    directions, words = whole(gaussian(40, 8)), whole(gaussian(1000, 8, seed=1))
    expected = both_ends(directions, words, 5)
    monkeypatch.setattr(module, "SCORES", held)
    assert all(same(a, b) for a, b in zip(both_ends(directions, words, 5), expected, strict=True))


def test_scores_are_never_held_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, best = [], module._best
    monkeypatch.setattr(module, "SCORES", 3000)
    monkeypatch.setattr(module, "_best", lambda scores, *rest: (seen.append(scores.shape), best(scores, *rest))[1])
    top_tokens(gaussian(10, 4), gaussian(1000, 4), 2)
    assert seen == [(3, 1000)] * 3 + [(1, 1000)]


def test_ties_need_the_rule() -> None:
    # Control: torch's own choice among equals is another one, so the rule is not idle.
    words = torch.ones(2000, 1)
    words[1500] = 2
    direction = torch.ones(1, 1)
    assert top_tokens(direction, words, 4).ids.tolist() == [[1500, 0, 1, 2]]
    assert (direction @ words.mT).topk(4).indices.tolist() != [[1500, 0, 1, 2]]


def test_winners_that_share_a_group_are_all_found() -> None:
    # Word w is in group w % 125; the five best are put into one group, the worst case for looking at champions only.
    words = gaussian(2000, 1) * 0.01
    winners = torch.tensor([3, 128, 253, 378, 503])
    words[winners, 0] = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
    assert torch.equal(top_tokens(torch.ones(1, 1), words, 5).ids[0], winners)
    words = gaussian(2003, 1) * 0.01  # three words more than groups can hold
    words[2000:, 0] = torch.tensor([1.0, 3.0, 2.0])
    assert top_tokens(torch.ones(1, 1), words, 3).ids[0].tolist() == [2001, 2002, 2000]


def test_cosine_ignores_length_and_the_product_does_not() -> None:
    directions, words = gaussian(6, 12), gaussian(300, 12, seed=1)
    stretched = words * torch.linspace(0.1, 10, 300)[:, None]
    plain, long = (top_tokens(directions * 7, w, 5, cosine=True) for w in (words, stretched))
    assert torch.equal(plain.ids, long.ids)
    unit = torch.nn.functional.normalize
    assert torch.allclose(plain.scores, (unit(directions) @ unit(words).mT).topk(5).values, atol=1e-6)
    assert not torch.equal(top_tokens(directions, words, 5).ids, top_tokens(directions, stretched, 5).ids)


def test_no_length_no_cosine() -> None:
    words = torch.tensor([[0.0, 0.0], [-1.0, 0.0], [0.0, 2.0]])
    readout = top_tokens(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), words, 3, cosine=True)
    assert readout.ids.tolist() == [[0, 2, 1], [0, 1, 2]]
    assert readout.scores.tolist() == [[0, 0, -1], [0, 0, 0]]


def test_fewer_words_than_asked_for() -> None:
    allowed = torch.tensor([False, True, False, True])
    readout = top_tokens(gaussian(3, 2), gaussian(4, 2), 10, allowed=allowed)
    assert readout.ids.shape == readout.scores.shape == (3, 2)
    assert set(readout.ids.flatten().tolist()) == {1, 3}
    with pytest.raises(ValueError, match="top 10 of 0 allowed words"):
        top_tokens(gaussian(3, 2), gaussian(4, 2), 10, allowed=torch.zeros(4, dtype=torch.bool))
    with pytest.raises(ValueError, match="top 0 of 4"):
        top_tokens(gaussian(3, 2), gaussian(4, 2), 0)


def test_what_has_no_rank_is_refused() -> None:
    words = gaussian(4, 2)
    words[2, 1] = torch.nan
    with pytest.raises(ValueError, match=r"a word contains NaN or infinity \(row 2\)"):
        top_tokens(gaussian(3, 2), words, 1)
    with pytest.raises(ValueError, match=r"a direction contains NaN or infinity \(row 2\)"):
        top_tokens(words, gaussian(3, 2), 1)


def test_a_sum_that_overflows_is_no_infinity() -> None:
    words = torch.full((300, 4), 3e37)
    assert top_tokens(torch.full((1, 4), 1e-37), words, 2).ids.tolist() == [[0, 1]]


def test_float64_is_read_in_float32() -> None:
    directions, words = gaussian(5, 30).double(), gaussian(500, 30, seed=1).double().requires_grad_()
    readout = top_tokens(directions, words, 3)
    assert readout.scores.dtype == torch.float32 and not readout.scores.requires_grad
    assert torch.equal(readout.ids, (directions @ words.mT).topk(3).indices)


@pytest.mark.parametrize("v", [10, 11, 159, 160, 175, 176, 177])
def test_as_many_groups_as_words_asked_for(v: int) -> None:
    directions, words = whole(gaussian(5, 3)), whole(gaussian(v, 3, seed=1))
    assert same(top_tokens(directions, words, 10), by_sorting(directions, words, 10))

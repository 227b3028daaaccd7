"""Which directions have many others close by? The same as all pairs say, at a fraction of their cost."""

import pytest
import torch

from armillary.geometry.clouds import crowding
from armillary.geometry.clouds.crowding import crowded

WORDS, D, OTHERS = 3000, 64, 20


def planted(crowd: int, noise: float, seed: int) -> torch.Tensor:
    """Words in topics of sixty, and a crowd; a topic's words have a cosine of 0.6."""
    draw = torch.Generator().manual_seed(seed)
    axes = torch.linalg.qr(torch.randn(D, D, generator=draw))[0]
    rows = 4 * axes[torch.arange(WORDS) % 50] + 0.4 * torch.randn(WORDS, D, generator=draw)
    rows[:crowd] = 4 * axes[-1] + noise * torch.randn(crowd, D, generator=draw)
    return rows + 3


def by_all_pairs(rows: torch.Tensor) -> torch.Tensor:
    unit = torch.nn.functional.normalize(rows.double() - rows.double().mean(0), dim=1)
    return (unit @ unit.mT > 0.9).sum(1) - 1 >= OTHERS


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("crowd", "is_crowded"), [(40, 40), (21, 21), (20, 0)])
def test_a_crowd_is_found_and_topics_are_not(crowd, is_crowded, seed):
    rows = planted(crowd, 0.1, seed)
    flags = crowded(rows, 0.9, OTHERS)
    assert flags.sum() == is_crowded and not flags[crowd:].any(), f"seed {seed}"
    assert torch.equal(flags, by_all_pairs(rows))


def test_at_the_limit_it_agrees_with_all_pairs():
    """Cosines on both sides of 0.9: some of the crowd have enough others."""
    rows = planted(40, 0.17, 0)
    expected = by_all_pairs(rows)
    assert 0 < expected.sum() < 40
    assert torch.equal(crowded(rows, 0.9, OTHERS), expected)


def test_few_pairs_are_compared():
    met = crowding._meetings(torch.nn.functional.normalize(planted(40, 0.1, 0) - 3, dim=1), planes := 16)
    candidates = met >= crowding._expected(0.9, OTHERS, planes) / 2
    assert candidates[:40].all() and candidates.sum() < WORDS / 4


def test_no_rows_are_no_crowd():
    assert crowded(torch.zeros(0, 4), 0.9, OTHERS).shape == (0,)
    assert crowded(torch.eye(4), 0.9, 1).sum() == 0

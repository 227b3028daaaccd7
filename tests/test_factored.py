"""Does the algebra of thin factors agree with that of the whole matrix, also where the matrix is at its worst?"""

import math
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from armillary.geometry import factored as module
from armillary.geometry.factored import SVD, Factored, n99, participation

F64 = torch.float64


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def frame(d: int, k: int, seed: int) -> Tensor:
    return torch.linalg.qr(gaussian(d, k, seed=seed)).Q


def planted(values: list[float], d: int = 20, seed: int = 0, spoil: float = 1.0) -> Factored:
    """A matrix with these singular values; `spoil` conditions the change of basis hidden between the factors."""
    k = len(values)
    left, right = frame(d, k, seed), frame(d + 3, k, seed + 1)
    spread = torch.logspace(0, -math.log10(spoil), k, dtype=F64)
    before, after = frame(k, k, seed + 2), frame(k, k, seed + 3)
    # (before · spread · after)⁻ᵀ is before · 1/spread · after: no inverse that would lose digits of its own.
    sized = left * torch.tensor(values, dtype=F64)
    return Factored(sized @ (before * spread) @ after, right @ (before / spread) @ after)


def rounding(svd: SVD) -> float:
    """How far the frames are from orthonormal."""
    eye = torch.eye(svd.values.shape[-1], dtype=svd.values.dtype)
    return max(float((x.mT @ x - eye).abs().max()) for x in (svd.left, svd.right))


def rebuilt(svd: SVD) -> Tensor:
    return svd.left * svd.values[..., None, :] @ svd.right.mT


def projector(columns: Tensor) -> Tensor:
    return columns @ columns.mT


def agrees(matrix: Factored, tolerance: float = 1e-9) -> SVD:
    """The theorem of this file: values, frames and the matrix itself, to `tolerance` of the largest singular value."""
    svd, dense = matrix.svd(), matrix.dense().to(F64)
    expected = torch.linalg.svdvals(dense)[..., : svd.values.shape[-1]]
    scale = float(expected.max()) or 1.0
    assert float((svd.values - expected).abs().max()) <= tolerance * scale
    assert float((matrix.values() - expected).abs().max()) <= tolerance * scale
    assert float((rebuilt(svd) - dense).abs().max()) <= tolerance * scale
    assert rounding(svd) <= tolerance
    assert (svd.values[..., :-1] >= svd.values[..., 1:]).all()
    return svd


sizes = st.integers(1, 9)


@settings(max_examples=60, deadline=None)
@given(sizes, sizes, sizes, st.lists(st.integers(1, 3), max_size=2), st.integers(0, 1000), st.floats(-6, 6))
def test_any_shape_agrees_with_the_whole_matrix(
    m: int, n: int, k: int, batch: list[int], seed: int, power: float
) -> None:
    svd = agrees(Factored(gaussian(*batch, m, k, seed=seed) * 10**power, gaussian(*batch, n, k, seed=seed + 1)))
    rank = min(m, n, k)
    assert svd.left.shape == (*batch, m, rank)
    assert svd.right.shape == (*batch, n, rank)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1e-9, 1e-4, 0.3, 1.0, 1.0, 1.0, 2.0, 1e3]), min_size=1, max_size=7),
    st.integers(0, 1000),
    st.sampled_from([1.0, 10.0, 1e3]),
)
def test_planted_values_come_back_with_ties_and_zeros(values: list[float], seed: int, spoil: float) -> None:
    svd = agrees(planted(values, seed=seed, spoil=spoil))
    expected = torch.tensor(sorted(values, reverse=True), dtype=F64)
    assert torch.allclose(svd.values, expected, rtol=0, atol=1e-10 * max(expected.max().item(), 1e-300) + 1e-300)


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4, 1e6, 1e9])
def test_ill_conditioned_factors_of_a_harmless_matrix(condition: float) -> None:
    # A ↦ A G, B ↦ B G⁻ᵀ leaves M alone; what was lost in storing A G is not the algebra's fault.
    matrix = planted([3.0, 2.0, 1.0, 0.5, 0.2], spoil=condition)
    svd = agrees(matrix, 1e-15 * condition + 4e-11)
    assert rounding(svd) < 4e-11


def test_the_fast_way_alone_would_lose_such_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = planted([3.0, 2.0, 1.0, 0.5, 0.2], spoil=1e6)
    monkeypatch.setattr(module, "_limit", lambda dtype: float("inf"))
    assert rounding(matrix.svd()) > 1e-8


def test_the_fast_way_alone_would_lose_small_values(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each factor is harmless, their product is not.
    root = torch.tensor([1.0, 0.9, 1e-4, 3e-5], dtype=F64).sqrt()
    matrix = Factored(frame(20, 4, 0) * root @ frame(4, 4, 2), frame(20, 4, 1) * root @ frame(4, 4, 2))
    assert rounding(agrees(matrix)) < 1e-11
    monkeypatch.setattr(module, "_limit", lambda dtype: float("inf"))
    assert rounding(matrix.svd()) > 1e-10


def test_small_values_beside_one_that_all_columns_share() -> None:
    # Σ|aᵢ|²|bᵢ|² is k times smaller than σ1² here and would let too much pass.
    root = torch.full((64,), 3e-7**0.25, dtype=F64).index_fill(0, torch.tensor([0]), 1.0)
    even = torch.linalg.qr(torch.cat([torch.ones(64, 1, dtype=F64), gaussian(64, 63)], 1)).Q.mT
    matrix = Factored(frame(80, 64, 0) * root @ even, frame(80, 64, 1) * root @ even)
    assert rounding(agrees(matrix)) < 4e-11


def test_both_ways_are_taken_in_one_batch() -> None:
    calm, zero = Factored(gaussian(20, 4), gaussian(20, 4, seed=1)), torch.zeros(20, 4, dtype=F64)
    flat = calm.left.clone()
    flat[:, 3] = flat[:, 0]
    both = Factored(torch.stack([calm.left, zero, flat]), torch.stack([calm.right] * 3))
    svd = agrees(both)
    assert torch.equal(svd.values[1], zero[0])
    assert torch.equal(svd.left[0], calm.svd().left)
    assert (svd.values > 1e-12).sum(-1).tolist() == [4, 0, 3]


def test_threads_change_nothing() -> None:
    matrix = Factored(gaussian(20, 16, 4), gaussian(20, 16, 4, seed=1))
    alone = matrix.svd()
    torch.set_num_threads(3)
    try:
        shared, values = matrix.svd(), matrix.values()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    assert torch.equal(alone.left, shared.left)
    assert torch.equal(alone.right, shared.right)
    assert torch.equal(values, matrix.values())


def test_a_null_space_is_exact() -> None:
    matrix = planted([2.0, 1.0, 0.0])
    svd = matrix.svd()
    outside = frame(20, 20, 9) - projector(svd.left[:, :2]) @ frame(20, 20, 9)
    assert float(matrix.apply(outside.mT).abs().max()) < 1e-14
    assert (svd.values > 1e-12).sum() == 2


def test_ties_share_a_subspace_and_nothing_more() -> None:
    values, k = torch.tensor([5.0, 2.0, 2.0, 2.0, 1.0], dtype=F64), 5
    left, right, turn = frame(30, k, 0), frame(30, k, 1), torch.eye(5, dtype=F64)
    turn[1:4, 1:4] = frame(3, 3, 2)  # another basis of the tied space, on both sides: the same matrix
    plain, turned = (Factored(left @ t * values, right @ t).svd() for t in (torch.eye(5, dtype=F64), turn))
    for svd in (plain, turned):
        assert svd.clusters().tolist() == [0, 1, 1, 1, 2]
    tied = plain.clusters() == 1
    assert torch.allclose(projector(plain.left[:, tied]), projector(turned.left[:, tied]), atol=1e-13)
    assert torch.allclose(projector(plain.right[:, tied]), projector(right[:, 1:4]), atol=1e-13)
    # Control: single vectors out of the group are a matter of luck.
    assert not torch.allclose(projector(plain.left[:, 1:2]), projector(turned.left[:, 1:2]), atol=0.1)
    assert torch.allclose(plain.left[:, ~tied], turned.left[:, ~tied], atol=1e-13)


@pytest.mark.parametrize("gap", [1e-2, 1e-4])
def test_a_disturbance_turns_vectors_by_its_size_over_the_gap(gap: float) -> None:
    # The reason for the default gap, on a matrix whose float32 copy is the disturbance.
    matrix = planted([1.0, 1.0 - gap, 0.5], d=200, seed=5)
    rough = Factored(matrix.left.float().double(), matrix.right.float().double())
    size = float(torch.linalg.matrix_norm(matrix.dense() - rough.dense(), 2))
    exact, rounded = matrix.svd(), rough.svd()
    turned = [
        float((projector(exact.left[:, i : i + 1]) - projector(rounded.left[:, i : i + 1])).norm()) for i in range(3)
    ]
    assert max(turned[:2]) <= 2 * size / gap
    assert turned[2] <= 2 * size / 0.5
    assert size < 1e-6
    assert max(turned) < 0.01
    assert exact.clusters().tolist() == [0, 1, 2] if gap > module.GAP else [0, 0, 1]


def test_clusters_by_hand() -> None:
    values = torch.tensor([[4.0, 4.0, 3.0, 1.0, 1.0], [1.0, 0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    svd = SVD(torch.zeros(3, 6, 5), values, torch.zeros(3, 6, 5))
    assert svd.clusters().tolist() == [[0, 0, 1, 2, 2], [0, 1, 1, 2, 2], [0, 0, 0, 0, 0]]
    assert svd.clusters(0.3).tolist() == [[0, 0, 0, 1, 1], [0, 1, 1, 2, 2], [0, 0, 0, 0, 0]]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 5))
def test_signs_do_not_depend_on_the_factors(seed: int, k: int) -> None:
    a, b = gaussian(12, k, seed=seed), gaussian(9, k, seed=seed + 1)
    flips = torch.where(gaussian(k, seed=seed + 2) > 0, 1.0, -1.0).to(F64)
    mixed = gaussian(k, k, seed=seed + 3) + 3 * torch.eye(k, dtype=F64)
    expected = Factored(a, b).svd()
    for other in (
        Factored(a * flips, b * flips),
        Factored(-a, -b),
        Factored(a @ mixed, b @ torch.linalg.inv(mixed).mT),
    ):
        svd = other.svd()
        assert torch.allclose(svd.left, expected.left, atol=1e-7)
        assert torch.allclose(svd.right, expected.right, atol=1e-7)
    largest = expected.left.abs().argmax(0)
    assert (expected.left[largest, torch.arange(k)] > 0).all()
    # −M has the same left vectors and the opposite right ones.
    assert torch.allclose(Factored(-a, b).svd().right, -expected.right, atol=1e-7)


def test_a_tie_of_entries_goes_to_the_first() -> None:
    for sign in (1.0, -1.0):
        for noise in (0.0, 1e-15, -1e-15):
            a = sign * torch.tensor([[0.0], [1.0], [-1.0 - noise], [1.0]], dtype=F64)
            left = Factored(a, torch.ones(2, 1, dtype=F64)).svd().left[:, 0]
            assert left[1] > 0 > left[2]


def test_data_orient_a_pair() -> None:
    matrix = planted([3.0, 2.0, 1.0], d=10)
    svd = matrix.svd()
    # Most rows lie a little against the vector and a few far along it: the tail decides, not the mean.
    rows = torch.cat([-svd.left.mT] * 9 + [5 * svd.left.mT])
    assert float((rows @ svd.left).mean(0)[0]) < 0
    for start in (svd, SVD(-svd.left, svd.values, -svd.right)):
        turned = start.oriented(rows)
        assert torch.equal(turned.left, svd.left)
        assert torch.allclose(rebuilt(turned), matrix.dense())
        assert torch.equal(start.oriented(-rows).left, -svd.left)
    assert torch.equal(svd.oriented(-svd.right.mT, side="right").right, -svd.right)
    assert torch.equal(svd.oriented(torch.zeros(4, 10, dtype=F64)).left, svd.left)
    batch = Factored(torch.stack([matrix.left, -matrix.left]), torch.stack([matrix.right, matrix.right])).svd()
    assert torch.allclose(batch.oriented(rows.float()).left, svd.left.expand(2, -1, -1), atol=1e-12)
    with pytest.raises(ValueError, match="rows of width 4 cannot orient left vectors of width 10"):
        svd.oriented(torch.zeros(3, 4, dtype=F64))


def test_float32_is_computed_as_given() -> None:
    matrix = Factored(gaussian(3, 40, 8).float(), gaussian(3, 30, 8, seed=1).float())
    svd = agrees(matrix, 1e-5)
    assert svd.left.dtype == svd.values.dtype == matrix.values().dtype == torch.float32
    huge = Factored(matrix.left * 1e12, matrix.right * 1e12)
    assert torch.allclose(huge.svd().values / 1e24, svd.values, rtol=1e-5)
    tiny = Factored(matrix.left * 1e-22, matrix.right)
    assert torch.allclose(tiny.svd().values * 1e22, svd.values, rtol=1e-5)
    assert rounding(tiny.svd()) < 1e-5


def test_what_has_no_singular_values_is_refused() -> None:
    good, bad = gaussian(2, 6, 3), gaussian(2, 6, 3)
    bad[1, 2, 1] = torch.nan
    for matrix in (Factored(bad, good), Factored(good, bad)):
        with pytest.raises(ValueError, match="NaN or infinity"):
            matrix.svd()
        with pytest.raises(ValueError, match="NaN or infinity"):
            matrix.values()
    with pytest.raises(ValueError, match="cast both to float64"):
        Factored(good.half(), good.half()).svd()
    with pytest.raises(ValueError, match="cast both to float64"):
        Factored(good, good.float()).values()
    with pytest.raises(ValueError, match="empty matrix"):
        Factored(torch.zeros(3, 0), torch.zeros(3, 0)).svd()


def test_weights_that_learn_can_be_decomposed() -> None:
    svd = Factored(gaussian(6, 3).requires_grad_(), gaussian(6, 3)).svd()
    assert not svd.left.requires_grad


def test_summaries() -> None:
    values = torch.tensor([[1.0] * 64, [100.0] + [0.01] * 63, [0.0] * 64], dtype=F64)
    assert n99(values).tolist() == [64, 1, 0]
    assert n99(torch.full((200,), 0.1, dtype=F64)) == 198
    assert participation(values)[:2].tolist() == pytest.approx([64, 1], abs=1e-3)
    assert participation(values)[2].isnan()
    assert participation(1e200 * values)[0] == 64


def test_applying_and_scoring_are_the_dense_matrix() -> None:
    matrix = Factored(gaussian(2, 7, 3), gaussian(2, 5, 3, seed=1))
    x, y = gaussian(2, 4, 7, seed=2), gaussian(2, 6, 5, seed=3)
    assert torch.allclose(matrix.apply(x), x @ matrix.dense())
    assert torch.allclose(matrix.scores(x, y), x @ matrix.dense() @ y.mT)


@pytest.mark.slow
def test_the_heads_of_gpt2() -> None:
    """σ1 and n99 known for the real weights: of raw W_Q W_Kᵀ/√k and W_V W_O, ln_1 not folded in."""
    where = os.environ.get("ARMILLARY_GPT2_ATTENTION", "")
    if not Path(where).is_file():
        pytest.skip("set ARMILLARY_GPT2_ATTENTION to a safetensors file with GPT-2's h.0, h.5 and h.11 attention")
    from safetensors.torch import load_file

    weights = {name: tensor.double() for name, tensor in load_file(where).items()}
    counts = {}
    for layer in (0, 5, 11):
        joint = weights[f"transformer.h.{layer}.attn.c_attn.weight"].unflatten(1, (3, 12, 64))
        q, k, v = joint.permute(1, 2, 0, 3)
        o = weights[f"transformer.h.{layer}.attn.c_proj.weight"].unflatten(0, (12, 64)).mT
        qk, vo = agrees(Factored(q / 8, k)), agrees(Factored(v, o))
        counts[layer] = (n99(qk.values), n99(vo.values))
        if layer == 0:
            known = [8.33, 10.70, 7.24, 33.59, 22.38, 12.37, 7.49, 26.53, 6.35, 4.18, 3.82, 7.45]
            assert qk.values[:, 0].tolist() == pytest.approx(known, abs=0.00501)
    assert int(counts[0][0][11]) == 58
    rest = torch.cat([count for pair in counts.values() for count in pair]).tolist()
    rest.remove(58)
    assert min(rest) == 61 and max(rest) == 64

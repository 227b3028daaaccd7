"""The action of matrices on directions: closed forms, bounds, and mistakes that a measurement of bending could make."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from planted import finding_of, tried, whole
from test_grid import FAMILIES
from tiny import tiny

from armillary.anatomy.folded import fold
from armillary.anatomy.read import read
from armillary.geometry.induced_maps import (
    differential,
    exp_map,
    induced,
    log_map,
    polar_factor,
    procrustes,
    shear,
    sheared_angle,
)
from armillary.probes.grid.bending.map_tables import closed_form_error, shear_table
from armillary.probes.grid.bending.maps import (
    Points,
    directions,
    matrices,
    shadow_sums,
    unexplained,
    unexplained_at,
    unexplained_at_uniform,
)
from armillary.probes.grid.nonlinear import Nonlinear, count_verdict
from armillary.probes.machinery.bench import Bench
from armillary.results import Why
from armillary.specimens.models.heads.grid_models import bending
from armillary.specimens.models.texts import corpus


def uniform(count: int, n: int, seed: int = 0) -> torch.Tensor:
    rows = np.random.default_rng(seed).standard_normal((count, n))
    return torch.nn.functional.normalize(torch.as_tensor(rows), dim=1)


def gaussian(n: int, m: int, seed: int = 1) -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(seed).standard_normal((n, m)))


# Geometry.


@given(st.floats(-4, 4), st.floats(-3.1, 3.1))
def test_the_shear_of_the_circle_is_what_its_closed_form_says(strength, angle):
    point = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    x, y = induced(point, shear(strength))[0].tolist()
    away = math.atan2(y, x) - float(sheared_angle(np.array([angle]), strength)[0])
    assert math.sin(away / 2) == pytest.approx(0, abs=1e-9)
    # A map of determinant 1 stretches the circle by 1/|xA|² where it stretches the plane by |xA|.
    slope = differential(point[0], shear(strength))
    tangent = torch.tensor([-math.sin(angle), math.cos(angle)], dtype=torch.float64)
    assert float((tangent @ slope).norm()) == pytest.approx(
        1 / float((point @ shear(strength)).square().sum()), rel=1e-6
    )


def test_the_shadow_of_a_sheared_sphere():
    """S3's own picture: the shadow on the plane moves by ±s√(1 − x² − y²). A rotation's shadow has the same root,
    so that root comes from the drawing and says nothing about bending."""
    points, s = uniform(50, 3), 0.7
    matrix = torch.eye(3, dtype=torch.float64)
    matrix[2, 0] = s
    x, y, z = points.T
    root = torch.sqrt(1 - x**2 - y**2) * z.sign()
    assert torch.allclose((points @ matrix)[:, :2], torch.stack((x + s * root, y), 1))
    turn = torch.tensor([[math.cos(s), 0, -math.sin(s)], [0, 1, 0], [math.sin(s), 0, math.cos(s)]], dtype=torch.float64)
    assert torch.allclose((points @ turn)[:, 0], math.cos(s) * x + math.sin(s) * root)


def test_the_differential_is_the_derivative():
    matrix, point = gaussian(6, 4), uniform(1, 6)[0]
    v = log_map(point, uniform(3, 6, 2))
    step = 1e-6
    away = (induced(exp_map(point, step * v), matrix) - induced(point[None], matrix)) / step
    assert torch.allclose(away, v @ differential(point, matrix), atol=1e-5)


@given(st.integers(2, 9), st.integers(0, 50))
def test_log_and_exp_maps_are_inverses(n, seed):
    points = uniform(8, n, seed)
    assert torch.allclose(exp_map(points[0], log_map(points[0], points)), points, atol=1e-9)
    angles = torch.arccos((points[1:] @ points[0]).clamp(-1, 1))
    assert torch.allclose(log_map(points[0], points[1:]).norm(dim=1), angles, atol=1e-6)


def test_the_polar_factor_is_the_best_rotation_at_uniform_directions():
    matrix, x = gaussian(5, 5), uniform(200_000, 5)
    y = induced(x, matrix)
    polar, fitted = polar_factor(matrix), procrustes(x, y)
    assert (polar - fitted).abs().max() < 0.02

    def agreement(turn: torch.Tensor) -> float:
        return float((y * (x @ turn)).sum())

    rng = np.random.default_rng(3)
    for _ in range(20):
        near = polar_factor(polar + 0.2 * torch.as_tensor(rng.standard_normal((5, 5))))
        assert agreement(near) < agreement(polar)


# What is left.


def test_rotations_leave_nothing_and_gaussians_what_their_law_says():
    turn = torch.linalg.qr(gaussian(64, 64))[0]
    assert unexplained_at_uniform(3 * turn, 0).share("rotation") < 1e-12
    square = unexplained_at_uniform(gaussian(128, 128), 0)
    # Singular values of a large square Gaussian follow the quarter circle: (mean σ)²/mean σ² = (8/3π)².
    assert square.share("rotation") == pytest.approx(1 - (8 / (3 * math.pi)) ** 2, abs=0.02)


def test_bending_fades_with_dimension():
    left = [unexplained_at_uniform(gaussian(n, n), 0).share("tangent") for n in (4, 16, 64, 256)]
    assert left == sorted(left, reverse=True) and left[0] > 0.2 and left[-1] < 0.02


def test_a_fitted_tangent_map_explains_no_more_at_uniform_directions():
    """The differential at its best scale stands for all tangent-linear maps: least squares over many points is little
    better, and only in few dimensions."""
    for n, slack in ((8, 0.05), (32, 0.03)):
        matrix, x = gaussian(n, n, 5), uniform(6000, n)
        y = induced(x, matrix)
        point = torch.nn.functional.normalize(x[:384].mean(0), dim=0)
        image = induced(point[None], matrix)[0]
        inside, outside = log_map(point, x), log_map(image, y)
        best = torch.linalg.lstsq(inside[:5000], outside[:5000]).solution
        guess = exp_map(image, inside[5000:] @ best)
        centred = [v - v.mean(0) for v in (y[5000:], guess)]
        r2 = float((centred[0] * centred[1]).sum() ** 2 / (centred[0].square().sum() * centred[1].square().sum()))
        assert unexplained_at_uniform(matrix, 0).share("tangent") < 1 - r2 + slack


def test_what_is_fitted_is_not_tried_on_itself():
    """More axes than points: a rotation fitted and tried on the same half would explain what it cannot."""
    x, matrix = uniform(60, 200), gaussian(200, 200)
    documents = np.arange(60) % 12
    honest = unexplained_at(matrix, Points(x, documents, 12)).share("rotation")
    y = induced(x, matrix)
    guess = induced(x, procrustes(x, y))
    centred = [v - v.mean(0) for v in (y, guess)]
    naive = 1 - float((centred[0] * centred[1]).sum() ** 2 / (centred[0].square().sum() * centred[1].square().sum()))
    assert honest > 0.2 > naive


def test_a_common_direction_is_no_agreement():
    """Directions in a narrow cone have nearly one image, and any rotation of the cone's axis to it has a cosine near 1.
    The question is whether it maps the differences correctly."""
    axis = uniform(1, 24, 4)
    x = torch.nn.functional.normalize(axis + 0.05 * gaussian(400, 24, 6) / 24**0.5, dim=1)
    matrix = gaussian(24, 24, 7) * torch.logspace(0, -2, 24, dtype=torch.float64)
    left = unexplained_at(matrix, Points(x, np.arange(400) % 20, 20))
    guess = induced(x, procrustes(x, induced(x, matrix)))
    assert float((guess * induced(x, matrix)).sum(1).mean()) > 0.95
    assert left.share("rotation") > 0.3 and left.share("tangent") < 0.02


# On models.


@pytest.mark.usefixtures("two_twins")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_asked(name):
    whole(tried(Nonlinear(), read(tiny(name)), corpus(9, 18, vocabulary=97)))


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "opt-post"])
def test_directions_and_folded_matrices_belong_together(name):
    """What the model's own projection gives, less its constant, lies along z A for every token."""
    anatomy = read(tiny(name))
    bench = Bench(anatomy, corpus(9, 12, vocabulary=97))
    folded = fold(anatomy, 1)
    z, _ = directions(bench, ["L1.q", "L1.mlp_pre", "L1.mlp_post"])
    seen = {site: [] for site in ("L1.q", "L1.mlp_pre")}
    for batch in bench.batches():
        for site, value in bench.states(batch, list(seen)).items():
            seen[site].append(value[:, 1:].flatten(0, 1).double())
    by_name = {matrix.name: matrix for matrix in matrices(anatomy, 1)}
    q = torch.cat(seen["L1.q"]).unflatten(1, (-1, anatomy.k)) - folded.a_Q
    assert torch.allclose(
        torch.nn.functional.normalize(q.flatten(1), dim=1), induced(z["L1.q"], by_name["L1 W_Q"].values), atol=1e-4
    )
    ffn, norm = (
        anatomy.blocks[1].feed_forward,
        anatomy.blocks[1].ln2 if anatomy.order == "pre" else anatomy.blocks[1].ln1,
    )
    weight, bias = (ffn.W_in, ffn.b_in) if ffn.W_gate is None else (ffn.W_gate, ffn.b_gate)
    constant = 0 if norm.shift is None else norm.shift.double() @ weight.double()
    constant = constant if bias is None else constant + bias.double()
    pre = torch.nn.functional.normalize(torch.cat(seen["L1.mlp_pre"]) - constant, dim=1)
    inward = by_name["L1 W_in" if ffn.W_gate is None else "L1 W_gate"].values
    assert torch.allclose(pre, induced(z["L1.mlp_pre"], inward), atol=1e-4)


def test_isometries_leave_nothing_of_any_matrix():
    frame = finding_of("maps, isometries").to_frame()
    assert frame.left.max() < 1e-9 and {"folded", "raw"} == set(frame.reads)
    assert frame.rotation_uniform.max() < 1e-9


def test_the_drawn_shears_are_checked_by_their_closed_forms():
    shadow, circle = finding_of("maps, steep").quantities[:2]
    assert np.allclose(circle.values, circle.theory["cot θ' = cot θ + 1"])
    assert np.allclose(shadow.values, shadow.theory["x + s√(1 − x² − y²)"]) and closed_form_error() < 1e-13
    turned = next(iter(shadow.controls.values()))
    bent = [
        np.polyfit(shadow.coords["x before, radii"], values, 1, full=True)[1][0] for values in (shadow.values, turned)
    ]
    assert min(bent) > 1, "neither is a line"
    rows = {(row[0], row[1]): row for row in shear_table().rows}
    assert rows[2, 0.5][2] < rows[2, 1.0][2] < rows[2, 2.0][2] and rows[3, 0.0][2] < 1e-12


def test_a_rotation_is_not_linear_in_the_shadow_either():
    """Without this control, a rotation of words at several angles to their mean would act non-linearly."""
    finding = finding_of("maps, of all directions")
    frame = finding.to_frame()
    assert (frame["shadow"] > 0.1).all() and np.allclose(frame["shadow"], frame.turned, atol=0.01)
    assert finding.verdict == "refuted" and finding_of("maps, of one direction").to_frame()["shadow"].min() > 0.5


def test_the_shadow_leaves_what_the_cosine_varies_by():
    """Two opposite words at each angle: no linear map of the shadow tells the cosine, and A sends the rest to 0."""
    angles = torch.linspace(0.2, 1.4, 50, dtype=torch.float64).repeat(4)
    side = uniform(1, 5, 3)[0]
    side = torch.nn.functional.normalize(side - side[0] * torch.eye(5, dtype=torch.float64)[0], dim=0)
    sign = torch.tensor([1.0, -1, 1, -1], dtype=torch.float64).repeat_interleave(50)
    x = torch.cos(angles)[:, None] * torch.eye(5, dtype=torch.float64)[0] + (sign * torch.sin(angles))[:, None] * side
    documents = np.repeat(np.arange(4), 50) // 2 + 2 * (np.arange(200) % 2)
    alone = torch.zeros(5, 5, dtype=torch.float64)
    alone[0, 0] = 1
    assert float(unexplained(shadow_sums(alone, Points(x, documents, 4)).sum(0))) > 0.95
    turned = float(unexplained(shadow_sums(None, Points(x, documents, 4)).sum(0)))
    cosines = torch.cos(angles)
    known = float(cosines.var(correction=0) / (1 - cosines.mean() ** 2))
    assert turned == pytest.approx(known, abs=0.03)
    rotation = torch.linalg.qr(gaussian(5, 5))[0]
    assert float(unexplained(shadow_sums(rotation, Points(x, documents, 4)).sum(0))) == pytest.approx(turned, abs=1e-9)


def test_few_matrices_near_the_limit_do_not_leave_it_open():
    far, near = (0.02, 0.01, 0.03), (0.1, 0.05, 0.15)
    none, some, most = (np.arange(20) < count for count in (2, 3, 18))
    assert count_verdict(none, none, far, (0.0, -0.01, 0.005)) == ("refuted", None)
    assert count_verdict(none, none, near, (0.0, -0.01, 0.005)) == ("refuted", None), "no more than a rotation"
    assert count_verdict(none, none, near, (0.05, 0.0, 0.1)) == ("undecided", Why.SPANS_LIMIT)
    assert count_verdict(some, ~none, far, far) == ("undecided", Why.SPANS_LIMIT), "all of them may hold"
    assert (
        count_verdict(some, some, far, far)[0] == "qualified"
        and count_verdict(most, most, near, near)[0] == "supported"
    )


def test_matrices_of_zeros_are_left_out():
    anatomy = bending(0.0)
    with torch.no_grad():
        anatomy.model.transformer.h[0].mlp.c_proj.weight.zero_()
    assert "L0 W_out" not in [matrix.name for matrix in matrices(anatomy, 0)]
    whole(tried(Nonlinear(), anatomy, corpus(9, 18, vocabulary=60)))

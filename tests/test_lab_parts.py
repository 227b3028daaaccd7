"""The laboratory's parts equal their formulas, leak nothing from the future, and refuse what cannot be."""

import math

import pytest
import torch
from tiny import tiny
from torch import Tensor, nn

from armillary.anatomy.read import read
from armillary.errors import ArmillaryError, ModelError
from armillary.lab.parts import (
    ACTIVATIONS,
    LOSSY,
    MEMBERSHIPS,
    MESSAGES,
    NORMS,
    SCORES,
    Activation,
    Membership,
    MembershipAttention,
    ScoredAttention,
    Symmetriser,
    WideAttention,
    matched_feed_forward,
    new_norm,
)
from armillary.lab.parts.attention.membership import SHAPES
from armillary.lab.parts.swap import centre, swap

D, H = 24, 4
DOUBLE = torch.float64


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def perturbed(module: nn.Module) -> nn.Module:
    """No parameter at its neutral value, so that a forgotten one shows."""
    module = module.double()
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.add_(0.1 * draw(*parameter.shape, seed=index + 1))
    return module


def parts() -> dict[str, nn.Module]:
    norms = {name: new_norm(name, D) for name in NORMS}
    return norms | {f"symmetriser {m}": Symmetriser(D, H, m, rounds=2) for m in MESSAGES}


# ---- norms ----------------------------------------------------------------------------------------------


def standardised(row: Tensor, eps: float) -> Tensor:
    centred = row - row.sum() / len(row)
    return centred / (centred @ centred / len(row) + eps).sqrt()


FORMULAS = {
    "layernorm": lambda norm, row: standardised(row, norm.eps),
    "sphere": lambda norm, row: standardised(row, norm.eps),
    "rmsnorm": lambda norm, row: row / (row @ row / D + norm.eps).sqrt(),
    "subset": lambda norm, row: row / (row[:6] @ row[:6] / 6 + norm.eps).sqrt(),
    "per-head": lambda norm, row: torch.cat([standardised(part, norm.eps) for part in row.split(D // H)]),
    "dyt": lambda norm, row: torch.tanh(norm.alpha * row),
    "derf": lambda norm, row: torch.erf(norm.alpha * row + norm.offset),
    "constant": lambda norm, row: norm.scale * row,
    "removing": lambda norm, row: removed(norm, row),
}


def removed(norm: nn.Module, row: Tensor) -> Tensor:
    for direction in (before := norm.basis.double()).T:
        assert abs(float(direction @ direction) - 1) < 1e-6
    row = row - sum((row @ direction) * direction for direction in before.T)
    assert float((row @ before).abs().max()) < 1e-5
    return row / (row @ row / D + norm.eps).sqrt()


def by_hand(name: str, norm: nn.Module, x: Tensor) -> Tensor:
    """The formulas again, token by token."""
    z = torch.stack([FORMULAS[name](norm, row) for row in x.reshape(-1, D)]).reshape(x.shape)
    z = z if norm.weight is None else z * norm.weight
    return z if norm.bias is None else z + norm.bias


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_equals_its_formula(name):
    norm, x = perturbed(new_norm(name, D)), draw(2, 5, D)
    torch.testing.assert_close(norm(x), by_hand(name, norm, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", parts())
def test_gradients_are_right(name):
    norm, x = perturbed(parts()[name]), draw(3, D).requires_grad_()
    assert torch.autograd.gradcheck(norm, (x,))


@pytest.mark.parametrize("name", parts())
def test_half_precision_is_computed_in_float32(name):
    norm, x = parts()[name], 100 * draw(8, D).float()
    half = norm(x.bfloat16())
    assert half.dtype == torch.bfloat16
    # One rounding of the input and one of the output, 2^-9 each; tanh and erf at most keep a relative error of inputs.
    torch.testing.assert_close(half.float(), norm(x.bfloat16().float()), rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("name", parts())
def test_autocast_changes_nothing(name):
    norm, x = perturbed(parts()[name]).float(), draw(8, D).float()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = norm(x)
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, norm(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", parts())
def test_a_norm_of_another_width_is_refused(name):
    with pytest.raises(ValueError, match=f"width {D}"):
        parts()[name](torch.zeros(2, D + 1))


def test_layernorm_is_torch_s():
    norm = perturbed(new_norm("layernorm", D))
    torch.testing.assert_close(
        norm(draw(4, D)), nn.functional.layer_norm(draw(4, D), (D,), norm.weight, norm.bias, norm.eps)
    )


# ---- the symmetriser ------------------------------------------------------------------------------------


def exact(**settings) -> Symmetriser:
    """Enough Newton steps that only rounding is left."""
    return perturbed_gain(Symmetriser(D, H, steps=6, **settings))


def perturbed_gain(norm: Symmetriser) -> Symmetriser:
    norm = norm.double()
    with torch.no_grad():
        norm.weight.add_(0.1 * draw(D, seed=1))
        norm.bias.add_(0.1 * draw(D, seed=2))
    return norm


@pytest.mark.parametrize("messages", ["all", "learned"])
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e4])
def test_messages_to_all_are_layernorm(messages, scale):
    norm, x = exact(messages=messages), scale * (draw(50, D) + 0.3)
    expected = nn.functional.layer_norm(x, (D,), norm.weight, norm.bias, norm.eps)
    torch.testing.assert_close(norm(x), expected, rtol=1e-9, atol=1e-9)


def test_no_messages_are_a_norm_of_each_block():
    norm, x = exact(messages="none"), draw(50, D)
    other = new_norm("per-head", D, blocks=H).double()
    other.load_state_dict({"weight": norm.weight, "bias": norm.bias})
    torch.testing.assert_close(norm(x), other(x), rtol=1e-9, atol=1e-9)


def test_many_rounds_around_a_ring_reach_everybody():
    x = draw(50, D)
    apart = [(exact(messages="ring", rounds=n)(x) - exact(messages="all")(x)).abs().max() for n in (1, 4, 60)]
    assert apart[0] > apart[1] > apart[2]
    # Thirds are rounded to float32, sixty times.
    assert apart[2] < 60 * 2**-23


def test_the_recurrence_holds_over_twelve_decades_and_never_explodes():
    norm = Symmetriser(D, H).double()
    variance = torch.logspace(-6, 6, 4001, dtype=DOUBLE)
    error = (norm.inverse_root(variance) * variance.sqrt() - 1).abs()
    assert error.max() < 1e-6
    # Without range reduction Newton's step diverges from the same start.
    y = norm.start[0] + norm.start[1] * variance
    for a, b in norm.newton:
        y = y * (a - b * variance * y.square())
    assert (y * variance.sqrt() - 1).abs().max() > 1
    assert torch.isfinite(norm.inverse_root(torch.tensor([0.0, 1e-300, 1e300], dtype=DOUBLE))).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"blocks": 5}, "do not divide"),
        ({"blocks": D}, "at least two axes"),
        ({"messages": "rings"}, "ring"),
        ({"rounds": 0}, "at least 1 round"),
    ],
)
def test_impossible_symmetrisers_are_refused(settings, message):
    with pytest.raises(ArmillaryError, match=message):
        Symmetriser(D, **settings)


# ---- heads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SHAPES, "random", "learned"])
def test_memberships_are_shares(name):
    matrix = Membership(name, H, D)()
    assert (matrix >= 0).all()
    torch.testing.assert_close(matrix.sum(0), torch.ones(D))


def test_soft_heads_overlap_with_their_neighbours_only():
    for name in ("triangular", "raised sine"):
        matrix = Membership(name, 6, 48)()
        reached = (matrix > 0).reshape(6, 6, 8).any(2)
        ring = torch.eye(6) + torch.eye(6).roll(1, 1) + torch.eye(6).roll(-1, 1)
        assert torch.equal(reached, ring > 0)


def naive(attention: MembershipAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The formula with loops over heads, no cutting to the support."""
    scores = attention.scores().double()
    results = scores if attention.results is None else attention.results().double()
    mask = torch.ones(q.shape[1], q.shape[1]).tril() == 0
    out = torch.zeros_like(q)
    for m, n in zip(scores, results, strict=True):
        score = (q * m) @ k.transpose(1, 2) / m.square().sum().sqrt()
        out += n * (score.masked_fill(mask, -math.inf).softmax(-1) @ v)
    return out


@pytest.mark.parametrize("name", MEMBERSHIPS)
@pytest.mark.parametrize("results", [None, "block", "mixing"])
def test_attention_equals_its_formula(name, results):
    attention = MembershipAttention(Membership(name, H, D), results and Membership(results, H, D))
    attention = perturbed(attention)
    q, k, v = (draw(2, 7, D, seed=i) for i in range(3))
    torch.testing.assert_close(attention(q, k, v), naive(attention, q, k, v), rtol=1e-10, atol=1e-10)


def ordinary(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    split = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in (q, k, v))
    return nn.functional.scaled_dot_product_attention(*split, is_causal=True).transpose(1, 2).flatten(-2)


@pytest.mark.parametrize("name", ["block", "free", "mixing"])
def test_blocks_are_ordinary_heads_forward_and_backward(name):
    attention = MembershipAttention(Membership(name, H, D)).double()
    ours, theirs = ([draw(2, 7, D, seed=i).requires_grad_() for i in range(3)] for _ in range(2))
    torch.testing.assert_close(attention(*ours), ordinary(*theirs), rtol=1e-12, atol=1e-12)
    for inputs, function in ((ours, attention), (theirs, ordinary)):
        (function(*inputs) * draw(2, 7, D, seed=9)).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-10)


def test_talking_heads_before_and_after_the_softmax():
    """Scores mixed before, patterns mixed after: written out with explicit mixtures of heads."""
    attention = perturbed(MembershipAttention(Membership("mixing", H, D), Membership("mixing", H, D)))
    q, k, v = (draw(1, 7, D, seed=i) for i in range(3))
    before, after = attention.scores.mixture, attention.results.mixture
    split = [part.unflatten(-1, (H, -1)).transpose(1, 2) for part in (q, k, v)]
    score = torch.einsum("hg,bgst->bhst", before, split[0] @ split[1].mT)
    score = score / (before.square().sum(1) * D / H).sqrt()[:, None, None]
    pattern = score.masked_fill(torch.ones(7, 7).tril() == 0, -math.inf).softmax(-1)
    # Head g's values are read by the mixture of patterns with weights after[:, g].
    mixed = torch.einsum("hg,bhst,bgtc->bgsc", after, pattern, split[2])
    torch.testing.assert_close(attention(q, k, v), mixed.transpose(1, 2).flatten(-2), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", MEMBERSHIPS)
def test_the_future_never_leaks(name):
    attention = perturbed(MembershipAttention(Membership(name, H, D)))
    q, k, v = (draw(1, 6, D, seed=i).requires_grad_() for i in range(3))
    out = attention(q, k, v)
    for t in range(6):
        for gradient in torch.autograd.grad(out[0, t].sum(), (q, k, v), retain_graph=True):
            assert gradient[0, t + 1 :].abs().max() == 0 if t < 5 else True


def test_unit_variance_stays_unit_variance():
    for name in MEMBERSHIPS:
        matrix = perturbed(Membership(name, H, D))().detach()
        q, k = draw(4000, D), draw(4000, D, seed=1)
        score = (q * k) @ matrix.T.double() / matrix.double().square().sum(1).sqrt()
        # The variance of a variance of 4000 products is at most 8/4000 here; four standard errors.
        assert (score.var(0) - 1).abs().max() < 0.2


def test_cost_grows_with_overlap():
    sizes = {
        name: MembershipAttention(Membership(name, 8, 64)).axes.shape[1] for name in ("block", "triangular", "free")
    }
    assert sizes == {"block": 8, "triangular": 16, "free": 64}


def test_rotated_pairs_share_their_membership():
    for name in MEMBERSHIPS:
        matrix = perturbed(Membership(name, H, D, pairs=True))()
        first, second = matrix.unflatten(1, (H, 2, -1)).unbind(2)
        torch.testing.assert_close(first, second)


def test_a_head_without_axes_is_uniform_and_silent():
    attention = MembershipAttention(Membership("free", H, D)).double()
    with torch.no_grad():
        attention.scores.matrix[1] = 0
    q, k, v = (draw(1, 6, D, seed=i) for i in range(3))
    assert torch.isfinite(attention(q, k, v)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Membership("block", 5, D), "do not divide"),
        (lambda: Membership("blocks", H, D), "block"),
        (lambda: Membership("triangular", 2, D), "at least 3 heads"),
        (lambda: Membership("block", 8, D, pairs=True), "odd"),
        (lambda: MembershipAttention(Membership("block", H, D), Membership("block", H, 2 * D)), "must agree"),
        (lambda: ScoredAttention("dots", H, D), "no score 'dots'"),
        (lambda: ScoredAttention("dot", 5, D), "do not divide"),
        (lambda: Activation("gelus"), "gelu"),
        (lambda: matched_feed_forward(D, 4 * D, H, D), "fewer or narrower"),
        (lambda: WideAttention(D, 5, 4, 2, block_diagonal=True), "do not divide"),
        (lambda: WideAttention(D, H, 0, 2), "positive sizes"),
        (lambda: WideAttention(D, 1, D + 1, 2), "more than the 24 axes"),
        (lambda: new_norm("removing", D, m=D), "cannot be removed"),
        (lambda: swap(tiny("gpt2"), heads="block", head_width=4), "give one of them"),
        (lambda: swap(tiny("gpt2"), heads="block", score="dot"), "not both"),
    ],
)
def test_impossible_heads_are_refused(make, message):
    with pytest.raises(ArmillaryError, match=message):
        make()


# ---- scores ---------------------------------------------------------------------------------------------


def score_by_hand(attention: ScoredAttention, q: Tensor, k: Tensor, head: int) -> Tensor:
    """[query, key] of one head, pair by pair."""
    tau = 1.0 if attention.log_temperature is None else attention.log_temperature[head].exp()
    k = q if attention.score == "own angle" else k
    cosine = lambda a, b: a @ b / (a.norm() * b.norm())  # noqa: E731
    formulas = {
        "dot": lambda a, b: a @ b / math.sqrt(len(a)),
        "cosine": lambda a, b: tau * cosine(a, b),
        "angle": lambda a, b: -tau * torch.arccos(cosine(a, b).clamp(-1 + 1e-6, 1 - 1e-6)),
        "own angle": lambda a, b: -tau * torch.arccos(cosine(a, b).clamp(-1 + 1e-6, 1 - 1e-6)),
        "distance": lambda a, b: -tau * (a - b).square().sum() / (2 * math.sqrt(len(a))),
    }
    return torch.stack([torch.stack([formulas[attention.score](a, b) for b in k]) for a in q])


@pytest.mark.parametrize("score", SCORES)
def test_a_score_equals_its_formula(score):
    attention = perturbed(ScoredAttention(score, H, D))
    q, k, v = (draw(1, 7, D, seed=i) for i in range(3))
    mask, width = torch.ones(7, 7).tril() == 0, D // H
    expected = torch.zeros_like(q)
    for head in range(H):
        cut = slice(head * width, (head + 1) * width)
        scores = score_by_hand(attention, q[0, :, cut], k[0, :, cut], head)
        expected[0, :, cut] = scores.masked_fill(mask, -math.inf).softmax(-1) @ v[0, :, cut]
    torch.testing.assert_close(attention(q, k, v), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("score", SCORES)
def test_scores_have_right_gradients_and_see_no_future(score):
    attention = perturbed(ScoredAttention(score, H, D))
    q, k, v = (draw(1, 6, D, seed=i).requires_grad_() for i in range(3))
    assert torch.autograd.gradcheck(attention, (q, k, v))
    out = attention(q, k, v)
    for t in range(5):
        for gradient in torch.autograd.grad(out[0, t].sum(), (q, k, v), retain_graph=True, allow_unused=True):
            assert gradient is None or gradient[0, t + 1 :].abs().max() == 0


@pytest.mark.parametrize("score", SCORES)
def test_scores_in_half_precision_stay_near(score):
    attention = ScoredAttention(score, H, D)
    q, k, v = (draw(2, 20, D, seed=i).float().bfloat16() for i in range(3))
    half, whole = attention(q, k, v), attention(*(part.float() for part in (q, k, v)))
    assert half.dtype == torch.bfloat16
    # Scores of up to about 10 are rounded to 2^-9 of themselves, values and results to 2^-9.
    torch.testing.assert_close(half.float(), whole, rtol=0.05, atol=0.05)


def test_dot_scores_are_ordinary_heads():
    q, k, v = (draw(2, 7, D, seed=i) for i in range(3))
    torch.testing.assert_close(ScoredAttention("dot", H, D)(q, k, v), ordinary(q, k, v), rtol=1e-12, atol=1e-12)


# ---- widths ---------------------------------------------------------------------------------------------


def test_heads_of_ordinary_width_are_ordinary_heads():
    attention = perturbed(WideAttention(D, H, D // H, layers=2))
    x = draw(2, 7, D)
    weight = attention.read.weight.unflatten(-1, (3, -1)).permute(2, 1, 0, 3).reshape(3, D, D)
    bias = attention.read.bias.reshape(H, 3, -1).transpose(0, 1).reshape(3, D)
    q, k, v = (x @ w + b for w, b in zip(weight, bias, strict=True))
    torch.testing.assert_close(attention(x)[0], attention.write(ordinary(q, k, v)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("block_diagonal", [False, True])
def test_wide_heads_have_right_gradients_and_see_no_future(block_diagonal):
    attention = perturbed(WideAttention(D, H, 9, layers=2, block_diagonal=block_diagonal))
    x = draw(1, 5, D).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: attention(x)[0], (x,))
    out = attention(x)[0]
    for t in range(4):
        (gradient,) = torch.autograd.grad(out[0, t].sum(), x, retain_graph=True)
        assert gradient[0, t + 1 :].abs().max() == 0


def test_a_block_sees_its_own_axes_alone():
    attention = perturbed(WideAttention(D, H, 5, layers=2, block_diagonal=True))
    x = draw(1, 4, D).requires_grad_()
    query = attention.read(x)[0].reshape(1, 4, H, 5)
    for head in range(H):
        (gradient,) = torch.autograd.grad(query[:, :, head].sum(), x, retain_graph=True)
        seen = (gradient[0].abs().sum(0) > 0).reshape(H, -1).all(1)
        assert seen.tolist() == [head == other for other in range(H)]


@pytest.mark.parametrize(("heads", "k"), [(4, 3), (4, 12), (8, 3), (1, 24)])
def test_another_width_keeps_the_parameters_of_a_layer(heads, k):
    inner = matched_feed_forward(D, 4 * D, heads, k)
    ordinary_layer, new = 4 * D * D + 8 * D * D, 4 * D * heads * k + 2 * D * inner
    assert ordinary_layer == new
    matrices = [p for p in WideAttention(D, heads, k, 2).parameters() if p.dim() > 1]
    assert sum(p.numel() for p in matrices) == 4 * D * heads * k


# ---- activations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_can_be_inverted_unless_it_destroys(name):
    x = torch.linspace(-8, 8, 4001, dtype=DOUBLE)
    rises = (Activation(name)(x).diff() > 0).all()
    assert rises == (name not in LOSSY)
    assert torch.autograd.gradcheck(Activation(name), ((draw(50) + 0.01).requires_grad_(),))


def test_activations_equal_their_formulas():
    x = draw(200)
    for name, formula in {
        "relu": x * (x > 0),
        "relu2": x * x * (x > 0),
        "leaky": torch.where(x > 0, x, x / 2),
        "leaky 0.1": torch.where(x > 0, x, x / 10),
        "wave": x + 0.9 * x.sin(),
        "signed root": x.sign() * 2 * ((1 + x.abs()) ** 0.5 - 1),
        "absolute": x * x.sign(),
        "identity": x,
        "gelu": 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    }.items():
        torch.testing.assert_close(Activation(name)(x), formula, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_neox", "bert", "opt", "phi", "gemma2"])
def test_an_activation_is_swapped_in_every_family_read_and_undone(family):
    model = tiny(family).double().eval()
    before = logits_of(model)
    own = read(model).blocks[0].feed_forward.activation_name
    with swap(model, activation="wave"):
        assert read(model).blocks[0].feed_forward.activation_name == "wave"
        assert (logits_of(model) - before).abs().max() > 1e-9
    assert read(model).blocks[0].feed_forward.activation_name == own
    assert torch.equal(logits_of(model), before)


# ---- swapping -------------------------------------------------------------------------------------------

IDS = torch.randint(0, 97, (2, 12), generator=torch.Generator().manual_seed(3))


def logits(model) -> Tensor:
    return model(input_ids=IDS, use_cache=False).logits


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_neox", "bert"])
def test_a_norm_swapped_for_its_equal_changes_nothing_and_is_undone(family):
    model = tiny(family).double().eval()
    own = "rmsnorm" if family == "llama" else "layernorm"
    before, eps = logits_of(model), next(iter(read(model).norms.values())).eps
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    with swap(model, norm=own, eps=eps):
        # Hugging Face's RMSNorm computes in float32 whatever it is given.
        close = 1e-5 if family == "llama" else 1e-9
        torch.testing.assert_close(logits_of(model), before, rtol=close, atol=close)
        assert read(model).norms.keys() == read(tiny(family)).norms.keys()
    assert torch.equal(logits_of(model), before)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def logits_of(model) -> Tensor:
    with torch.no_grad():
        return model(input_ids=IDS)[0]


def test_on_a_centred_stream_rmsnorm_is_layernorm():
    model = tiny("gpt2").double().eval()
    before = logits_of(model)
    centre(model)
    torch.testing.assert_close(logits_of(model), before, rtol=1e-9, atol=1e-9)
    eps = model.config.layer_norm_epsilon
    shifts = {path: module.bias for path, module in model.named_modules() if isinstance(module, nn.LayerNorm)}
    with torch.no_grad():
        for shift in shifts.values():
            shift.zero_()
    without = logits_of(model)
    with swap(model, norm="rmsnorm", eps=eps):
        torch.testing.assert_close(logits_of(model), without, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in MEMBERSHIPS if n not in ("block", "free", "mixing")])
def test_other_heads_change_the_model_and_are_undone(name):
    model = tiny("gpt2").double().eval()
    if model.config.n_head < 3 and name in ("triangular", "raised sine"):
        with pytest.raises(ArmillaryError, match="at least 3 heads"):
            swap(model, heads=name)
        return
    before = logits_of(model)
    with swap(model, heads=name):
        assert (logits(model) - before).abs().max() > 1e-6
    assert torch.equal(logits_of(model), before)


def test_a_score_swapped_for_the_dot_product_changes_nothing():
    model = tiny("gpt2").double().eval()
    before = logits(model)
    with swap(model, score="dot"):
        torch.testing.assert_close(logits(model), before, rtol=1e-9, atol=1e-9)
    with swap(model, score="own angle"):
        assert (logits(model) - before).abs().max() > 1e-6
    assert torch.equal(logits_of(model), before)


def test_attention_may_have_its_own_alpha():
    model = tiny("gpt2")
    with swap(model, norm="dyt", alpha=0.2, attention_alpha=0.8):
        norms = {site: model.get_submodule(read(model).sites[site].path) for site in read(model).norms}
        assert {site: round(norm.alpha.item(), 3) for site, norm in norms.items()} == {
            site: 0.8 if site.endswith("ln1") else 0.2 for site in norms
        }


@pytest.mark.parametrize("name", ["block", "free", "mixing"])
def test_block_heads_are_the_model_s_own_forward_and_backward(name):
    model = tiny("gpt2").double().eval()
    loss = logits(model).logsumexp(-1).sum()
    loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    with swap(model, heads=name):
        swapped = logits(model).logsumexp(-1).sum()
        torch.testing.assert_close(swapped, loss, rtol=1e-10, atol=1e-10)
        swapped.backward()
        for n, p in model.named_parameters():
            if n in gradients:
                torch.testing.assert_close(p.grad, gradients[n], rtol=1e-8, atol=1e-10)


def test_what_cannot_be_swapped_is_refused_and_nothing_is_left_behind():
    gemma, llama, gpt = tiny("gemma2").eval(), tiny("llama").eval(), tiny("gpt2").eval()
    with pytest.raises(ModelError, match="γ − 1"):
        swap(gemma, norm="layernorm")
    with pytest.raises(ModelError, match="GPT-2 models so far"):
        swap(llama, head_width=4)
    for family, why in (("phi", "another way"), ("opt", "another way"), ("gemma2", "scaled by")):
        with pytest.raises(ModelError, match=why):
            swap(tiny(family), heads="block")
    with pytest.raises(ArmillaryError, match="alpha belong"):
        swap(gpt, heads="block", alpha=1.0)
    before = logits_of(gpt)
    with pytest.raises(ArmillaryError, match="no membership"):
        swap(gpt, norm="rmsnorm", heads="blocks")
    assert torch.equal(logits_of(gpt), before)
    with pytest.raises(ArmillaryError, match=r"3 heads do not divide a width of \d+; choose another n_heads, or give"):
        swap(gpt, n_heads=3)
    assert torch.equal(logits_of(gpt), before)

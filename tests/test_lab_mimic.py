"""A Symmetriser learns LayerNorm from a random start, on every scale, and cannot explode."""

import pytest
import torch
from tiny import tiny
from torch.nn.functional import layer_norm

from armillary.anatomy.read import read
from armillary.errors import ArmillaryError
from armillary.lab.parts.mimic import (
    Lessons,
    errors,
    gaussian,
    imitate,
    mimicked,
    mimics,
    rows_of,
    standard,
    states_of,
    transferred,
)
from armillary.lab.parts.swap import swap
from armillary.lab.parts.symmetriser import MESSAGES, Symmetriser, operations

D, H = 32, 4
TARGET = standard(True, 1e-5)
IDS = torch.randint(0, 97, (4, 24), generator=torch.Generator().manual_seed(3))


def seeded(seed: int = 0, **settings) -> Symmetriser:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Symmetriser(D, H, **settings)


def rows(decades: float = 6.0, n: int = 1000, seed: int = 77) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    return Lessons(decades=decades).scaled(gaussian(D)(n, draws), draws)


def error(norm, x) -> float:
    with torch.no_grad():
        return float(errors(norm, TARGET, x).mean())


@pytest.fixture(scope="module")
def learned():
    return {messages: mimicked(D, messages=messages, blocks=H) for messages in MESSAGES}


def test_the_target_is_layernorm():
    x = rows()
    torch.testing.assert_close(TARGET(x), layer_norm(x, (D,), eps=1e-5))
    unmoved = standard(False, 1e-5)(x)
    torch.testing.assert_close(unmoved, x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt())


@pytest.mark.parametrize("messages", ["all", "learned"])
def test_a_random_start_learns_layernorm_if_all_are_heard(learned, messages):
    before = error(seeded(messages=messages, start="random"), rows())
    assert before > 0.05
    assert error(learned[messages], rows()) < 0.01


def test_restricted_messages_cost_and_more_of_them_cost_less(learned):
    errors = {messages: error(learned[messages], rows()) for messages in MESSAGES}
    assert errors["none"] > errors["ring"] > 10 * errors["all"]
    assert errors["none"] > errors["subset"] > 10 * errors["all"]


def test_learned_messages_become_messages_to_all(learned):
    heard = learned["learned"].heard().detach()
    assert float((heard - 1 / H).abs().max()) < 0.02
    assert float((seeded(messages="learned", start="random").heard().detach() - 1 / H).abs().max()) > 0.1


def test_the_error_is_the_same_on_scales_that_were_never_seen(learned):
    """Range reduction maps every variance to [1, 4); ε matters at small scales, and the target has it, too."""
    near, far = error(learned["all"], rows(6.0)), error(learned["all"], rows(18.0))
    assert far < 2 * near + 1e-5


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [0.0, 1.0, 1e3])
def test_no_coefficients_make_it_explode(seed, size):
    """Whatever was learned, the output is between a quarter and four times LayerNorm's."""
    norm, x = Symmetriser(D, H), rows(12.0)
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in norm.learned().values():
            parameter.copy_(size * torch.randn(parameter.shape, generator=draws))
        ratio = norm(x).norm(dim=-1) / TARGET(x).norm(dim=-1)
    assert float(ratio.min()) > 0.24
    assert float(ratio.max()) < 4.01


def test_without_range_reduction_the_same_lessons_explode():
    class Unreduced(Symmetriser):
        def inverse_root(self, variance):
            y = self.start[0] + self.start[1] * variance
            for a, b in self.newton:
                y = y * (a - b * variance * y.square())
            return y

    norm = Unreduced(D, H)
    imitate({"": norm}, {"": TARGET}, {"": gaussian(D)}, Lessons(steps=20))
    assert not error(norm, rows()) < 1


def test_what_cannot_be_computed_is_nan_and_never_a_wrong_number():
    norm = Symmetriser(D, H)
    x = rows(0.0, 20)
    with torch.no_grad():
        for scale in (1e-30, 1e-10, 1e10, 1e18):
            torch.testing.assert_close(norm(x * scale), TARGET(x * scale), rtol=1e-4, atol=1e-4)
        # Squares overflow in float32.
        assert norm(x * 1e25).isnan().all()
        assert torch.equal(norm(torch.zeros(1, D)), torch.zeros(1, D))
        assert norm(torch.full((1, D), torch.inf)).isnan().all()


def test_a_start_outside_the_bounds_finds_its_way_back():
    norm = Symmetriser(D, H)
    with torch.no_grad():
        norm.newton[:, 0] = 6.0
        norm.newton[:, 1] = 0.1
        # Every variance is cut off: 6 − 0.1·4·4 is more than 1, so y only grows.
        assert torch.equal(norm.inverse_root(torch.linspace(1, 3.99, 50)), torch.full((50,), 2.0))
    before = error(norm, rows())
    imitate({"": norm}, {"": TARGET}, {"": gaussian(D)}, Lessons(rate=0.3))
    assert error(norm, rows()) < before / 10


def test_misaligned_blocks_are_blocks_of_permuted_axes():
    norm = seeded(messages="ring", aligned=False).double()
    plain = seeded(messages="ring").double()
    x = rows().double()
    assert sorted(norm.order.tolist()) == list(range(D))
    expected = torch.empty_like(x)
    expected[:, norm.order] = plain(x[:, norm.order])
    torch.testing.assert_close(norm(x), expected, rtol=1e-12, atol=1e-12)
    assert (norm(x) - plain(x)).abs().max() > 0.01
    all_heard, aligned = seeded(aligned=False).double(), seeded().double()
    torch.testing.assert_close(all_heard(x), aligned(x), rtol=1e-9, atol=1e-9)


def test_without_centring_messages_to_all_are_rmsnorm():
    norm, x = Symmetriser(D, H, centred=False, steps=6).double(), rows().double()
    torch.testing.assert_close(norm(x), standard(False, 1e-5)(x), rtol=1e-9, atol=1e-9)


def test_the_cost_is_what_is_multiplied_and_added():
    assert operations(Symmetriser(D, H, "none", steps=0)) == 5 * D + 2 * H
    more = operations(Symmetriser(D, H, "all", steps=0)) - operations(Symmetriser(D, H, "none", steps=0))
    assert more == 2 * H * H
    assert operations(Symmetriser(D, H, "ring", rounds=3)) - operations(Symmetriser(D, H, "ring")) == 2 * 2 * 3 * H


def test_shared_parameters_are_one_and_stay_one():
    model = tiny("gpt2").double().eval()
    own = sum(p.numel() for p in swapped_norms(model, messages="learned", blocks=2))
    shared = swapped_norms(model, messages="learned", blocks=2, shared=True)
    sites, each = len(read(model).norms), 2 + 8 + 4
    assert own - sum(p.numel() for p in shared) == (sites - 1) * each


def swapped_norms(model, **settings) -> list[torch.nn.Parameter]:
    """The parameters of a model's swapped norms, each once."""
    with swap(model, norm="symmetriser", **settings):
        paths = [read(model).sites[site].path for site in read(model).norms]
        return list({id(p): p for path in paths for p in model.get_submodule(path).parameters()}.values())


def test_another_width_adopts_what_was_learned(learned):
    wide = Symmetriser(2 * D, H, "learned")
    wide.adopt(learned["learned"])
    x = torch.cat([rows(), rows(seed=78)], -1)
    assert error(wide, x) < 0.01
    with pytest.raises(ArmillaryError, match="same messages, blocks and steps"):
        Symmetriser(D, 2 * H, "learned").adopt(learned["learned"])
    with pytest.raises(ArmillaryError, match="same messages"):
        Symmetriser(D, H, "all").share(learned["learned"])


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_neox"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_model_whose_norms_were_learned_computes_nearly_the_same(family, shared):
    model = tiny(family).eval()
    anatomy = read(model)
    settings = {"messages": "learned", "blocks": 2}
    with torch.no_grad():
        before = model(input_ids=IDS).logits
        short, long = (
            mimics(anatomy, IDS, shared=shared, lessons=Lessons(steps=steps, rate=5e-2), **settings)
            for steps in (2, 200)
        )
        unlearned, learned = (apart(model, before, norm=norms) for norms in (short, long))
        assert learned < 0.2 * unlearned
        assert torch.equal(model(input_ids=IDS).logits, before)


def apart(model, before, **parts) -> float:
    """How far a swap moves the logits, as a share of their length."""
    with swap(model, **parts):
        return float((model(input_ids=IDS).logits - before).norm() / before.norm())


def test_what_one_model_taught_serves_another():
    teacher, other = tiny("gpt2").eval(), tiny("llama").eval()
    norms = mimics(read(teacher), IDS, lessons=Lessons(steps=200), messages="all", blocks=2)
    moved = transferred(norms, read(other), messages="all", blocks=2)
    with torch.no_grad():
        before = other(input_ids=IDS).logits
        with swap(other, norm=moved):
            assert (other(input_ids=IDS).logits - before).norm() / before.norm() < 0.05
    with pytest.raises(ArmillaryError, match="no Symmetriser"):
        transferred({}, read(other))


def test_a_mimic_start_follows_the_seed_and_is_near_layernorm():
    model = tiny("gpt2").eval()
    with torch.no_grad():
        before, logits = model(input_ids=IDS).logits, []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            with swap(model, norm="symmetriser", start="mimic", messages="all", blocks=2):
                logits.append(model(input_ids=IDS).logits)
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])
    assert (logits[0] - before).norm() / before.norm() < 0.05


def test_states_are_what_norms_receive():
    model = tiny("gpt2").eval()
    anatomy = read(model)
    states = states_of(anatomy, IDS)
    assert states.keys() == anatomy.norms.keys()
    embedded = anatomy.W_E[IDS] + anatomy.positions.table[: IDS.shape[1]]
    torch.testing.assert_close(states["L0.ln1"], embedded.flatten(0, 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lessons(steps=0), "at least one step"),
        (lambda: rows_of(torch.zeros(0, 3)), "with rows"),
        (lambda: rows_of(torch.full((2, 3), torch.nan)), "finite"),
        (lambda: Symmetriser(D, H, start="newtons"), "newton"),
        (lambda: swap(tiny("gpt2"), norm={"L0.ln1": Symmetriser(D)}), "ln_final"),
    ],
)
def test_impossible_lessons_are_refused(make, message):
    with pytest.raises(ArmillaryError, match=message):
        make()

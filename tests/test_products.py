"""The faster library gives what the model's own products give, and leaves no trace."""

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from armillary.flow.capture import still
from armillary.flow.machine import products
from armillary.flow.machine.products import fast_products
from armillary.geometry import multiply
from armillary.geometry.multiply import ROWS_LEAST, prefers_onednn, times

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this build of PyTorch has no oneDNN",
)
ROUNDING = torch.finfo(torch.float32).eps


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """oneDNN whatever the processor; counts the products that it computes."""
    calls: list[int] = []
    computed = multiply._computed

    def counting(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        calls.append(x.numel())
        return computed(x, weight, bias)

    for module in (products, multiply):
        monkeypatch.setattr(module, "prefers_onednn", lambda: True)
    monkeypatch.setattr(multiply, "_computed", counting)
    return calls


def drawn(module: nn.Module) -> nn.Module:
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return module


def layers() -> dict[str, nn.Module]:
    return {
        "linear": drawn(nn.Linear(192, 320)),
        "without a bias": drawn(nn.Linear(192, 320, bias=False)),
        "Conv1D": drawn(Conv1D(320, 192)),
    }


def exact(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """In float64, and the bound on float32's error: (k + 2) roundings of the sum of sizes."""
    weight = module.weight.detach().double() if isinstance(module, nn.Linear) else module.weight.detach().double().T
    bias = torch.zeros(len(weight)).double() if module.bias is None else module.bias.detach().double()
    sizes = x.detach().double().abs() @ weight.abs().T + bias.abs()
    return x.detach().double() @ weight.T + bias, (x.shape[-1] + 2) * ROUNDING * sizes


@pytest.mark.parametrize("name", list(layers()))
@pytest.mark.parametrize("layout", ["rows", "windows", "strided", "transposed"])
def test_products_are_those_of_float64_within_rounding(name: str, layout: str, chosen: list[int]) -> None:
    module, draw = layers()[name], torch.Generator().manual_seed(1)
    x = {
        "rows": lambda: torch.randn(64, 192, generator=draw),
        "windows": lambda: torch.randn(3, 40, 192, generator=draw),
        "strided": lambda: torch.randn(3, 40, 384, generator=draw)[..., ::2],
        "transposed": lambda: torch.randn(40, 3, 192, generator=draw).transpose(0, 1),
    }[layout]()
    with still(module):
        product = module(x)
    truth, bound = exact(module, x)
    assert len(chosen) == 1, "oneDNN was not used"
    assert product.shape == truth.shape
    assert ((product.double() - truth).abs() <= bound).all()


@pytest.mark.parametrize("name", list(layers()))
def test_gradients_of_what_a_layer_receives_are_exact(name: str, chosen: list[int]) -> None:
    module = layers()[name].requires_grad_(False)
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(3, 40, 192, generator=draw, requires_grad=True)
    weights = torch.randn(3, 40, 320, generator=draw)
    with fast_products(module):
        (gradient,) = torch.autograd.grad((module(x) * weights).sum(), x)
    weight = module.weight.double() if isinstance(module, nn.Linear) else module.weight.double().T
    bound = (weights.shape[-1] + 2) * ROUNDING * (weights.double().abs() @ weight.abs())
    assert len(chosen) == 2, "forward and backward, both by oneDNN"
    assert ((gradient.double() - weights.double() @ weight).abs() <= bound).all()


def test_weights_that_learn_are_left_to_autograd(chosen: list[int]) -> None:
    module, x = layers()["linear"], torch.randn(64, 192)
    with fast_products(module):
        module(x).square().sum().backward()
    assert not chosen
    assert module.weight.grad is not None and bool((module.weight.grad != 0).any())


def test_small_products_and_other_types_are_left_alone(chosen: list[int]) -> None:
    module = layers()["linear"]
    with still(module):
        module(torch.randn(ROWS_LEAST - 1, 192))
        module(torch.randn(0, 192))
    double = drawn(nn.Linear(192, 320)).double()
    with still(double):
        double(torch.randn(64, 192).double())
    assert not chosen


def test_modules_are_left_as_they_were(chosen: list[int]) -> None:
    class Own(nn.Linear):
        """Somebody's own kind: what it computes is not known."""

    model = nn.Sequential(drawn(nn.Linear(192, 320)), Own(320, 320), nn.Linear(320, 192))
    model[2].forward = own = lambda x: x.sum(-1)
    before = [dict(vars(module)) for module in model.modules()]

    def stopped() -> None:
        with still(model), still(model):
            assert "forward" in vars(model[0])
            assert "forward" not in vars(model[1])
            assert model[2].forward is own
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stopped()
    assert [dict(vars(module)) for module in model.modules()] == before


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_products_with_words_are_those_of_float64(layout: str, chosen: list[int]) -> None:
    draw = torch.Generator().manual_seed(3)
    x, words = torch.randn(70, 96, generator=draw), torch.randn(500, 96, generator=draw)
    words = words if layout == "rows" else words.T.contiguous().T
    product = times(x, words)
    bound = (96 + 2) * ROUNDING * (x.double().abs() @ words.double().abs().T)
    assert len(chosen) == 1
    assert ((product.double() - x.double() @ words.double().T).abs() <= bound).all()


@pytest.mark.parametrize(("vendor", "capability", "expected"), [
    ("AuthenticAMD", "AVX512", True),
    ("AuthenticAMD", "AVX2", False),
    ("GenuineIntel", "AVX512", False),
])  # fmt: skip
def test_the_processor_alone_decides(
    vendor: str, capability: str, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    cores = tmp_path / "cpuinfo"
    cores.write_text(f"processor : 0\nvendor_id : {vendor}\n\nprocessor : 1\nvendor_id : {vendor}\n")
    monkeypatch.setattr(multiply, "Path", lambda name: cores)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    prefers_onednn.cache_clear()
    try:
        assert prefers_onednn() is (expected and torch.backends.mkl.is_available())
    finally:
        prefers_onednn.cache_clear()

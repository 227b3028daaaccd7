"""Which norms are compared? Each maps vectors of width d to vectors of width d, computes in float32 at least, and
returns the dtype it was given."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from armillary.errors import ArmillaryError, nearest


def in_float32(x: Tensor) -> Tensor:
    """Half precision is too coarse for a sum over the width; float64 stays what it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class _Norm(nn.Module):
    """Gain and shift around what a norm computes.

    `geometry` tells a model's reader which sphere it is: LayerNorm's, RMSNorm's, or none that is known ('').
    """

    geometry = ""

    def __init__(self, width: int, eps: float = 1e-5, shift: bool = False, gain: bool = True) -> None:
        super().__init__()
        if width < 1:
            raise ArmillaryError(f"a norm needs a width of at least 1, got {width}.")
        self.width, self.eps = width, eps
        self.weight = nn.Parameter(torch.ones(width)) if gain else None
        self.bias = nn.Parameter(torch.zeros(width)) if shift else None

    def core(self, x: Tensor) -> Tensor:
        """What the norm computes, without gain and shift."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.width:
            raise ValueError(f"this norm has width {self.width}; the input has width {x.shape[-1]}")
        # Products of a norm stay in float32 where autocast would round them to half precision.
        with torch.autocast(x.device.type, enabled=False):
            z = self.core(in_float32(x))
            z = z if self.weight is None else z * self.weight
            return (z if self.bias is None else z + self.bias).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.width}, eps={self.eps:g}"


class LayerNorm(_Norm):
    """(x − mean)/√(variance + ε), times γ, plus β."""

    geometry = "layernorm"

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__(width, eps, shift=True)

    def core(self, x: Tensor) -> Tensor:
        return _standardised(x, self.eps)


class RMSNorm(_Norm):
    """x/√(mean square + ε), times γ."""

    geometry = "rmsnorm"

    def core(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)


class SphereNorm(_Norm):
    """LayerNorm without gain and shift: the sphere alone."""

    geometry = "layernorm"

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__(width, eps, gain=False)

    def core(self, x: Tensor) -> Tensor:
        return _standardised(x, self.eps)


class PerHeadNorm(_Norm):
    """LayerNorm of each of `blocks` equal runs of axes by itself: a product of small spheres, not one large one."""

    def __init__(self, width: int, eps: float = 1e-5, blocks: int = 4) -> None:
        super().__init__(width, eps, shift=True)
        if blocks < 1 or width % blocks or width // blocks < 2:
            raise ArmillaryError(
                f"{blocks} blocks do not divide a width of {width} into runs of at least two axes; choose others."
            )
        self.blocks = blocks

    def core(self, x: Tensor) -> Tensor:
        return _standardised(x.reshape(*x.shape[:-1], self.blocks, -1), self.eps).flatten(-2)


class SubsetNorm(_Norm):
    """RMSNorm whose mean square is taken over the first `share` of the axes."""

    def __init__(self, width: int, eps: float = 1e-5, share: float = 0.25) -> None:
        super().__init__(width, eps)
        if not 0 < share <= 1:
            raise ArmillaryError(f"the share of axes must lie between 0 and 1, got {share}.")
        self.seen = max(1, round(share * width))

    def core(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x[..., : self.seen].square().mean(-1, keepdim=True) + self.eps)


class DyT(_Norm):
    """γ·tanh(αx) + β: no statistic of the token at all (Zhu et al. 2025, arXiv 2503.10622)."""

    def __init__(self, width: int, eps: float = 0.0, alpha: float = 0.5) -> None:
        super().__init__(width, eps, shift=True)
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))

    def core(self, x: Tensor) -> Tensor:
        return torch.tanh(self.alpha * x)


class Derf(_Norm):
    """γ·erf(αx + s) + β, the same with the error function (Chen et al. 2025)."""

    def __init__(self, width: int, eps: float = 0.0, alpha: float = 0.5) -> None:
        super().__init__(width, eps, shift=True)
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))
        self.offset = nn.Parameter(torch.tensor(0.0))

    def core(self, x: Tensor) -> Tensor:
        return torch.erf(self.alpha * x + self.offset)


class RemovingNorm(_Norm):
    """LayerNorm that removes `m` directions more than the mean: random ones, the same for a width and a seed."""

    basis: Tensor

    def __init__(self, width: int, eps: float = 1e-5, m: int = 1, seed: int = 0) -> None:
        super().__init__(width, eps, shift=True)
        if not 0 <= m < width - 1:
            raise ArmillaryError(f"of {width} axes and their mean, {m} directions cannot be removed.")
        drawn = torch.randn(width, m, generator=torch.Generator().manual_seed(seed))
        ones = torch.ones(width, 1)
        self.register_buffer("basis", torch.linalg.qr(torch.cat([ones, drawn], 1))[0])

    def core(self, x: Tensor) -> Tensor:
        basis = self.basis.to(x.dtype)
        left = x - (x @ basis) @ basis.mT
        return left * torch.rsqrt(left.square().mean(-1, keepdim=True) + self.eps)


class ConstantNorm(_Norm):
    """x times one learned number, then γ and β: the gain and shift of LayerNorm without any sphere."""

    def __init__(self, width: int, eps: float = 0.0) -> None:
        super().__init__(width, eps, shift=True)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def core(self, x: Tensor) -> Tensor:
        return x * self.scale


def take_affine(norm: nn.Module, gain: Tensor | None, shift: Tensor | None) -> None:
    """Gain and shift where the norm has a place for them."""
    with torch.no_grad():
        for name, value in (("weight", gain), ("bias", shift)):
            parameter = getattr(norm, name, None)
            if parameter is not None and value is not None and parameter.shape == value.shape:
                parameter.copy_(value)


def _standardised(x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)


NORMS: Mapping[str, Callable[..., _Norm]] = {
    "layernorm": LayerNorm,
    "rmsnorm": RMSNorm,
    "sphere": SphereNorm,
    "per-head": PerHeadNorm,
    "subset": SubsetNorm,
    "dyt": partial(DyT, eps=0.0),
    "derf": partial(Derf, eps=0.0),
    "constant": partial(ConstantNorm, eps=0.0),
    "removing": RemovingNorm,
}


def new_norm(name: str, width: int, **settings: float) -> nn.Module:
    """A norm by name; 'symmetriser' takes its own settings (`lab.parts.symmetriser`)."""
    from armillary.lab.parts.symmetriser import Symmetriser

    known: dict[str, Callable[..., nn.Module]] = {**NORMS, "symmetriser": Symmetriser}
    if name not in known:
        raise ArmillaryError(f"there is no norm {name!r}; {nearest(name, known)}")
    return known[name](width, **settings)

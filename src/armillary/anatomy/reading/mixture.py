"""Read a mixture of experts into canonical form, where its family's table says its parts are."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from armillary.anatomy.families import Family
from armillary.anatomy.families.family import Experts
from armillary.anatomy.parts import FeedForward, Routed, Router
from armillary.errors import ModelError

Activation = tuple[Callable[[Tensor], Tensor], str]


def routed(block: nn.Module, family: Family, config: Any, activation: Activation) -> Routed:
    table = family.experts
    assert table is not None
    return Routed(
        router=_router(block, table, config),
        experts=_experts(block.get_submodule(table.experts), table, activation),
        shared=_gated(block.get_submodule(table.shared), activation) if table.shared else None,
        shared_gate=_matrix(block, table.shared_gate) if table.shared_gate else None,
    )


def _matrix(block: nn.Module, path: str) -> Tensor:
    weight: Tensor = block.get_submodule(path).get_parameter("weight")
    return weight.detach().T


def _router(block: nn.Module, table: Experts, config: Any) -> Router:
    module: Any = block.get_submodule(table.router)
    bias, groups = getattr(module, "bias", None), table.groups(config)
    score: Any = table.score(config)
    group_by: Any = table.group_by
    return Router(
        W=module.weight.detach().T,
        bias=None if bias is None else bias.detach(),
        top=table.top(config),
        score=score,
        renormalised=table.renormalised(config),
        scale=table.scale(config),
        correction=getattr(module, table.correction).detach() if table.correction else None,
        groups=groups[0],
        top_groups=groups[1],
        group_by=group_by,
    )


def _experts(module: Any, table: Experts, activation: Activation) -> tuple[FeedForward, ...]:
    """The experts' weights lie in one tensor each: [e, 2m, d] and [e, d, m], or transposed."""
    gate_up, down = getattr(module, table.gate_up).detach(), getattr(module, table.down).detach()
    if not table.transposed:
        gate_up, down = gate_up.mT, down.mT
    m = down.shape[1]
    if gate_up.shape[2] != 2 * m:
        raise ModelError(
            f"experts of {m} hidden values need {2 * m} columns of gate and factor, not {gate_up.shape[2]}."
        )
    gate, up = (slice(0, None, 2), slice(1, None, 2)) if table.interleaved else (slice(0, m), slice(m, None))
    inner = getattr(module, f"{table.gate_up}_bias").detach() if table.biased else None
    outer = getattr(module, f"{table.down}_bias").detach() if table.biased else None
    return tuple(
        FeedForward(
            W_in=gate_up[e][:, up],
            W_out=down[e],
            b_in=None if inner is None else inner[e][up],
            b_out=None if outer is None else outer[e],
            activation=table.activation or activation[0],
            activation_name=activation[1],
            W_gate=gate_up[e][:, gate],
            b_gate=None if inner is None else inner[e][gate],
            factor=table.factor,
        )
        for e in range(len(down))
    )


def _gated(module: Any, activation: Activation) -> FeedForward:
    """Llama's feed-forward layer, as shared experts are."""
    up, down, gate = (layer.weight.detach().T for layer in (module.up_proj, module.down_proj, module.gate_proj))
    b_up, b_down, b_gate = (
        None if layer.bias is None else layer.bias.detach()
        for layer in (module.up_proj, module.down_proj, module.gate_proj)
    )
    return FeedForward(up, down, b_up, b_down, *activation, gate, b_gate)

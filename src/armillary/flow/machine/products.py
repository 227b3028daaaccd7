"""How are a model's linear maps computed on this processor? By the library that multiplies faster."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from armillary.geometry.multiply import fast_product, pays, prefers_onednn


@contextmanager
def fast_products(model: nn.Module, modules: Sequence[nn.Module] | None = None) -> Iterator[None]:
    """Inside, the model's linear maps of float32 on the CPU are computed by the faster library; outside, as ever.

    Equal to rounding. No weight is changed or copied. Where a gradient of a weight is asked for, the module's own code
    runs. `modules` are those of the model, where the caller has listed them already.
    """
    changed, first = [], next(model.parameters(), None)
    on_cpu = first is not None and first.device.type == "cpu"
    if on_cpu and prefers_onednn() and torch.backends.mkldnn.enabled:
        for module in model.modules() if modules is None else modules:
            forward = _KINDS.get(type(module))
            # A module with a forward of its own is somebody else's: offloaded, patched, or changed already.
            if forward is not None and "forward" not in vars(module) and _suits(module):
                # Not `module.forward = …`: a module looks at all its parameters when an attribute is set.
                vars(module)["forward"] = partial(forward, module)
                changed.append(module)
    try:
        yield
    finally:
        for module in changed:
            vars(module).pop("forward", None)


def _suits(module: nn.Module) -> bool:
    weight: Any = module.weight
    return weight.dtype is torch.float32 and weight.device.type == "cpu" and type(weight) in (Tensor, nn.Parameter)


def _linear(module: nn.Linear, input: Tensor) -> Tensor:
    if not pays(input, module.weight, module.bias):
        return nn.Linear.forward(module, input)
    return fast_product(input, module.weight, module.bias)


def _conv1d(module: Conv1D, x: Tensor) -> Tensor:
    if not pays(x, module.weight, module.bias):
        result: Tensor = Conv1D.forward(module, x)
        return result
    return fast_product(x, module.weight.T, module.bias)


_KINDS: dict[type, Callable[..., Tensor]] = {nn.Linear: _linear, Conv1D: _conv1d}

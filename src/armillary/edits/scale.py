"""What if the stream were shorter or longer at one place?"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from armillary.anatomy import Anatomy


@contextmanager
def scaled(anatomy: Anatomy, layer: int, factor: float, positions: slice = slice(None)) -> Iterator[None]:
    """Multiply the stream after block `layer` by `factor` while inside; the model is itself again afterwards."""
    site = anatomy.sites[f"L{layer}.resid_post"]

    def scale(module: nn.Module, args: Any, output: Any) -> Any:
        stream = (output[0] if isinstance(output, tuple) else output).clone()
        stream[:, positions] *= torch.as_tensor(factor, dtype=stream.dtype)
        return (stream, *output[1:]) if isinstance(output, tuple) else stream

    handle = anatomy.model.get_submodule(site.path).register_forward_hook(scale)
    try:
        yield
    finally:
        handle.remove()

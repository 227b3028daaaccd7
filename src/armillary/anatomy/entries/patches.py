"""How does a model that reads images or sound start its stream? Read from its modules, as its family's table says."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from armillary.anatomy.entries.signal import Signal, placeholders
from armillary.anatomy.families import Family
from armillary.anatomy.families.family import Patches
from armillary.anatomy.reading.modules import optional, submodule
from armillary.errors import ModelError


def signal_of(inner: nn.Module, family: Family, config: Any) -> Signal | None:
    """The table of a model's patches, with random rows for a start; None where it reads text."""
    table = family.patches
    if table is None:
        return None
    return _sound(inner, family, table, config) if table.sense == "sound" else _images(inner, family, table, config)


def position_table(inner: nn.Module, family: Family) -> Tensor | None:
    """What is added at every place of the input [t, d]; zeros for tokens that have no position."""
    table = family.patches
    if table is None or not table.positions:
        return None
    positions = optional(inner, table.positions)
    rows = getattr(positions, "weight", positions).detach()
    rows = rows.reshape(-1, rows.shape[-1])
    registers = _tokens(inner, (table.registers,)) if table.registers else rows[:0]
    own = len(_tokens(inner, table.own)) if table.own else 0
    return torch.cat((rows[:own], torch.zeros_like(registers), rows[own:])) if len(registers) else rows


def _tokens(inner: nn.Module, paths: tuple[str, ...]) -> Tensor:
    tokens = [optional(inner, path).detach() for path in paths]
    return torch.cat([token.reshape(-1, token.shape[-1]) for token in tokens])


def _behind(inner: nn.Module, table: Patches, config: Any) -> Signal:
    """Tokens that several layers make of an image, each from a square of pixels and its surroundings."""
    assert table.front is not None
    side, channels = table.side(config), int(config.num_channels)
    front = _Front(table.front(inner, config), (channels, side, side))
    weight = next(inner.parameters()).detach()
    return Signal(
        sense="images",
        argument=table.argument,
        channels=channels,
        grid=(config.image_size // side, config.image_size // side),
        patch=(side, side),
        own=front.alone(weight.new_zeros(1, channels * side**2))[:0],
        embed=front.alone,
        table=placeholders(channels * side**2, weight),
        joined=front,
    )


class _Front:
    """What makes the stream of whole inputs, and of single rows, each as an input of its own.

    A class, and no closure, because models travel to other processes.
    """

    def __init__(self, front: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
        self.front, self.shape = front, shape

    def __call__(self, whole: Tensor) -> Tensor:
        with torch.no_grad():
            return self.front(whole)

    def alone(self, rows: Tensor) -> Tensor:
        return self(rows.reshape(-1, *self.shape))[:, 0]


def _images(inner: nn.Module, family: Family, table: Patches, config: Any) -> Signal:
    if table.front is not None:
        return _behind(inner, table, config)
    layer = submodule(inner, table.projection, family)
    weight, bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
    d, channels, height, width = weight.shape
    if tuple(layer.stride) != (height, width):
        raise ModelError(f"patches of this {family.model_type} model overlap, which is not understood.")
    size = config.image_size
    tall, wide = (size, size) if isinstance(size, int) else size
    paths = (*table.own, *((table.registers,) if table.registers else ()))
    return Signal(
        sense="images",
        argument=table.argument,
        channels=channels,
        grid=(tall // height, wide // width),
        patch=(height, width),
        own=_tokens(inner, paths) if paths and optional(inner, paths[0]) is not None else weight.new_zeros(0, d),
        embed=_Projection(weight.flatten(1).T, bias),
        table=placeholders(channels * height * width, weight),
    )


class _Projection:
    """rows @ W + b; a class, because models travel to other processes."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, rows: Tensor) -> Tensor:
        vectors = rows @ self.weight
        return vectors if self.bias is None else vectors + self.bias


def _sound(inner: nn.Module, family: Family, table: Patches, config: Any) -> Signal:
    """Two convolutions over spectra, the second of which skips every other: a token is two spectra."""
    layers = [submodule(inner, path, family) for path in table.projection.split()]
    bands = layers[0].weight.shape[1]
    front = _Front(_Convolutions(layers), (bands, 2))
    return Signal(
        sense="sound",
        argument=table.argument,
        channels=bands,
        grid=(1, config.max_source_positions),
        patch=(1, 2),
        own=layers[0].weight.new_zeros(0, layers[-1].weight.shape[0]),
        embed=front.alone,
        table=placeholders(2 * bands, layers[0].weight),
        joined=front,
    )


class _Convolutions:
    """Convolutions with GELU behind each: [b, bands, spectra] → [b, t, d]."""

    def __init__(self, layers: list[Any]) -> None:
        self.layers = [(layer.weight.detach(), layer.bias.detach(), layer.stride, layer.padding) for layer in layers]

    def __call__(self, spectra: Tensor) -> Tensor:
        for weight, bias, stride, padding in self.layers:
            spectra = functional.gelu(functional.conv1d(spectra, weight, bias, stride, padding))
        return spectra.transpose(1, 2)

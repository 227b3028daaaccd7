"""Are an edit's settings possible? Kinds are checked when it is made, ranges when it meets a model."""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, get_args

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.errors import ArmillaryError, nearest


def check_whole(name: str, value: Any, least: int | None = None) -> None:
    """Refuse what is not a whole number, or is below the least one.

    >>> check_whole("layer", "x")
    Traceback (most recent call last):
    armillary.errors.ArmillaryError: `layer` must be a whole number; got 'x'.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or (least is not None and int(value) < least):
        limit = "" if least is None else f", {least} or more"
        raise ArmillaryError(f"`{name}` must be a whole number{limit}; got {value!r}.")


def check_number(name: str, value: Any) -> None:
    """Refuse what is not a finite number."""
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise ArmillaryError(f"`{name}` must be a finite number; got {value!r}.")


def check_finite(name: str, values: Tensor) -> None:
    """Refuse a tensor with NaN or infinite entries.

    >>> check_finite("scale", torch.tensor([1.0, torch.nan]))
    Traceback (most recent call last):
    armillary.errors.ArmillaryError: `scale` must be finite; 1 of its 2 entries is NaN or infinite.
    """
    lost = int((~torch.isfinite(values)).sum())
    if lost:
        are = "is" if lost == 1 else "are"
        raise ArmillaryError(f"`{name}` must be finite; {lost} of its {values.numel()} entries {are} NaN or infinite.")


def check_literal(name: str, value: Any, literal: Any) -> None:
    """Refuse what is not one of the literal's names.

    >>> from typing import Literal
    >>> check_literal("how", "zeros", Literal["zero", "mean"])
    Traceback (most recent call last):
    armillary.errors.ArmillaryError: `how` cannot be 'zeros'; did you mean 'zero'?
    """
    known = get_args(literal)
    if value not in known:
        raise ArmillaryError(f"`{name}` cannot be {value!r}; {nearest(str(value), known)}")


def check_layer(anatomy: Anatomy, layer: int, first: int = 0) -> None:
    """Refuse a layer that this model does not have."""
    if not first <= layer < anatomy.layers:
        before = " (−1 stands for what the first block receives)" if first == -1 else ""
        raise ArmillaryError(
            f"there is no layer {layer}: the model has {anatomy.layers}, 0 to {anatomy.layers - 1}{before}."
        )


def check_heads(anatomy: Anatomy, heads: Iterable[int]) -> None:
    """Refuse a head that a layer of this model does not have."""
    for head in heads:
        if not 0 <= head < anatomy.n_heads:
            raise ArmillaryError(f"there is no head {head}: a layer has {anatomy.n_heads}, 0 to {anatomy.n_heads - 1}.")

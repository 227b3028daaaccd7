"""The named places of a model, and what each of them delivers.

Names are the field's: `L3.ln1`, `L3.attn_out`, `L3.resid_post`, `ln_final`. A site is the input, the output or the
attention pattern of one Hugging Face module; `armillary anatomy` prints the map. Each name promises a shape:

    q, z                  [b, t, n_heads, k]
    k, v                  [b, t, n_kv_heads, k]
    mlp_pre, mlp_up,
    mlp_post              [b, t, m]
    pattern               [b, n_heads, t, t]
    all others            [b, t, d]
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from armillary.errors import ModelError

Side = Literal["input", "output", "pattern"]


def _split(x: Tensor, runs: int, width: int) -> Tensor:
    """The last axis as runs of equal width; −1 for either means whatever fits."""
    return x.reshape(*x.shape[:-1], runs, width)


@dataclass(frozen=True)
class Cut:
    """Columns `start` to `stop` of each of `groups` equal runs of columns.

    >>> Cut(2, 1, 3).take(torch.tensor([0, 1, 2, 3, 4, 5]))
    tensor([1, 2, 4, 5])
    >>> Cut(2, 1, 3).put(torch.tensor([9, 9, 9, 9]), torch.tensor([0, 1, 2, 3, 4, 5]))
    tensor([0, 9, 9, 3, 9, 9])
    """

    groups: int
    start: int
    stop: int

    def take(self, x: Tensor, k: int = 0) -> Tensor:
        """Those columns of x, split into heads of width k if k is given."""
        runs = _split(x, self.groups, -1)[..., self.start : self.stop]
        return _split(runs, -1, k).flatten(-3, -2) if k else runs.flatten(-2)

    def put(self, part: Tensor, whole: Tensor) -> Tensor:
        """`whole` with its columns replaced by `part`."""
        rows, new = _split(whole, self.groups, -1), _split(part, self.groups, -1)
        return torch.cat((rows[..., : self.start], new, rows[..., self.stop :]), -1).flatten(-2)


@dataclass(frozen=True)
class Site:
    """One named place: `side` of the module at `path` (as in `model.get_submodule`)."""

    name: str
    path: str
    side: Side
    cut: Cut | None = None
    """Which columns belong to this site, where one module computes several."""
    k: int = 0
    """Head width, where the value has one vector per head."""
    scale: float = 1.0
    """The value is the module's times this: what is added to the stream, where a model multiplies its writes."""
    index: int = 0
    """Which of several outputs."""

    @property
    def layer(self) -> int | None:
        """The block's number, or None outside the blocks.

        >>> Site("L12.ln1", "h.12.ln_1", "output").layer
        12
        """
        head, dot, _ = self.name.partition(".")
        return int(head[1:]) if dot and head[:1] == "L" and head[1:].isdigit() else None

    def take(self, x: Tensor) -> Tensor:
        """The site's value [b, t, …] out of what its module received or gave."""
        try:
            x = x if self.scale == 1 else x * self.scale
            if self.cut is not None:
                return self.cut.take(x, self.k)
            return _split(x, -1, self.k) if self.k else x
        except RuntimeError as error:
            raise ModelError(
                f"{self.name} cannot be cut out of the {x.shape[-1]} columns at {self.path} (cut {self.cut}, head "
                f"width {self.k}): check the layout in the family's table."
            ) from error

    def put(self, value: Tensor, x: Tensor) -> Tensor:
        """`x`, what the module received or gave, with the site's value replaced."""
        value = value.reshape(*x.shape[:-1], -1)
        value = value if self.scale == 1 else value / self.scale
        return (value if self.cut is None else self.cut.put(value, x)).reshape(x.shape)


class RowLayout:
    """Tensors as [b, t, …], also where a module works on flattened rows (OPT's feed-forward) or on a plane of pixels
    [b, d, h, w] or [b, h, w, d] (ConvNeXt)."""

    def __init__(self) -> None:
        self._batch: tuple[int, int] | None = None
        self._plane: tuple[int, ...] = ()

    def see(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        stream = received(args, kwargs)
        if stream is not None and stream.ndim == 4:
            self._batch, self._plane = (stream.shape[0], stream.shape[2] * stream.shape[3]), tuple(stream.shape[2:])
        elif stream is not None:
            self._batch, self._plane = (stream.shape[0], stream.shape[1]), ()

    def __call__(self, x: Tensor) -> Tensor:
        if self._plane and x.ndim == 4:
            return x.flatten(2).transpose(1, 2) if self._channels_first(x) else x.flatten(1, 2)
        return x.reshape(*self._batch, x.shape[-1]) if self._batch and x.ndim == 2 else x

    def undone(self, rows: Tensor, x: Tensor) -> Tensor:
        """The rows of `x` in the shape that `x` has."""
        if self._plane and x.ndim == 4 and self._channels_first(x):
            rows = rows.transpose(1, 2)
        return rows.reshape(x.shape)

    def _channels_first(self, x: Tensor) -> bool:
        return tuple(x.shape[2:]) == self._plane


@contextmanager
def restored_rows(model: nn.Module, sites: Mapping[str, Site]) -> Iterator[RowLayout]:
    """What gives tensors as [b, t, …] while the model runs."""
    rows = RowLayout()
    handle = model.get_submodule(sites["L0.resid_pre"].path).register_forward_pre_hook(rows.see, with_kwargs=True)
    try:
        yield rows
    finally:
        handle.remove()


def received(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    """The tensor that a module works on, or None."""
    first = args[0] if args else kwargs.get("hidden_states", next(iter(kwargs.values()), None))
    return first if isinstance(first, Tensor) else None


def site_named(sites: Mapping[str, Site], name: str) -> Site:
    """The site of this name; an unknown name is an error that lists the known ones."""
    if name in sites:
        return sites[name]
    layers = len({site.layer for site in sites.values()} - {None})
    known = [part for part in sites if part.startswith("L0.") or "." not in part]
    raise ModelError(
        f"there is no site {name!r} in this model; it has {', '.join(known)} (L0 stands for L0 to L{layers - 1})."
    )

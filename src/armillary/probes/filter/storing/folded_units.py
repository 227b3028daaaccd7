"""Keys and values of a layer's units on the sphere: of a dense feed-forward, or of all experts side by side."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from armillary.probes.filter.expert_parts import parts_of

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy, Routed
    from armillary.anatomy.folded import FoldedForward
    from armillary.anatomy.norm import Norm


@dataclass(frozen=True, eq=False)
class FoldedUnits:
    """All units of one layer, with the norm before it folded in."""

    parts: "dict[str, FoldedForward]"
    mixture: "Routed | None"
    norm: "Norm"
    site: str
    """Of that norm."""

    @cached_property
    def keys(self) -> "Tensor":
        """[d, all keys], part by part."""
        import torch

        return torch.cat([part.keys for part in self.parts.values()], 1)

    @cached_property
    def values(self) -> "Tensor":
        """[all units, d]."""
        import torch

        return torch.cat([part.W_out for part in self.parts.values()])

    @property
    def names(self) -> list[str]:
        """[all units]: the unit's number, behind its expert's name in a mixture."""
        return [
            f"{name}:{unit}" if name else str(unit)
            for name, part in self.parts.items()
            for unit in range(len(part.W_out))
        ]

    def activated(self, matches: "Tensor") -> "Tensor":
        """Hidden coordinates [..., all units] from products with the keys, without the router's weights."""
        import torch

        each = torch.split(matches, [part.keys.shape[1] for part in self.parts.values()], -1)
        active = [part.activated(some) for part, some in zip(self.parts.values(), each, strict=True)]
        return active[0] if len(active) == 1 else torch.cat(active, -1)

    def weights(self, x: "Tensor") -> "Tensor | None":
        """[n, part] by which the router weighs the parts for rows x of the stream; None in a dense layer."""
        return None if self.mixture is None else self.mixture.weights(self.norm(x))

    def per_unit(self, weights: "Tensor") -> "Tensor":
        """[n, all units] from weights [n, part]."""
        import torch

        sizes = torch.tensor([len(part.W_out) for part in self.parts.values()], device=weights.device)
        return weights.repeat_interleave(sizes, 1)

    def only(self, name: str) -> "FoldedUnits":
        """One expert alone, every token of which has it."""
        return FoldedUnits({"": self.parts[name]}, None, self.norm, self.site)


def fold_units(anatomy: "Anatomy", layer: int) -> FoldedUnits:
    from armillary.anatomy import Routed
    from armillary.anatomy.folded import fold_forward

    channels = anatomy.blocks[layer].channels
    parts = {name: fold_forward(anatomy, layer, part=part) for name, part in parts_of(channels).items()}
    first = next(iter(parts.values()))
    assert first.norm is not None, "claims about stores do not apply where a layer reads the stream itself"
    return FoldedUnits(parts, channels if isinstance(channels, Routed) else None, first.norm, first.reads.site)

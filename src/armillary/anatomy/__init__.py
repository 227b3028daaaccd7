"""A model's weights in one canonical geometric form.

Names are imported on first use, so that listing models needs no torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.anatomy.anatomy import Anatomy, Attention, Block, FeedForward, Head, Opaque, Positions, Routed
    from armillary.anatomy.norm import Norm
    from armillary.anatomy.sites import Site

__all__ = ["Anatomy", "Attention", "Block", "FeedForward", "Head", "Norm", "Opaque", "Positions", "Routed", "Site"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'armillary.anatomy' has no attribute {name!r}")
    home = {"Norm": "norm", "Site": "sites"}.get(name, "anatomy")
    return getattr(import_module(f"armillary.anatomy.{home}"), name)

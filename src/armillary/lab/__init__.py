"""Train small models whose geometry is measured during training: text → tokens → model → checkpoints."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.lab.parts.swap import swap

__all__ = ["swap"]


def __getattr__(name: str) -> Any:
    """`armillary.lab.swap`, without torch for those who do not ask for it."""
    if name == "swap":
        from armillary.lab.parts.swap import swap

        return swap
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

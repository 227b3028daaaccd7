"""What do heads look like, in numbers and in words? Tables and pictures of any model, no verdicts.

from armillary import load, readouts
model = load("builtin:gpt")
print(readouts.heads(model, layer=3, head=2))
readouts.paper(model).save("tables/")

Imported when first asked for: the command line reads nothing heavy to print its help.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.readouts.paper.experiments import paper
    from armillary.readouts.sheets import heads

__all__ = ["heads", "paper"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'armillary.readouts' has no attribute {name!r}")
    home = {"heads": "sheets", "paper": "experiments"}[name]
    return getattr(import_module(f"armillary.readouts.{home}"), name)

"""Tables and figures of any model's attention heads and of a sentence's trajectory, without verdicts.

from armillary import load, readouts
model = load("builtin:gpt")
print(readouts.heads(model, layer=3, head=2))
readouts.paper(model).save("tables/")

Both functions are imported on first use: the command line prints its help without torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.readouts.experiments.paper import paper
    from armillary.readouts.head_sheet import heads

__all__ = ["heads", "paper"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    modules = {"heads": "head_sheet", "paper": "experiments.paper"}
    if name not in modules:
        raise AttributeError(f"module 'armillary.readouts' has no attribute {name!r}")
    return getattr(import_module(f"armillary.readouts.{modules[name]}"), name)

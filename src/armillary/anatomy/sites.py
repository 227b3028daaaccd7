"""What are the places in a model called, and where does Hugging Face keep them?

Names are the field's: `L3.ln1`, `L3.attn_out`, `L3.resid_post`, `ln_final`. A site is the input or the output of
one Hugging Face module; the map is printed by `armillary anatomy`.
"""

from dataclasses import dataclass
from typing import Literal

Side = Literal["input", "output"]


@dataclass(frozen=True)
class Site:
    """One named place: `side` of the module at `path` (as in `model.get_submodule`)."""

    name: str
    path: str
    side: Side
    part: int | None = None
    """Which of q, k and v, where one module gives all three."""

    @property
    def layer(self) -> int | None:
        """The block's number, or None outside the blocks.

        >>> Site("L12.ln1", "h.12.ln_1", "output").layer
        12
        """
        head, dot, _ = self.name.partition(".")
        return int(head[1:]) if dot and head[:1] == "L" and head[1:].isdigit() else None

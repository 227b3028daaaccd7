"""What can go wrong that a user can put right?

Each error is one sentence: what was asked, what was found, what to do. The command line prints it and exits
with 2; a Python caller catches `ArmillaryError` or, as with any bad argument, `ValueError`.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class ArmillaryError(ValueError):
    """A request that cannot be carried out as given."""


class ModelError(ArmillaryError):
    """A model that cannot be found, read, trusted or understood."""


class BrokenWeightsError(ModelError):
    """A model with weights that hold NaN, infinity, or numbers whose products overflow."""

    def __init__(self, message: str, peaks: dict[str, float]) -> None:
        super().__init__(message)
        self.peaks = peaks
        """Weight → largest magnitude, NaN where one is."""


class LawError(ModelError):
    """A model whose anatomy does not reproduce its own computation."""


class ValuesError(ArmillaryError):
    """Values of a pass that contain NaN or infinity: no statistic of them means anything."""


class TextError(ArmillaryError):
    """A text that cannot be read or is empty."""


class SpaceError(ArmillaryError):
    """Vectors of two spaces brought together."""


class WordError(ArmillaryError):
    """A word that is not one token of the vocabulary."""


class OutputError(ArmillaryError):
    """A result that cannot be written or read back."""


class ClusterError(ArmillaryError):
    """Workers that cannot be reached, or that died with the work."""


def ending(path: Path) -> str:
    """How a file's name ends, for a message that asks for another ending.

    >>> ending(Path("a.doc")), ending(Path("a"))
    ("ends in '.doc'", 'has no ending')
    """
    return f"ends in {path.suffix!r}" if path.suffix else "has no ending"


def nearest(asked: str, known: Iterable[str]) -> str:
    """The end of an 'unknown name' message: the nearest known names, or all of them.

    >>> nearest("sphere.radios", ["sphere.radius", "spectrum.local"])
    "did you mean 'sphere.radius'?"
    """
    names = sorted(known)
    close = get_close_matches(asked, names, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(repr(name) for name in close) + "?"
    return "known: " + ", ".join(names) + "."

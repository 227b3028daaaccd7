"""What of a pass outlives its process? The states of every arm, segment by segment, in a folder.

A long text is read in segments whether anybody keeps states or not, and their states are added in the text's order: a
pass that was killed and resumed adds the same numbers in the same order as one that was not.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import OutputError
from armillary.probes.machinery.instrument import AnyInstrument
from armillary.results.store import file_name, write_whole

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus

SECONDS = 30.0
"""How much work a kill may cost, beyond the segment that was being read. A shorter pass is not kept at all."""
States = dict[AnyInstrument, Any]


class KeptPass:
    """States in `folder`, of one model, text and list of instruments: others are refused."""

    def __init__(self, folder: Path, key: str, every: float = SECONDS) -> None:
        self._folder, self._key, self._every = folder, key, every
        self._saved = time.monotonic()
        self._waiting: dict[str, tuple[int, States]] = {}

    def keep(self, arm: str, segments: int, states: States) -> None:
        """Of the first segments of an arm; on disk, with all that wait, when enough time has passed."""
        self._waiting[arm] = segments, states
        if time.monotonic() - self._saved >= self._every:
            write_whole({self._path(name): self._content(*waiting) for name, waiting in self._waiting.items()})
            self._waiting, self._saved = {}, time.monotonic()

    def _content(self, segments: int, states: States) -> bytes:
        from safetensors.torch import save

        parts = [(place, state.arrays()) for place, state in enumerate(states.values())]
        arrays = {f"{place}/{name}": array.contiguous() for place, part in parts for name, array in part.items()}
        return save(arrays, {"key": self._key, "segments": str(segments)})

    def load(self, arm: str, states: States) -> int:
        """Fill empty states with those of the first segments of an arm, and answer how many segments those are."""
        from safetensors import SafetensorError, safe_open

        path = self._path(arm)
        if not path.exists():
            return 0
        try:
            with safe_open(path, "pt") as file:
                facts = file.metadata() or {}
                if facts.get("key") != self._key:
                    raise OutputError(
                        f"{path} belongs to another model, text, seed or version; resume with the settings it was made "
                        "with, or delete that folder."
                    )
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            for place, state in enumerate(states.values()):
                state.load(_below(arrays, f"{place}/"))
            return int(facts["segments"])
        except (SafetensorError, KeyError, ValueError, RuntimeError, OSError) as error:
            raise OutputError(f"{path} is damaged ({error}); delete it, and its part is read again.") from error

    def _path(self, arm: str) -> Path:
        return self._folder / file_name(arm, ".safetensors")


def _below(arrays: "Mapping[str, Tensor]", prefix: str) -> "dict[str, Tensor]":
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def pass_key(anatomy: "Anatomy", corpus: "Corpus", instruments: Sequence[AnyInstrument], seed: int) -> str:
    """What the states of a pass depend on: the model, the text, the settings and the versions."""
    import torch
    import transformers

    from armillary import __version__
    from armillary.anatomy.facts import describe

    versions = (__version__, torch.__version__, transformers.__version__)
    settings = (versions, describe(anatomy), str(anatomy.device), str(anatomy.dtype), seed, list(instruments))
    digest = hashlib.sha256(repr(settings).encode())
    for window in corpus.windows:
        digest.update(repr((window.document, window.prefix, window.suffix)).encode())
        digest.update(torch.tensor(window.ids).numpy().tobytes())
    return digest.hexdigest()

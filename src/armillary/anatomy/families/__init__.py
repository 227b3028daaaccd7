"""The Hugging Face architectures that Armillary knows: one small table each, and those of installed packages.

An outside package adds families by the entry point group `armillary.families`; each entry point is named for its
`model_type` and loads to a `Family` or a tuple of them.
"""

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from armillary.anatomy.families import bert, encoders, experts, mixers, own_kinds, two_stacks, vision
from armillary.anatomy.families.decoders import alibi, gemma, gpt2, gpt_kin, gpt_neox, llama, llama_kin, opt, phi, phi3
from armillary.anatomy.families.family import Family
from armillary.errors import ModelError

FAMILIES: tuple[Family, ...] = (
    gpt2.FAMILY,
    llama.FAMILY,
    llama.MISTRAL,
    llama.QWEN2,
    llama.QWEN3,
    phi.FAMILY,
    phi3.FAMILY,
    gpt_neox.FAMILY,
    *gemma.FAMILIES,
    opt.FAMILY,
    *llama_kin.FAMILIES,
    *gpt_kin.FAMILIES,
    *alibi.FAMILIES,
    *experts.FAMILIES,
    *mixers.FAMILIES,
    bert.FAMILY,
    *encoders.FAMILIES,
    *vision.FAMILIES,
    *own_kinds.FAMILIES,
    *two_stacks.FAMILIES,
)
GROUP = "armillary.families"
# Architectures of several parts that are read one at a time, the first unless another is asked for: name → path.
PARTS: dict[str, dict[str, str]] = {
    "clip": {"vision": "vision_model", "text": "text_model"},
    **{
        family.model_type.partition(".")[0]: {"encoder": "encoder model.encoder", "decoder": "decoder model.decoder"}
        for family in two_stacks.FAMILIES
        if family.stack is not None
    },
}
# Parts that need the whole model beside them: a decoder reads its encoder.
WITH_WHOLE = frozenset({"decoder"})
# Architectures that are known and cannot be read, by the concept that is missing.
MISSING = {
    **dict.fromkeys(("wav2vec2", "hubert"), "a waveform as input, with convolutions and their norms before the stream"),
    **dict.fromkeys(("beit", "convnextv2", "swin"), "a stream of images that changes its size, or biases of its own"),
    **dict.fromkeys(("gemma3", "llava", "qwen2_vl"), "images among the tokens of a text"),
    "siglip": "two towers that are not CLIP's",
    "llama4_text": "attention by chunks, and scores that depend on absolute positions",
    "xlnet": "two streams of attention",
    "longformer": "attention by blocks beside global tokens",
    "big_bird": "attention by random blocks",
    "reformer": "attention by hashing",
    "funnel": "a stream that changes its length",
    "openelm": "layers of different sizes",
    "gemma3n_text": "several streams side by side",
    "diffllama": "attention that is the difference of two patterns",
    "bitnet": "norms between heads and their output projection, and between hidden values and theirs",
    "nanochat": "one norm that is applied twice, and q/k-norms behind the rotation",
    "prophetnet": "several streams that each predict another next token",
}

__all__ = ["FAMILIES", "GROUP", "PARTS", "Family", "family_for", "family_of"]


def family_for(model: Any) -> Family:
    """The table of a live model, or of one stack of a model that has several."""
    name, config = type(model).__name__, model.config
    for family in FAMILIES:
        if family.stack is not None and family.stack(name, config):
            return family
    return family_of(config.model_type)


def family_of(model_type: str) -> Family:
    """The table of an architecture: a built-in one, else that of an installed package."""
    for family in FAMILIES:
        if family.model_type == model_type:
            return family
    tables, failures = _installed()
    if model_type in tables:
        return tables[model_type]
    if model_type in failures:
        raise ModelError(
            f"the family {model_type!r} is announced by an installed package and cannot be loaded "
            f"({failures[model_type]}); repair or remove that package."
        )
    if model_type in PARTS:
        raise ModelError(
            f"{model_type!r} models have several parts, which are read one at a time ({', '.join(PARTS[model_type])}); "
            "add # and its name to the model's, or pass part=… to `armillary.load`."
        )
    if model_type in MISSING:
        raise ModelError(
            f"the architecture {model_type!r} cannot be read: it needs {MISSING[model_type]}, which is not understood "
            "yet; `armillary models --families` lists those that can."
        )
    known = ", ".join([*(family.model_type for family in FAMILIES), *tables])
    broken = "".join(f" The installed family {name!r} cannot be loaded ({why})." for name, why in failures.items())
    raise ModelError(
        f"the architecture {model_type!r} is not one Armillary knows ({known}); docs/add-a-family.md says how to add "
        f"its table.{broken}"
    )


@cache
def _installed() -> tuple[dict[str, Family], dict[str, str]]:
    """Tables of installed packages by model_type, and for each entry point that failed its name and the reason."""
    tables: dict[str, Family] = {}
    failures: dict[str, str] = {}
    for point in entry_points(group=GROUP):
        try:
            loaded = point.load()
            families = loaded if isinstance(loaded, tuple) else (loaded,)
            if not all(isinstance(family, Family) for family in families):
                raise TypeError(f"{point.value} is neither a Family nor a tuple of them")
        except Exception as error:  # any error of another package's code
            failures[point.name] = f"entry point {point.name} = {point.value}: {type(error).__name__}: {error}"
            continue
        tables |= {family.model_type: family for family in families}
    return tables, failures

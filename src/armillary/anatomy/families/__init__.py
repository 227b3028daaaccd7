"""Which Hugging Face architectures do we know? One small table each, in one plain tuple."""

from armillary.anatomy.families import bert, gemma2, gpt2, gpt_neox, llama, opt
from armillary.anatomy.families.family import Family

FAMILIES: tuple[Family, ...] = (
    gpt2.FAMILY,
    llama.FAMILY,
    llama.MISTRAL,
    llama.QWEN2,
    llama.QWEN3,
    gpt_neox.FAMILY,
    gemma2.FAMILY,
    opt.FAMILY,
    bert.FAMILY,
)

__all__ = ["FAMILIES", "Family"]

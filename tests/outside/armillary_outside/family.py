"""A family that is Llama under another name."""

from dataclasses import replace

from armillary.anatomy.families.decoders.llama import FAMILY as LLAMA

FAMILY = replace(LLAMA, model_type="twin_llama")

"""Models that people hold in their hands: wrapped, compiled, adapted, in a pipeline, or spread over devices."""

import os
from copy import deepcopy
from typing import Any

from torch import nn

from armillary.errors import ModelError


def held_model(source: Any) -> tuple[nn.Module | None, Any, str]:
    """The model that an object holds, its tokenizer if it brings one, and what was done to get there ('' if nothing).

    (None, None, '') for a source that is not an object with a model: a path, a name.
    """
    tokenizer = None
    if not isinstance(source, nn.Module) and isinstance(getattr(source, "model", None), nn.Module):
        # A pipeline of transformers.
        source, tokenizer = source.model, getattr(source, "tokenizer", None)
    if not isinstance(source, nn.Module):
        if not isinstance(source, str | os.PathLike):
            what = f"the class {source.__name__}" if isinstance(source, type) else f"a {type(source).__name__}"
            raise ModelError(
                f"{what} is not a model with weights; pass the model itself, a pipeline that holds one, its folder, a "
                ".gguf file or a name."
            )
        return None, None, ""
    model, how = _unwrapped(source), ""
    _refuse_prompts(model)
    if hasattr(model, "merge_and_unload"):
        model, how = _merged(model), "live, adapter merged into a copy"
    _refuse_offloaded(model)
    return model, tokenizer, how


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module inside DataParallel, DistributedDataParallel or what torch.compile gives."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is None:
            return model
        model = inner


def _merged(model: Any) -> nn.Module:
    """A PEFT model with its adapter multiplied into a copy of the weights; the caller's stays as it is."""
    try:
        merged: nn.Module = deepcopy(model).merge_and_unload()
    except Exception as error:
        raise ModelError(
            f"the adapter of this {type(model).__name__} cannot be merged into its model ({type(error).__name__}: "
            f"{error}); only adapters that merge, such as LoRA, can be measured: pass the model without it."
        ) from error
    return merged.train(model.training)


def _refuse_prompts(model: Any) -> None:
    settings = getattr(model, "active_peft_config", None)
    if settings is not None and getattr(settings, "is_prompt_learning", False):
        raise ModelError(
            f"the adapter of this {type(model).__name__} ({getattr(settings.peft_type, 'value', settings.peft_type)}) "
            "puts learned vectors before every text and changes no weight, so it cannot be merged; pass the model "
            "without it: get_base_model()."
        )


def _refuse_offloaded(model: Any) -> None:
    places = {str(place) for place in (getattr(model, "hf_device_map", None) or {}).values()}
    away = next((name for name, parameter in model.named_parameters() if parameter.is_meta), "")
    if away or len(places - {"cpu"}) > 1:
        where = f" (device_map: {', '.join(sorted(places))})" if places else ""
        raise ModelError(
            f"parts of this model lie elsewhere{where}{f', the weight {away} among them' if away else ''}, so they "
            "cannot be read; load it whole on one device, without offload: from_pretrained(…, dtype=torch.bfloat16)."
        )

"""Models that people hold in their hands: wrapped, compiled, adapted, in a pipeline, or spread over devices."""

import os
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from armillary.errors import ModelError


def held_model(source: Any) -> tuple[nn.Module | None, Any, str]:
    """The model that an object holds, its tokenizer if it brings one, and what was done to get there ('' if nothing).

    (None, None, '') for a source that is not an object with a model: a path, a name.
    """
    tokenizer = None
    if not isinstance(source, nn.Module) and isinstance(getattr(source, "model", None), nn.Module):
        # A pipeline of transformers, or its Trainer.
        tokenizer = getattr(source, "processing_class", None) or getattr(source, "tokenizer", None)
        source = source.model
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
    _refuse_adapters(model)
    _refuse_compiled(model)
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
        merged: Any = deepcopy(model).merge_and_unload()
    except Exception as error:
        raise ModelError(
            f"the adapter of this {type(model).__name__} cannot be merged into its model ({type(error).__name__}: "
            f"{error}); only adapters that merge, such as LoRA, can be measured: pass the model without it."
        ) from error
    apart, allowed = _difference(merged, model), torch.finfo(merged.dtype).eps ** 0.5
    if not apart <= allowed:
        raise ModelError(
            f"this {type(model).__name__} gives other outputs with its adapter merged than without merging (they "
            f"differ by {apart:.1e}): the adapter is disabled, or changes a weight that two layers share (tied "
            "embeddings). Pass the model without it (get_base_model()), or the merged model."
        )
    whole: nn.Module = merged.train(model.training)
    return whole


def _difference(merged: Any, live: Any) -> float:
    """How far the outputs of two models are apart on one small input, relative to the largest."""
    config, generator = merged.config, torch.Generator().manual_seed(0)
    if merged.main_input_name == "input_ids":
        ids = torch.randint(min(8, config.vocab_size), config.vocab_size, (1, 8), generator=generator)
        given = {"input_ids": ids, **({"decoder_input_ids": ids} if config.is_encoder_decoder else {})}
    else:
        side = getattr(config, "image_size", 0)
        frames = (getattr(config, "num_mel_bins", 0), 2 * getattr(config, "max_source_positions", 0))
        shape = frames if frames[0] else (config.num_channels, side, side)
        given = {merged.main_input_name: torch.randn(1, *shape, generator=generator).to(merged.dtype)}
    given = {name: value.to(merged.device) for name, value in given.items()}
    outputs = []
    for model in (merged, live):
        training = [module for module in model.modules() if module.training]
        with torch.no_grad():
            outputs.append(model.eval()(**given)[0].double())
        for module in training:
            module.training = True
    return float((outputs[0] - outputs[1]).abs().max() / outputs[1].abs().max())


def _refuse_adapters(model: Any) -> None:
    """A layer of PEFT computes with more than its weight, and only what holds the whole adapter can merge it."""
    for name, module in model.named_modules():
        if type(module).__module__.partition(".")[0] == "peft":
            raise ModelError(
                f"{name or 'this model'} is a {type(module).__name__} of an adapter (PEFT) that cannot be merged from "
                "here; pass the PeftModel itself if its adapter is LoRA or another that merges, or the model without "
                "it."
            )


def _refuse_compiled(model: nn.Module) -> None:
    """Compiled code passes no value out, and ignores edits."""
    for name, module in model.named_modules():
        own = "_orig_mod" in module._modules or module._compiled_call_impl is not None
        if own or hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable"):
            raise ModelError(
                f"{name or 'this model'} was compiled in place (model.compile()), so its inner values cannot be read; "
                "pass the uncompiled model, or the result of torch.compile(model)."
            )


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
            f"parts of this model are offloaded{where}{f', the weight {away} among them' if away else ''}, so they "
            "cannot be read; load it whole on one device, without offload: from_pretrained(…, dtype=torch.bfloat16)."
        )

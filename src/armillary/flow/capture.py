"""How is a running model watched without being touched?

The only file with reading hooks. A hook hands over views of what passes and returns None (a returned value would
replace the module's output); nothing is kept here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from armillary.anatomy import Anatomy
from armillary.errors import ModelError

Watcher = Callable[[Tensor | None, Tensor], None]
"""Called with what the site's module received (None if it takes no tensor) and what it gave."""


@contextmanager
def watching(anatomy: Anatomy, watchers: Mapping[str, Watcher]) -> Iterator[None]:
    """Call each site's watcher whenever the model passes it; complain of a site that was never passed."""
    silent = set(watchers)
    handles = []

    def hook(name: str, watcher: Watcher) -> Callable[..., None]:
        def see(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            silent.discard(name)
            given = args[0] if args else kwargs.get("hidden_states")
            watcher(given, output[0] if isinstance(output, tuple) else output)

        return see

    try:
        for name, watcher in watchers.items():
            module = anatomy.model.get_submodule(anatomy.sites[name].path)
            handles.append(module.register_forward_hook(hook(name, watcher), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
    if silent:
        raise ModelError(f"the model never passed {sorted(silent)}: its modules are bypassed (compiled or fused?).")


@contextmanager
def still(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; training mode comes back afterwards.

    Not `inference_mode`: its tensors cannot meet trainable parameters later.
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def run(anatomy: Anatomy, ids: Tensor, mask: Tensor | None = None, logits: bool = False) -> Tensor:
    """One forward pass of Hugging Face's own module: the last hidden state, or the logits."""
    model = anatomy.model if logits else anatomy.backbone
    device = anatomy.device
    attention = None if mask is None or bool(mask.all()) else mask.to(device).long()
    output = model(input_ids=ids.to(device), attention_mask=attention, use_cache=False)
    return output.logits if logits else output.last_hidden_state

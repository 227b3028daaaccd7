"""What does a model make of a short text? For experiments of a few lines, such as those in examples/."""

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import Watcher, run, still, watching
from armillary.flow.documents import sample
from armillary.geometry.resample import bootstrap


def passages(anatomy: Anatomy, documents: int = 16, tokens: int = 64) -> Tensor:
    """ids [documents, tokens]: equally long beginnings of documents spread over the built-in sample."""
    texts = tuple(sample().texts)
    chosen = np.linspace(0, len(texts) - 1, documents).round().astype(int)
    return torch.tensor([anatomy.tokenizer(texts[i], add_special_tokens=False).input_ids[:tokens] for i in chosen])


def losses(anatomy: Anatomy, ids: Tensor) -> Tensor:
    """The mean loss of each document's next tokens, in nats [b]."""
    with still(anatomy.model):
        logits = run(anatomy, ids, logits=True)[:, :-1]
    targets = ids[:, 1:].to(logits.device)
    return torch.nn.functional.cross_entropy(logits.mT.float(), targets, reduction="none").mean(1)


def watched(anatomy: Anatomy, ids: Tensor, *sites: str) -> dict[str, Tensor]:
    """What passes these sites while the model reads the text; `anatomy.sites` lists them with their shapes."""
    seen: dict[str, Tensor] = {}

    def keep(site: str) -> Watcher:
        def watch(given: Tensor | None, value: Tensor) -> None:
            seen[site] = value.detach().clone()

        return watch

    with still(anatomy.model), watching(anatomy, {site: keep(site) for site in sites}):
        run(anatomy, ids)
    return seen


def over_documents(above: Tensor, below: Tensor | None = None, form: str = ".3f") -> str:
    """Σ above / Σ below, or the mean of `above`, with its 95 % interval over documents (the first axis).

    >>> over_documents(torch.tensor([0.1, 0.2, 0.3, 0.2, 0.2]), form=".1f")
    '0.2 [0.1, 0.3]'
    """
    below = torch.ones_like(above) if below is None else below
    rows = np.stack([part.reshape(len(part), -1).double().sum(1).numpy(force=True) for part in (above, below)], 1)
    value, low, high = bootstrap(rows, lambda sums: sums[:, 0] / sums[:, 1])
    return f"{float(value):{form}} [{float(low):{form}}, {float(high):{form}}]"

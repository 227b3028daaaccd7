"""What do a norm's learned gain γ and shift β matter? γ becomes its mean, β zero, norm by norm.

With γ constant and β zero a norm is the pure sphere. The control gives γ's values to other coordinates.

python examples/norm_parameters.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch

import armillary
from armillary.anatomy import Anatomy
from armillary.edits.edit import changing
from armillary.flow.passages import losses, over_documents, passages


@dataclass(frozen=True, eq=False)
class Replace:
    """Let the norm at `site` use another gain and shift: an edit of one's own."""

    site: str
    gain: torch.Tensor
    shift: torch.Tensor
    example: ClassVar[str] = 'Replace("L0.ln1", torch.ones(256), torch.zeros(256))'

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        norm = anatomy.norms[self.site]
        with changing(anatomy, self.site, lambda y, x: norm.direction(x) * self.gain + self.shift):
            yield


gpt = armillary.load("builtin:gpt", progress=False)
ids = passages(gpt, documents=12, tokens=24)
untouched = losses(gpt, ids)
draw = torch.Generator().manual_seed(0)
flat, unshifted, permuted = [], [], []
for site, norm in gpt.norms.items():
    gain, shift = norm.gain.detach(), norm.shift.detach()
    flat.append(Replace(site, gain.mean().expand_as(gain), shift))
    unshifted.append(Replace(site, gain, torch.zeros_like(shift)))
    permuted.append(Replace(site, gain[torch.randperm(gpt.d, generator=draw)], shift))


def cost(*edits: Replace) -> torch.Tensor:
    with armillary.edited(gpt, *edits):
        return losses(gpt, ids) - untouched


print(f"loss {over_documents(untouched)} nats per token; what each change adds:")
print(f"{'':9} γ to its mean           β to zero")
for plain, shiftless in zip(flat, unshifted, strict=True):
    print(f"{plain.site:9} {over_documents(cost(plain), form='+.3f')}  {over_documents(cost(shiftless), form='+.3f')}")
print(f"{'all':9} {over_documents(cost(*flat), form='+.3f')}  {over_documents(cost(*unshifted), form='+.3f')}")
both = [Replace(f.site, f.gain, u.shift) for f, u in zip(flat, unshifted, strict=True)]
print(f"both, in all norms (pure spheres)   {over_documents(cost(*both), form='+.3f')}")
print(f"control: γ permuted, in all norms   {over_documents(cost(*permuted), form='+.3f')}")

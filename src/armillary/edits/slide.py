"""Slide: what if the window had moved on, without its first tokens?"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from armillary.anatomy import Anatomy
from armillary.edits.edit import uncompiled
from armillary.edits.edit_settings import check_literal, check_whole
from armillary.edits.token_places import around_blocks, first_real, is_flat, named, past_length, reader_of, slid_by
from armillary.errors import ArmillaryError, ModelError

Positions = Literal["restart", "keep"]
IGNORED = -100
"""The label that Hugging Face's losses leave out."""


@dataclass(frozen=True)
class Slide:
    """Read every row from its token number `by` on: what comes out belongs to tokens `by`, `by` + 1, …

    `positions`: `restart` counts from the row's first position again, as a model with a sliding window does; `keep`
    leaves every token the position it had. Rotary models see only differences of positions, so both are the same to
    them. Padding is not counted: a row padded on the left loses its first `by` real tokens and keeps its padding.
    Labels, masks and positions are cut alike.
    """

    by: int
    positions: Positions = "restart"
    example: ClassVar[str] = "Slide(by=4)"

    def __post_init__(self) -> None:
        check_whole("by", self.by, least=0)
        check_literal("positions", self.positions, Positions)

    @contextmanager
    def on(self, anatomy: Anatomy) -> Iterator[None]:
        fired = False

        def cut(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            nonlocal fired
            fired = True
            given = named(module, args, kwargs)
            past = past_length(given.get("past_key_values"))
            return (), {**given, **(self._continued(given, past) if past else self._begun(given))}

        def cut_labels(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return (), self._with_labels(named(module, args, kwargs), anatomy.causal)

        # Before the hooks of edits that count tokens: they count those that the window has left.
        handles = [reader_of(anatomy).register_forward_pre_hook(cut, with_kwargs=True, prepend=True)]
        for module in around_blocks(anatomy, "labels")[-1:]:
            handles.append(module.register_forward_pre_hook(cut_labels, with_kwargs=True))
        try:
            with uncompiled(), slid_by(reader_of(anatomy), self.by):
                yield
        finally:
            for handle in handles:
                handle.remove()
        if not fired:
            raise ModelError(f"the window never slid by {self.by}: the model was not run.")

    def _begun(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a pass that starts the text, cut."""
        length = _length(given)
        if not 0 <= self.by < length:
            raise ArmillaryError(f"a window of {length} tokens cannot slide by {self.by}; slide by less.")
        cut = {name: x[:, self.by :] for name in PER_TOKEN if (x := given.get(name)) is not None}
        return {
            **cut,
            "attention_mask": self._mask(given, length),
            "position_ids": self._positions(given, cut.get("position_ids"), 0, length - self.by),
        }

    def _continued(self, given: Mapping[str, Any], past: int) -> dict[str, Any]:
        """The arguments of a pass that goes on from a cache, which lacks the first `by` tokens."""
        length, positions = _length(given), given.get("position_ids")
        mask = self._mask(given, past + self.by + length)
        if mask is None and positions is not None and int(positions[..., 0].min()) < past + self.by:
            raise ArmillaryError(
                f"the cache of a slid window lacks {self.by} tokens, so a text cannot be continued from it by its "
                "length: give the whole text again, without past_key_values."
            )
        return {"attention_mask": mask, "position_ids": self._positions(given, positions, past, length)}

    def _mask(self, given: Mapping[str, Any], columns: int) -> Tensor | None:
        """The attention mask, of at least so many columns, without the first `by` real tokens of every row."""
        mask = given.get("attention_mask")
        if mask is None:
            return None
        if not is_flat(mask) or mask.shape[1] < columns:
            shape = list(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
            raise ArmillaryError(
                f"a window slides over an attention mask [b, {columns}], one column per token of the text; got "
                f"{shape}: pass such a mask, give the text from its start, and use a cache that grows, not a static "
                "one."
            )
        left = mask[:, self.by :]
        left = left.masked_fill(_columns(left) < first_real(mask)[:, None], 0) if self.by else left
        if not left.any(1).all():
            least = int((mask != 0).sum(1).min())
            raise ArmillaryError(f"a row of {least} tokens cannot slide by {self.by}; slide by less.")
        return left

    def _positions(self, given: Mapping[str, Any], own: Tensor | None, past: int, length: int) -> Tensor | None:
        """The positions of `length` tokens, of which `own` were given."""
        if own is not None:
            return own if self.positions == "keep" else (own - self.by).clamp_min(0)
        if self.positions == "restart":
            return None
        mask = given.get("attention_mask")
        if is_flat(mask) and first_real(mask).any():
            raise ArmillaryError("the positions of a padded row are unknown: pass position_ids.")
        ids = given.get("input_ids")
        device = (given["inputs_embeds"] if ids is None else ids).device
        return torch.arange(past + self.by, past + self.by + length, device=device)[None]

    def _with_labels(self, given: dict[str, Any], causal: bool) -> dict[str, Any]:
        """The language model's arguments with its labels cut; the module inside cuts the others."""
        if past_length(given.get("past_key_values")) or not self.by:
            return given
        if isinstance(given.get("logits_to_keep"), Tensor):
            raise ArmillaryError("columns change in a slid window: give logits_to_keep as a number, not as columns.")
        mask, labels = given.get("attention_mask"), dict[str, Tensor]()
        for name in ("labels", "shift_labels"):
            whole = given.get(name)
            if whole is None or whole.ndim != 2:
                continue
            left = labels[name] = whole[:, self.by :].clone()
            if is_flat(mask):
                padding = first_real(mask)[:, None].to(left.device)
                # A causal model would predict the first token of a padded row from padding.
                hidden = padding + ((padding > 0) & causal if name == "labels" else 0)
                left[_columns(left) < hidden] = IGNORED
        return {**given, **labels}


PER_TOKEN = ("input_ids", "inputs_embeds", "position_ids", "token_type_ids")
"""Arguments that have one entry per token of the pass in their second axis."""


def _columns(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1], device=x.device)[None]


def _length(given: Mapping[str, Any]) -> int:
    """How many tokens the pass holds."""
    tokens = given.get("input_ids")
    tokens = given.get("inputs_embeds") if tokens is None else tokens
    if tokens is None:
        raise ArmillaryError("a window slides over tokens: give input_ids or inputs_embeds.")
    return int(tokens.shape[1])

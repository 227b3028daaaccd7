"""What does a decoder read by cross attention? The states that its encoder gives for the same document.

Where the encoder reads text, it reads the decoder's tokens without the start token: the document itself, as in a
denoising model without noise. Where it reads sound, one clip stands beside every text.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from armillary.anatomy.entries.signal import placeholders
from armillary.anatomy.families import Family
from armillary.anatomy.reading.modules import submodule
from armillary.errors import ModelError

if TYPE_CHECKING:
    from armillary.anatomy.anatomy import Anatomy


@dataclass(frozen=True, eq=False)
class Encoder:
    """The stack whose states a decoder reads, and what that stack is given."""

    module: nn.Module
    start: int | None
    """The token that the decoder's text begins with, and that the encoder does not read."""
    sound: Tensor | None = None
    """[1, bands, frames]: what the encoder hears beside every text; None where it reads the text."""
    _heard: list[Tensor] = field(default_factory=list)

    def states(self, ids: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The encoder's last states [b, s, d] for token ids [b, t] of the decoder, and which of them count [b, s]."""
        with torch.no_grad():
            if self.sound is not None:
                if not self._heard:
                    self._heard.append(self.module(self.sound).last_hidden_state)
                return self._heard[0].expand(len(ids), -1, -1), None
            first = 1 if self.start is not None and ids.shape[1] > 1 else 0
            attended = None if mask is None or bool(mask.all()) else mask[:, first:].to(ids.device).long()
            if attended is not None:
                # A row of one token would leave its encoder nothing to read.
                attended[:, 0] = 1
            states: Tensor = self.module(input_ids=ids[:, first:], attention_mask=attended).last_hidden_state
            return states, attended

    def inputs(self, ids: Tensor, mask: Tensor | None, whole: bool) -> dict[str, Any]:
        """The arguments of the decoder, or of the whole model."""
        states, attended = self.states(ids, mask)
        own = None if mask is None or bool(mask.all()) else mask.to(ids.device).long()
        if not whole:
            more = {} if self.sound is not None else {"encoder_attention_mask": attended}
            return {"input_ids": ids, "attention_mask": own, "encoder_hidden_states": states, **more}
        from transformers.modeling_outputs import BaseModelOutput

        given = BaseModelOutput(last_hidden_state=states)
        # Whisper takes no mask of its encoder's frames.
        more = {} if self.sound is not None else {"attention_mask": attended}
        return {"decoder_input_ids": ids, "decoder_attention_mask": own, "encoder_outputs": given, **more}


def encoder_of(model: Any, base: nn.Module, family: Family, config: Any) -> Encoder | None:
    """None where a model has no cross attention."""
    if family.cross is None:
        return None
    module = submodule(base, "encoder", family)
    sound = None
    if family.cross.sound:
        # Noise until a survey brings a clip: two frames of the spectrum make one of the encoder.
        frames = 2 * int(getattr(config, family.cross.sound))
        like = next(module.parameters()).detach()
        sound = placeholders(int(config.num_mel_bins), like).T[None].repeat(1, 1, -(-frames // 64))[:, :, :frames]
    # What the library generates with; a config without it holds its class's default, which may be another model's.
    start = getattr(getattr(model, "generation_config", None), "decoder_start_token_id", None)
    start = family.cross.start(config) if start is None else start
    if isinstance(start, int) and not 0 <= start < config.vocab_size:
        raise ModelError(
            f"the decoder's texts begin with token {start} (decoder_start_token_id) of a vocabulary of "
            f"{config.vocab_size}; set the right one in config.json or generation_config.json."
        )
    return Encoder(module, start, sound)


def hearing(anatomy: "Anatomy", sound: Tensor) -> "Anatomy":
    """The decoder beside another clip [1, bands, frames]."""
    assert anatomy.encoder is not None and anatomy.encoder.sound is not None
    return replace(anatomy, encoder=replace(anatomy.encoder, sound=sound.to(anatomy.encoder.sound), _heard=[]))

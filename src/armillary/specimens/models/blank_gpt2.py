"""A GPT-2 of a given shape, as the library initialises it: what planted models are written into."""

from typing import Any

import transformers as tr


def blank_gpt2(words: int, width: int, layers: int, heads: int, context: int, **more: Any) -> Any:
    """Its special tokens are word 0; `more` goes to the config."""
    # The same function as GPT-2's own, in one operation in place of eight: a pass takes 0.6 to 0.9 of the time.
    more = {"activation_function": "gelu_pytorch_tanh", **more}
    config = tr.GPT2Config(
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        vocab_size=words,
        n_positions=context,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        **more,
    )
    return tr.GPT2LMHeadModel(config).eval()

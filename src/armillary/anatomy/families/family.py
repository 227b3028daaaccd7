"""The table that says where things are in one Hugging Face architecture.

Paths are relative: `blocks` to the backbone, the parts of a block to the block. A table says where and how; `read` does
the reading. Functions of the config are used where an architecture has variants.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Config = Any

# Attributes that do not change what a model computes in evaluation: training-time noise and initialisation, token
# numbers that only a tokenizer or a generator reads, heads that are not run here, bookkeeping.
NEUTRAL = frozenset(
    """
    architectures attention_dropout attention_probs_dropout_prob attn_pdrop bos_token_id chunk_size_feed_forward
    classifier_dropout dropout dtype embd_pdrop eos_token_id finetuning_task gradient_checkpointing
    hidden_dropout hidden_dropout_prob id2label init_std initializer_range is_encoder_decoder label2id layerdrop
    max_position_embeddings model_type n_ctx n_positions name_or_path num_labels output_attentions
    output_hidden_states pad_token_id pretraining_tp problem_type resid_pdrop return_dict sep_token_id
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    task_specific_params tie_word_embeddings tokenizer_class torch_dtype transformers_version type_vocab_size
    use_cache vocab_size reorder_and_upcast_attn layer_norm_elementwise_affine _name_or_path _attn_implementation
    _commit_hash
    """.split()
)


@dataclass(frozen=True)
class Family:
    """The table of one architecture."""

    model_type: str
    norm: Literal["layernorm", "rmsnorm"]
    blocks: str
    embed: str
    ln_final: str | None
    ln1: str
    ln2: str | None
    """None, or the same path as `ln1`, where one norm serves both sublayers."""
    attention: str
    output: str
    """The output projection: its input holds every head's own result, its output the heads' sum."""
    attn_write: str
    mlp_write: str
    mlp_out: str
    activation: str
    """Name of the config attribute that names the activation."""
    understood: frozenset[str]
    query: str = ""
    key: str = ""
    value: str = ""
    fused: str = ""
    """One projection for q, k and v; `layout` says how its columns are divided."""
    layout: Literal["split", "concatenated", "interleaved"] = "split"
    transposed: bool = False
    """Weights stored [in, out] (Conv1D) instead of [out, in] (Linear)."""
    backbone: str = ""
    positions: str = ""
    position_offset: int = 0
    token_type: str = ""
    ln_embed: str | None = None
    ln1_post: str | None = None
    ln2_post: str | None = None
    mlp_in: str = ""
    mlp_gate: str = ""
    gate_up: str = ""
    """One projection for the gate and for what it multiplies, in place of `mlp_gate` and `mlp_in`: [gate | up]."""
    q_norm: str = ""
    k_norm: str = ""
    gain_offset: float = 0.0
    """Gemma stores γ − 1."""
    embed_scaled: bool = False
    plain_head: bool = True
    """Logits are a linear readout of the last state; BERT's come after a transform of their own."""
    rotary: str = ""
    order: Callable[[Config], Literal["pre", "post"]] = lambda config: "pre"
    parallel: Callable[[Config], bool] = lambda config: False
    causal: Callable[[Config], bool] = lambda config: True
    unsupported: Callable[[Config], str] = lambda config: ""
    """The name of an attribute whose value cannot be read, or ''."""
    window: Callable[[Any, Config], int | None] = lambda attention, config: getattr(attention, "sliding_window", None)
    """How many tokens a query of this attention module sees, itself included; None for all."""

    @property
    def own_ln2(self) -> bool:
        """Does the feed-forward layer have a norm of its own?"""
        return self.ln2 is not None and self.ln2 != self.ln1

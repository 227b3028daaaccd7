"""The table that says where things are in one Hugging Face architecture.

Paths are relative: `blocks` to the backbone, the parts of a block to the block. A table says where and how; `read` does
the reading. `of` makes the table of one config, `at` that of one layer: whatever differs from config to config, or from
layer to layer, is a plain field of the result.
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
    _commit_hash cls_token_id mask_token_id unk_token_id residual_dropout embedding_dropout ffn_dropout
    output_router_logits router_aux_loss_coef router_jitter_noise max_seq_len resid_dropout embed_dropout attn_dropout
    qa_dropout seq_classif_dropout mlp_dropout classifier_activation classifier_pooling decoder_start_token_id
    base_model_tp_plan base_model_pp_plan tie_encoder_decoder num_hidden_layers vocab_size
    """.split()
)
SIZES = frozenset(
    "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim hidden_act "
    "rms_norm_eps layer_norm_eps rope_parameters".split()
)


@dataclass(frozen=True)
class Experts:
    """Where a mixture of experts keeps its parts; paths are relative to the block."""

    router: str
    experts: str
    gate_up: str = "gate_up_proj"
    """Weights of all experts [e, 2m, d], or [e, d, 2m] where `transposed`; the gate's first unless `interleaved`."""
    down: str = "down_proj"
    transposed: bool = False
    interleaved: bool = False
    biased: bool = False
    top: Callable[[Config], int] = lambda config: config.num_experts_per_tok
    score: Callable[[Config], str] = lambda config: "softmax"
    renormalised: Callable[[Config], bool] = lambda config: bool(config.norm_topk_prob)
    scale: Callable[[Config], float] = lambda config: 1.0
    groups: Callable[[Config], tuple[int, int]] = lambda config: (1, 1)
    """In how many groups experts are divided, and how many groups a token chooses from."""
    group_by: str = "largest"
    correction: str = ""
    """A tensor of the router that is added when experts are chosen, and not when they are weighed."""
    activation: Callable[[Any], Any] | None = None
    """Of the gate, where it is not the config's."""
    factor: Callable[[Any], Any] | None = None
    """What the other branch becomes before it multiplies act(gate), where it is not left as it is."""
    shared: str = ""
    """Path of the shared experts: one gated feed-forward layer."""
    shared_gate: str = ""


@dataclass(frozen=True)
class Cross:
    """Where a decoder's block keeps the attention that reads the encoder's states; paths are relative to the block."""

    norm: str
    attention: str
    query: str
    key: str
    value: str
    output: str
    start: Callable[[Config], int | None] = lambda config: getattr(config, "decoder_start_token_id", None)
    """The token that the decoder's text begins with."""
    sound: str = ""
    """The config attribute that says how many frames of sound the encoder takes; '' where it reads text."""


@dataclass(frozen=True)
class Patches:
    """How a model that reads images or sound starts its stream; paths are relative to the backbone."""

    projection: str
    """The convolution that makes a vector of every patch, or the convolutions, joined by spaces, for sound."""
    own: tuple[str, ...] = ()
    """Parameters of tokens that stand before the patches and have positions: the class token."""
    registers: str = ""
    """A parameter of tokens that stand behind those, and have none."""
    positions: str = ""
    """A parameter [1, t, d] or a table [t, d]."""
    sense: Literal["images", "sound"] = "images"
    argument: str = "pixel_values"
    front: Callable[[Any, Config], Callable[[Any], Any]] | None = None
    """In place of a projection: what makes the stream of a whole input, where that is more than one layer."""
    side: Callable[[Config], int] = lambda config: 0
    """How many pixels wide a token is, where `front` makes it."""


@dataclass(frozen=True)
class Family:
    """The table of one architecture."""

    model_type: str
    norm: Literal["layernorm", "rmsnorm"]
    blocks: str
    embed: str
    ln_final: str | None
    ln1: str | None
    """None where the mixer reads the stream itself."""
    ln2: str | None
    """None, or the same path as `ln1`, where one norm serves both sublayers."""
    attention: str
    output: str
    """The output projection: its input holds every head's own result, its output the heads' sum."""
    attn_write: str
    mlp_write: str
    mlp_out: str
    activation: str
    """Name of the config attribute that names the activation, or the activation's own name."""
    understood: frozenset[str]
    query: str = ""
    key: str = ""
    value: str = ""
    fused: str = ""
    """One projection for q, k and v; `layout` says how its columns are divided."""
    layout: Literal["split", "concatenated", "interleaved", "q v k"] = "split"
    runs: int = 0
    """In how many equal runs of columns a fused projection is divided; 0: one, or if interleaved one per key head."""
    transposed: bool = False
    """Weights stored [in, out] (Conv1D) instead of [out, in] (Linear)."""
    backbone: str = ""
    stack: Callable[[str, Config], bool] | None = None
    """Does this table read the class of this name? For stacks of a model that has several, with one config."""
    prepared: Callable[[Any], Any] = lambda model: model
    """The model with one module per layer, where its own calls one several times."""
    classes: str = ""
    """A module that teaches transformers this architecture when it is imported; '' for the library's own."""
    whole: bool = False
    """The model itself is the backbone, and not what its class calls its base."""
    start: str = ""
    """The module whose output starts the stream, where it lies inside the first block."""
    positions: str = ""
    position_offset: int = 0
    projected: str = ""
    """A projection [d, e] between the embeddings, with their norm, and the stream."""
    patches: Patches | None = None
    """In place of a table of embeddings, where a model reads images or sound."""
    token_type: str = ""
    ln_embed: str | None = None
    ln1_post: str | None = None
    ln2_post: str | None = None
    mlp_in: str = ""
    mlp_gate: str = ""
    gate_up: str = ""
    """One projection for the gate and for what it multiplies, in place of `mlp_gate` and `mlp_in`: [gate | up]."""
    up_first: bool = False
    """`gate_up` is [up | gate]."""
    experts: Experts | None = None
    """In place of one feed-forward layer."""
    cross: Cross | None = None
    """The attention to an encoder's states, between self-attention and the feed-forward layer."""
    channels: bool = True
    """Does a block have a feed-forward layer at all?"""
    opaque_channels: str = ""
    """What the feed-forward layer is, where its inside is not understood: `mlp_write` alone is read."""
    q_norm: str = ""
    k_norm: str = ""
    qk_span: Literal["head", "layer"] = "head"
    gain_offset: float = 0.0
    """Gemma stores γ − 1."""
    norm_eps: float = 0.0
    """ε of norms that do not say it themselves."""
    embed_scaled: bool = False
    embed_scale: float = 1.0
    write_scale: float = 1.0
    """By what every write is multiplied when it is added to the stream."""
    attn_scale: str = ""
    """A parameter [d] of the block by which attention's write is multiplied (layer scale)."""
    mlp_scale: str = ""
    logit_scale: float = 1.0
    logit_softcap: str = "final_logit_softcapping"
    """The config attribute at which logits are capped."""
    logit_bias: str = ""
    """A buffer of the model [1, v] that is added to logits."""
    plain_head: bool = True
    """Logits are a linear readout of the last state; BERT's come after a transform of their own."""
    rotary: str = ""
    rotary_in_block: bool = False
    rotary_reader: str = "called"
    """One of the functions of `anatomy.positions.rotary`."""
    rotary_kind: str = ""
    """Which rotation, where one module has several."""
    pairs: Literal["halves", "neighbours"] = "halves"
    pattern_output: int = 1
    """Which of the attention module's outputs the pattern is."""
    bias: Callable[[Any, Any, Config], Any] | None = None
    """From backbone, attention module and config to a `ScoreBias`, or None."""
    sinks: str = ""
    """Path of the sinks' scores [h] in the attention module."""
    mixer: str = ""
    """What mixes tokens in place of attention that is understood; '' for attention. `attn_write` alone is read."""
    lacks: str = ""
    """What is not read in some layers or variants, for the list of architectures, where no field above says it."""
    heads: Callable[[Config], int] = lambda config: int(config.num_attention_heads)
    kv_heads: Callable[[Config], int] = lambda config: int(
        getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    )
    scale: Callable[[Any, Config], float] = lambda attention, config: float(attention.scaling)
    order: Callable[[Config], Literal["pre", "post"]] = lambda config: "pre"
    parallel: Callable[[Config], bool] = lambda config: False
    causal: Callable[[Config], bool] = lambda config: True
    unsupported: Callable[[Config], str] = lambda config: ""
    """The name of an attribute whose value cannot be read, or ''."""
    window: Callable[[Any, Config], int | None] = lambda attention, config: getattr(attention, "sliding_window", None)
    """How many tokens a query of this attention module sees, itself included; None for all."""
    window_setting: str = "sliding_window"
    """The config attribute that windows are made from, where there are any."""
    window_built_in: bool = False
    """Windows are made once, with the model; elsewhere they are made at every pass."""
    of: "Callable[[Family, Config], Family]" = lambda family, config: family
    at: "Callable[[Family, Config, int], Family]" = lambda family, config, layer: family

    @property
    def mlp_reads(self) -> str:
        """The module that receives what the feed-forward layer reads."""
        if self.experts is not None:
            return self.experts.router.rpartition(".")[0]
        return self.mlp_gate or self.gate_up or self.mlp_in or self.mlp_write

    @property
    def own_ln2(self) -> bool:
        """Does the feed-forward layer have a norm of its own?"""
        return self.ln2 is not None and self.ln2 != self.ln1

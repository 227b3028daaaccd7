"""Configurations of tiny models, one or more per family: every attribute that a table understands, off its default."""

from collections.abc import Callable
from typing import Any

import transformers as tr
from torch import nn

from armillary.specimens.models.perturbed import NARROW, SMALL, SPECIAL


def tiny_of(name: str, base: dict[str, Any] = NARROW, **more: Any) -> Callable[[], nn.Module]:
    """A maker of the class `name` at this size."""

    def make() -> nn.Module:
        model: Any = getattr(tr, name)
        return model(model.config_class(**{**base, **SPECIAL, **more}))

    return make


_SLIDING = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
_GPT = {"vocab_size": 97, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
}
_PLAIN = {"rope_type": "default", "rope_theta": 1e4}
_SCALED = {**_PLAIN, "llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 64}
_HALF = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}

DENSE: dict[str, Callable[[], nn.Module]] = {
    "gemma": tiny_of("GemmaForCausalLM", head_dim=16),
    "gemma3_text": tiny_of(
        "Gemma3ForCausalLM", head_dim=16, query_pre_attn_scalar=24, rope_parameters=_ROPES, **_SLIDING
    ),
    "vaultgemma": tiny_of(
        "VaultGemmaForCausalLM", head_dim=16, query_pre_attn_scalar=24, attn_logit_softcapping=2.0, **_SLIDING
    ),
    "persimmon": tiny_of("PersimmonForCausalLM", SMALL, intermediate_size=48, max_position_embeddings=64),
    "hunyuan_v1_dense": tiny_of("HunYuanDenseV1ForCausalLM", head_dim=16, attention_bias=True),
    "arcee": tiny_of("ArceeForCausalLM", attention_bias=True, mlp_bias=True),
    "seed_oss": tiny_of("SeedOssForCausalLM", head_dim=16, attention_bias=True, attention_out_bias=True, mlp_bias=True),
    "ministral": tiny_of("MinistralForCausalLM", head_dim=16, **_SLIDING),
    "ministral3": tiny_of("Ministral3ForCausalLM", head_dim=16, rope_parameters=_SCALED),
    "cwm": tiny_of("CwmForCausalLM", head_dim=16, rope_parameters=_PLAIN, **_SLIDING),
    "jais2": tiny_of("Jais2ForCausalLM", head_dim=16, attention_bias=True, mlp_bias=True),
    "apertus": tiny_of("ApertusForCausalLM", attention_bias=True, rope_parameters=_PLAIN),
    "hyperclovax": tiny_of(
        "HyperCLOVAXForCausalLM",
        use_post_norm=False,
        embedding_multiplier=3.0,
        residual_multiplier=0.3,
        logits_scaling=4.0,
        attention_multiplier=0.2,
    ),
    "stablelm": tiny_of("StableLmForCausalLM", use_qkv_bias=True, qk_layernorm=True, rope_parameters=_HALF),
    "stablelm-parallel": tiny_of("StableLmForCausalLM", use_parallel_residual=True),
    "starcoder2": tiny_of("Starcoder2ForCausalLM", sliding_window=16),
    "nemotron": tiny_of("NemotronForCausalLM", attention_bias=True, mlp_bias=True, head_dim=16),
    "smollm3": tiny_of("SmolLM3ForCausalLM", no_rope_layers=[1, 0, 1], attention_bias=True),
    "smollm3-windows": tiny_of("SmolLM3ForCausalLM", use_sliding_window=True, no_rope_layers=[1, 0, 1], **_SLIDING),
    "ernie4_5": tiny_of("Ernie4_5ForCausalLM", head_dim=16, use_bias=True),
    "helium": tiny_of("HeliumForCausalLM", head_dim=8, attention_bias=True, mlp_bias=True),
    "granite": tiny_of(
        "GraniteForCausalLM",
        embedding_multiplier=3.0,
        residual_multiplier=0.3,
        logits_scaling=4.0,
        attention_multiplier=0.2,
        attention_bias=True,
        mlp_bias=True,
    ),
    "glm": tiny_of("GlmForCausalLM", head_dim=16, attention_bias=True),
    "glm4": tiny_of("Glm4ForCausalLM", head_dim=16, attention_bias=True),
    "exaone4": tiny_of("Exaone4ForCausalLM", **_SLIDING),
    "olmo": tiny_of("OlmoForCausalLM", attention_bias=True),
    "olmo2": tiny_of("Olmo2ForCausalLM", attention_bias=True),
    "olmo3": tiny_of("Olmo3ForCausalLM", rope_parameters=_ROPES, **_SLIDING),
    "cohere": tiny_of("CohereForCausalLM", use_qk_norm=True, logit_scale=0.3, attention_bias=True),
    "cohere2": tiny_of("Cohere2ForCausalLM", logit_scale=0.3, **_SLIDING),
    "gptj": tiny_of("GPTJForCausalLM", _GPT, rotary_dim=4, n_inner=48),
    "codegen": tiny_of("CodeGenForCausalLM", _GPT, rotary_dim=4, n_inner=48),
    "gpt_neo": tiny_of(
        "GPTNeoForCausalLM",
        {"vocab_size": 97, "hidden_size": 32, "num_layers": 3, "num_heads": 4, "max_position_embeddings": 64},
        attention_types=[[["global", "local", "global"], 1]],
        window_size=16,
        intermediate_size=48,
    ),
    "gpt_bigcode": tiny_of("GPTBigCodeForCausalLM", _GPT, n_inner=48),
    "gpt_bigcode-own-keys": tiny_of("GPTBigCodeForCausalLM", _GPT, n_inner=48, multi_query=False),
    "bloom": tiny_of("BloomForCausalLM", {"vocab_size": 97, "hidden_size": 36, "n_layer": 3, "n_head": 6}),
    "mpt": tiny_of("MptForCausalLM", {"vocab_size": 97, "d_model": 36, "n_layers": 3, "n_heads": 6, "max_seq_len": 64}),
    "falcon": tiny_of("FalconForCausalLM", SMALL, ffn_hidden_size=48, max_position_embeddings=64, bias=True),
    "falcon-grouped": tiny_of(
        "FalconForCausalLM",
        SMALL,
        new_decoder_architecture=True,
        num_kv_heads=2,
        ffn_hidden_size=48,
        max_position_embeddings=64,
    ),
    "falcon-sequential": tiny_of(
        "FalconForCausalLM", SMALL, multi_query=False, parallel_attn=False, max_position_embeddings=64
    ),
}

_BERT = {**SMALL, "intermediate_size": 48, "max_position_embeddings": 64}
ENCODERS: dict[str, Callable[[], nn.Module]] = {
    "roberta": tiny_of("RobertaForMaskedLM", _BERT, pad_token_id=1),
    "roberta-decoder": tiny_of("RobertaForCausalLM", _BERT, pad_token_id=1, is_decoder=True),
    "xlm-roberta": tiny_of("XLMRobertaForMaskedLM", _BERT, pad_token_id=1),
    "camembert": tiny_of("CamembertForMaskedLM", _BERT, pad_token_id=1),
    "data2vec-text": tiny_of("Data2VecTextForMaskedLM", _BERT, pad_token_id=1),
    "roberta-prelayernorm": tiny_of("RobertaPreLayerNormForMaskedLM", _BERT, pad_token_id=1),
    "xlm-roberta-xl": tiny_of("XLMRobertaXLForMaskedLM", _BERT, pad_token_id=1),
    "electra": tiny_of("ElectraForMaskedLM", _BERT, embedding_size=32),
    "distilbert": tiny_of(
        "DistilBertForMaskedLM",
        {"vocab_size": 97, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64},
    ),
    "mpnet": tiny_of("MPNetForMaskedLM", _BERT, pad_token_id=1),
    "deberta-v2": tiny_of(
        "DebertaV2ForMaskedLM", _BERT, relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False
    ),
    "deberta-v2-absolute": tiny_of("DebertaV2ForMaskedLM", _BERT),
    "esm": tiny_of("EsmForMaskedLM", _BERT, mask_token_id=2, position_embedding_type="rotary", token_dropout=True),
    "esm-absolute": tiny_of("EsmForMaskedLM", _BERT, pad_token_id=1, mask_token_id=2, emb_layer_norm_before=True),
    "modernbert": tiny_of(
        "ModernBertForMaskedLM", _BERT, local_attention=24, global_attn_every_n_layers=3, norm_bias=True, mlp_bias=True
    ),
    "eurobert": tiny_of("EuroBertForMaskedLM", attention_bias=True, mlp_bias=True),
    "nomic_bert": tiny_of("NomicBertForMaskedLM", _BERT),
}

_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.7,
}


def _corrected(model: nn.Module) -> nn.Module:
    """DeepSeek-V3 with corrections of its routers off zero: they are buffers, which `perturbed` leaves alone."""
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.normal_(std=0.3)
    return model


MIXTURES: dict[str, Callable[[], nn.Module]] = {
    "mixtral": tiny_of("MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2, sliding_window=16),
    "qwen2_moe": tiny_of(
        "Qwen2MoeForCausalLM",
        shared_expert_intermediate_size=40,
        decoder_sparse_step=2,
        norm_topk_prob=True,
        **_EXPERTS,
    ),
    "qwen3_moe": tiny_of("Qwen3MoeForCausalLM", mlp_only_layers=[0], head_dim=16, **_EXPERTS),
    "mellum": tiny_of(
        "MellumForCausalLM",
        head_dim=16,
        mlp_layer_types=["dense", "sparse", "sparse"],
        rope_parameters=_ROPES,
        **_EXPERTS,
        **_SLIDING,
    ),
    "olmoe": tiny_of("OlmoeForCausalLM", norm_topk_prob=True, num_experts=4, num_experts_per_tok=2),
    "gpt_oss": tiny_of("GptOssForCausalLM", num_local_experts=4, num_experts_per_tok=2, head_dim=16, **_SLIDING),
    "glm4_moe": lambda: _corrected(
        tiny_of(
            "Glm4MoeForCausalLM",
            head_dim=16,
            use_qk_norm=True,
            n_routed_experts=8,
            num_experts_per_tok=3,
            n_group=4,
            topk_group=2,
            first_k_dense_replace=1,
            moe_intermediate_size=24,
        )()
    ),
    "dots1": lambda: _corrected(
        tiny_of(
            "Dots1ForCausalLM",
            head_dim=16,
            n_routed_experts=8,
            num_experts_per_tok=3,
            n_group=4,
            topk_group=2,
            n_shared_experts=2,
            first_k_dense_replace=1,
            moe_intermediate_size=24,
            **_SLIDING,
        )()
    ),
    "flex_olmo": tiny_of("FlexOlmoForCausalLM", num_experts=4, num_experts_per_tok=2, norm_topk_prob=True),
    "deepseek_v2": tiny_of("DeepseekV2ForCausalLM", n_shared_experts=2, topk_method="group_limited_greedy", **_LATENT),
    "deepseek_v3": lambda: _corrected(tiny_of("DeepseekV3ForCausalLM", n_shared_experts=1, **_LATENT)()),
}
_MIXER = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3}
MIXERS: dict[str, Callable[[], nn.Module]] = {
    "mamba": tiny_of("MambaForCausalLM", _MIXER, state_size=4),
    "mamba2": tiny_of("Mamba2ForCausalLM", _MIXER, state_size=4, num_heads=8, head_dim=8, n_groups=2, chunk_size=16),
    "falcon_mamba": tiny_of("FalconMambaForCausalLM", _MIXER, state_size=4),
    "rwkv": tiny_of("RwkvForCausalLM", _MIXER, attention_hidden_size=32, intermediate_size=48, context_length=64),
    "recurrent_gemma": tiny_of(
        "RecurrentGemmaForCausalLM", lru_width=32, attention_window_size=16, logits_soft_cap=3.0, head_dim=8
    ),
    "jamba": tiny_of(
        "JambaForCausalLM",
        num_experts=4,
        num_experts_per_tok=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        mamba_d_state=4,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    ),
    "lfm2": tiny_of("Lfm2ForCausalLM", layer_types=["conv", "full_attention", "conv"], block_auto_adjust_ff_dim=False),
    "qwen3_next": tiny_of(
        "Qwen3NextForCausalLM",
        head_dim=16,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        shared_expert_intermediate_size=40,
        **_EXPERTS,
    ),
}

KINDS = {**DENSE, **ENCODERS, **MIXTURES, **MIXERS}

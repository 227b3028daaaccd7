"""Heads straight from Hugging Face's modules, in float64 and with nothing of ours: what read-outs must agree with.

And vocabularies of words, tame and wild.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers as tr
from tiny import tiny
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read

WILD = (
    "<script>alert(1)</script>", "&amp;", "50%", "a_b", "\\x", "\\textbf{x}", "a|b", '"q"', "it's", "a,b", "$x$", "{",
    "}", "~^", "#1", "=1+1", "a--b", "naïve", "Ω", "עברית", "`x`", "* _", "[a](b)",
)  # fmt: skip
UNSEEN = ("two\nlines", "carriage\rreturn", "\u202eturned", "\x1b[31mred", "  ", "\x00nul")


def tokenizer(words: Sequence[str], size: int = 97) -> tr.PreTrainedTokenizerFast:
    """Whole words: these, then w0, w1 … up to a size; the first four tokens are special."""
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    known = [*special.values(), *words]
    known += [f"w{i}" for i in range(size - len(known))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tr.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def specimen(name: str, words: Sequence[str] = ()) -> Anatomy:
    """A tiny perturbed model whose vocabulary is words."""
    return replace(read(tiny(name), name), tokenizer=tokenizer(words))


@dataclass
class Naive:
    """One layer for every word alone: q, k [v, h, k] before rotation, what each head writes [h, v, d], the stream."""

    q: Tensor
    k: Tensor
    writes: Tensor
    total: Tensor
    stream: Tensor
    scale: float
    logits: Callable[[Tensor], Tensor]
    cap: float | None = None

    def scores(self, turn: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = lambda q, k: (q, k)) -> Tensor:
        """What softmax receives [h, query, key]."""
        q, k = turn(self.q.transpose(0, 1), self.k.transpose(0, 1))
        raw = q @ k.mT * self.scale
        return raw if self.cap is None else self.cap * torch.tanh(raw / self.cap)


def naive(name: str, layer: int) -> Naive:
    """The same model as `specimen` gives, computed by its own modules."""
    model: Any = tiny(name).double().requires_grad_(False)
    with torch.no_grad():
        if name.startswith("gpt2"):
            return _gpt2(model, layer)
        if name.startswith("bert"):
            return _bert(model, layer)
        return _neox(model, layer) if name.startswith("gpt_neox") else _decoder(name, model, layer)


def _dealt(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1))


def _written(v: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Writes [h, v, d] and their sum with the bias, from values [v, h, k] and an output weight [d, h·k]."""
    writes = torch.einsum("vhk,dhk->hvd", v, _dealt(weight, v.shape[1]))
    total = writes.sum(0)
    return writes, total if bias is None else total + bias


def _gpt2(model: Any, layer: int) -> Naive:
    stream, block = model.transformer.wte.weight, model.transformer.h[layer]
    q, k, v = (_dealt(x, 4) for x in block.attn.c_attn(block.ln_1(stream)).chunk(3, -1))
    writes, total = _written(v, block.attn.c_proj.weight.T, block.attn.c_proj.bias)
    scale = q.shape[-1] ** -0.5
    if model.config.scale_attn_by_inverse_layer_idx:
        scale /= layer + 1
    return Naive(q, k, writes, total, stream, scale, lambda x: model.lm_head(model.transformer.ln_f(x)))


def _bert(model: Any, layer: int) -> Naive:
    """Post-norm, and the head that our table leaves aside: words are compared with the embedding."""
    bert = model.bert
    table = bert.embeddings.word_embeddings.weight
    x = table + bert.embeddings.token_type_embeddings.weight[0]
    before = bert.encoder.layer[layer - 1].output if layer else bert.embeddings
    stream, attention = before.LayerNorm(x), bert.encoder.layer[layer].attention
    q, k, v = (_dealt(getattr(attention.self, side)(stream), 4) for side in ("query", "key", "value"))
    dense = attention.output.dense
    writes, total = _written(v, dense.weight, dense.bias)
    return Naive(q, k, writes, total, stream, q.shape[-1] ** -0.5, lambda x: attention.output.LayerNorm(x) @ table.T)


def _neox(model: Any, layer: int) -> Naive:
    stream, block = model.gpt_neox.embed_in.weight, model.gpt_neox.layers[layer]
    fused = _dealt(block.attention.query_key_value(block.input_layernorm(stream)), 4)
    q, k, v = fused.chunk(3, -1)
    writes, total = _written(v, block.attention.dense.weight, block.attention.dense.bias)
    output = model.get_output_embeddings()
    return Naive(q, k, writes, total, stream, q.shape[-1] ** -0.5, lambda x: output(model.gpt_neox.final_layer_norm(x)))


def _decoder(name: str, model: Any, layer: int) -> Naive:
    """Llama and its kin, and OPT."""
    opt = name.startswith("opt")
    inner = model.model.decoder if opt else model.model
    block, config = inner.layers[layer], model.config
    embedded = inner.embed_tokens(torch.arange(config.vocab_size))
    norm = block.self_attn_layer_norm if opt else block.input_layernorm
    post = opt and not config.do_layer_norm_before
    stream = inner.layers[layer - 1].final_layer_norm(embedded) if post and layer else embedded
    y, attention = stream if post else norm(stream), block.self_attn
    heads, groups = config.num_attention_heads, getattr(config, "num_key_value_heads", config.num_attention_heads)
    q, k, v = (
        _dealt(getattr(attention, f"{side}_proj")(y), n) for side, n in (("q", heads), ("k", groups), ("v", groups))
    )
    if hasattr(attention, "q_norm"):
        q, k = attention.q_norm(q), attention.k_norm(k)
    k, v = (side.repeat_interleave(heads // groups, 1) for side in (k, v))
    out = attention.out_proj if opt else attention.o_proj
    writes, total = _written(v, out.weight, out.bias)
    if name.startswith("gemma2"):
        after = block.post_attention_layernorm
        factor = torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + after.eps) * (1 + after.weight)
        writes, total = writes * factor, after(total)
    scale = attention.scaling

    def logits(x: Tensor) -> Tensor:
        if post:
            return model.lm_head(norm(x))
        return model.lm_head(inner.final_layer_norm(x) if opt else inner.norm(x))

    return Naive(q, k, writes, total, stream, scale, logits, getattr(config, "attn_logit_softcapping", None))

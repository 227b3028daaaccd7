"""Examine a trained causal language model.

Four measurements: how well it predicts text (bits per byte), whether it copies from its context (induction), what it
would predict after each block (the logit lens), and what it writes (samples). None of them changes the model.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.errors import ModelError
from armillary.flow.capture import run, still, watching, watching_patterns
from armillary.geometry.multiply import wide
from armillary.geometry.resample import Interval, bootstrap

Tick = Callable[[int], None]
BATCH = 16


def bits_per_byte(
    model: Any,
    tokens: Int[np.ndarray, " n"],
    text_bytes: int,
    context: int,
    batch: int = BATCH,
    tick: Tick = lambda n: None,
) -> float:
    """Bits per byte of a text of `text_bytes` bytes; all tokens but the first are predicted once.

    Windows of `context` tokens lie end to end without overlap, so on average a token sees half a window before it.
    `tick` is called after every batch with the number of tokens predicted in it.

    >>> import transformers
    >>> config = transformers.GPT2Config(vocab_size=8, n_positions=4, n_embd=4, n_layer=1, n_head=1)
    >>> model = transformers.GPT2LMHeadModel(config)
    >>> _ = model.lm_head.weight.data.zero_()  # all tokens equally probable: three bits each
    >>> round(bits_per_byte(model, np.arange(8), text_bytes=21, context=4), 6)
    1.0
    """
    _fits(model, context, tokens)
    if len(tokens) < 2 or text_bytes < 1:
        raise ValueError(
            f"bits per byte need at least two tokens and one byte of text, got {len(tokens)} tokens and {text_bytes} "
            "bytes"
        )
    total = 0.0
    with still(model):
        for windows in _windows(tokens, context, batch):
            total += float(_nats(_logits(model, windows[:, :-1]), windows[:, 1:]).sum())
            tick(windows[:, 1:].numel())
    return total / math.log(2) / text_bytes


def _windows(tokens: np.ndarray, context: int, batch: int) -> Iterator[Tensor]:
    """Windows [b, context + 1] that share one token with the next; then the shorter rest by itself."""
    full = (len(tokens) - 1) // context
    for start in range(0, full, batch):
        rows = range(start, min(start + batch, full))
        yield _ids(np.stack([tokens[i * context : (i + 1) * context + 1] for i in rows]))
    if full * context < len(tokens) - 1:
        yield _ids(tokens[full * context :][None])


def _ids(tokens: np.ndarray) -> Tensor:
    return torch.from_numpy(tokens.astype(np.int64))


def _logits(model: Any, ids: Tensor) -> Tensor:
    return model(input_ids=ids.to(model.device), use_cache=False).logits


def _nats(logits: Float[Tensor, "b t v"], targets: Int[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """-ln p of each target, in float64 for sums of millions, and on the CPU, because not every device has float64."""
    nats = functional.cross_entropy(wide(logits).flatten(0, 1), targets.to(logits.device).flatten(), reduction="none")
    return nats.reshape(targets.shape).cpu().double()


def _fits(model: Any, length: int, tokens: np.ndarray) -> None:
    """Check lengths and ids: PyTorch raises an index error for them, which on a GPU ends the process."""
    most, vocabulary = getattr(model.config, "max_position_embeddings", length), model.config.vocab_size
    if not 1 <= length <= most:
        raise ValueError(f"windows of {length} tokens were asked for, but the model reads 1 to {most} tokens at once")
    if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(f"expected one stream of integer token ids, got {tokens.dtype} of shape {tokens.shape}")
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
        raise ValueError(
            f"token ids go from {tokens.min()} to {tokens.max()}, but the model's vocabulary has {vocabulary}: "
            "check that the text was encoded with the model's own tokenizer"
        )


@dataclass(frozen=True, eq=False)
class Induction:
    """How much better a model predicts the repetition of a random sequence, and which heads copy."""

    first: float
    """Mean nats per token in the first copy."""
    second: float
    drop: Interval
    """first - second, with its 95 % interval over sequences."""
    score: Float[np.ndarray, "layers heads"]
    """Mean attention from a token of the second copy to the token after its previous occurrence."""
    control: Float[np.ndarray, "layers heads"]
    """Mean attention from the same token to any other token of the first copy."""

    @property
    def strongest(self) -> tuple[int, int]:
        """Layer and head with the highest score."""
        layer, head = np.unravel_index(int(self.score.argmax()), self.score.shape)
        return int(layer), int(head)


def induction(
    model: Any, vocabulary: int, length: int = 64, sequences: int = 64, seed: int = 0, first_id: int = 1
) -> Induction:
    """Repeat uniformly random sequences of ids first_id … vocabulary-1 once, and compare the copies.

    Only tokens whose predecessor belongs to the same copy count: the start of a copy cannot be predicted. Random ids
    contain no language, so any gain on the second copy comes from reading the first.
    """
    if length < 2 or sequences < 2 or not 0 <= first_id < vocabulary - 1:
        raise ValueError(
            "induction needs at least two sequences of two tokens, drawn from two ids or more; got "
            f"{sequences} sequences of {length} from {first_id} up to {vocabulary - 1}"
        )
    once = np.random.default_rng(seed).integers(first_id, vocabulary, (sequences, length))
    ids = _ids(np.concatenate([once, once], axis=1))
    _fits(model, 2 * length, np.array([0, vocabulary - 1]))
    anatomy = read(model)
    nats: list[np.ndarray] = []
    scores: list[list[np.ndarray]] = [[] for _ in range(anatomy.layers)]

    def watch(layer: int, pattern: Tensor) -> None:
        scores[layer].append(_copying(pattern, length))

    with still(model), watching_patterns(anatomy, watch):
        for start in range(0, sequences, BATCH):
            rows = ids[start : start + BATCH]
            nats.append(_nats(_logits(model, rows)[:, :-1], rows[:, 1:]).numpy())
    losses = np.concatenate(nats)
    copies = np.stack([losses[:, : length - 1].mean(axis=1), losses[:, length:].mean(axis=1)], axis=1)
    drop = bootstrap(copies, lambda sums: (sums[:, 0] - sums[:, 1]) / sequences, seed=seed)
    score, control = np.stack([np.concatenate(layer).mean(axis=0) for layer in scores]).transpose(2, 0, 1)
    first, second = copies.mean(axis=0).tolist()
    return Induction(first, second, drop, score, control)


def _copying(pattern: Float[Tensor, "b h t t"], length: int) -> Float[np.ndarray, "b h 2"]:
    """Attention from t to t - length + 1, and the mean attention from t to the other tokens of the first copy.

    The control is the expectation over a random other position, without sampling noise. The last token is left out: the
    token after its previous occurrence is not in the first copy.
    """
    looking = pattern[:, :, length : 2 * length - 1, :length].cpu().double()
    there = looking.diagonal(offset=1, dim1=-2, dim2=-1)
    elsewhere = (looking.sum(dim=-1) - there) / (length - 1)
    return torch.stack([there.mean(dim=-1), elsewhere.mean(dim=-1)], dim=-1).numpy()


@dataclass(frozen=True, eq=False)
class LensExam:
    """What the stream would predict at each depth; intervals are 95 %, over windows."""

    depths: tuple[str, ...]
    """Sites: the stream before the first block, then after each."""
    nats: Interval
    """Mean -ln p of the true next token, [depth]."""
    kl: Interval
    """Mean KL divergence of that prediction from the model's own, KL(final ‖ lens) in nats, [depth]."""


def lens(model: Any, tokens: Int[np.ndarray, " n"], windows: int = 16, context: int | None = None) -> LensExam:
    """Pass the stream at every depth through the model's own final norm and unembedding (nostalgebraist 2020).

    Windows of `context` tokens (the model's own length if None) are spread evenly over the text, without overlap.
    """
    anatomy = read(model)
    context = anatomy.context if context is None else context
    _fits(model, context, tokens)
    if anatomy.W_U is None or not anatomy.causal:
        raise ModelError(f"the lens needs a causal model with an unembedding, which this {anatomy.family} is not.")
    if windows < 2 or len(tokens) < windows * context + 1:
        raise ValueError(
            f"{windows} windows of {context} tokens were asked for: two or more are needed, and "
            f"{windows * context + 1} tokens of text for these, but there are {len(tokens)}; give more text, or fewer "
            "or shorter windows"
        )
    starts = [i * (len(tokens) - 1 - context) // (windows - 1) for i in range(windows)]
    with still(model):
        rows = np.stack([_through(anatomy, _ids(tokens[s : s + context + 1])[None]) for s in starts])
    depths = ("L0.resid_pre", *(f"L{i}.resid_post" for i in range(anatomy.layers)))
    nats, kl = (bootstrap(rows[..., i], lambda sums: sums / windows) for i in (0, 1))
    return LensExam(depths, nats, kl)


def _through(anatomy: Anatomy, window: Int[Tensor, "1 t"]) -> Float[np.ndarray, "depth 2"]:
    """Mean nats and mean KL(final ‖ lens) at each depth, in one window."""
    seen: list[Tensor] = []

    def before(given: Tensor | None, output: Tensor) -> None:
        assert given is not None, "a block takes the stream"
        seen.append(given)

    sites = {f"L{i}.resid_post": lambda given, output: seen.append(output) for i in range(anatomy.layers)}
    # Blocks run in order, and a hook set first fires first: the list is ordered by depth.
    with watching(anatomy, {"L0.resid_pre": before, **sites}):
        final = wide(run(anatomy, window[:, :-1], logits=True)).log_softmax(dim=-1)
    rows = []
    for stream in seen:
        logits = _unembed(anatomy, stream)
        kl = functional.kl_div(logits.log_softmax(dim=-1), final, reduction="none", log_target=True).sum(dim=-1)
        rows.append([float(_nats(logits, window[:, 1:]).mean()), float(kl.cpu().double().mean())])
    return np.array(rows)


def _unembed(anatomy: Anatomy, stream: Tensor) -> Tensor:
    return anatomy.logits(wide(stream) if anatomy.ln_final is None else anatomy.ln_final(stream))


def samples(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    tokens: int = 60,
    temperature: float = 0.8,
    top_k: int = 40,
    seed: int = 0,
) -> list[str]:
    """Each prompt continued by `tokens` tokens, drawn from the `top_k` most probable; reproducible for a seed.

    The end of a document is printed as the tokenizer spells it, and sampling goes on after it. All prompts share one
    random generator, so a prompt given twice is continued in two ways.
    """
    if tokens < 0 or top_k < 1 or not temperature > 0:
        raise ValueError(
            f"sampling needs tokens ≥ 0, top_k ≥ 1 and temperature > 0, got {tokens}, {top_k} and {temperature}; "
            "for greedy decoding set top_k=1"
        )
    generator = torch.Generator().manual_seed(seed)
    with still(model):
        return [
            tokenizer.decode(
                _continued(model, _encoded(tokenizer, prompt), tokens, temperature, top_k, generator),
                skip_special_tokens=False,
            )
            for prompt in prompts
        ]


def _encoded(tokenizer: Any, prompt: str) -> list[int]:
    """For both kinds of tokenizer: `tokenizers` returns an Encoding, `transformers` a list."""
    encoding = tokenizer.encode(prompt, add_special_tokens=False)
    ids = list(getattr(encoding, "ids", encoding))
    if not ids:
        raise ValueError(f"the prompt {prompt!r} contains no token; give it a word or a document mark")
    return ids


def _continued(
    model: Any, ids: list[int], tokens: int, temperature: float, top_k: int, generator: torch.Generator
) -> list[int]:
    """Each step reads the last tokens that fit into the context again, without a cache."""
    most = getattr(model.config, "max_position_embeddings", len(ids) + tokens)
    for _ in range(tokens):
        logits = wide(_logits(model, torch.tensor([ids[-most:]]))[0, -1]).cpu() / temperature
        best = logits.topk(min(top_k, len(logits)))
        drawn = torch.multinomial(best.values.softmax(dim=-1), 1, generator=generator)
        ids = [*ids, int(best.indices[drawn])]
    return ids

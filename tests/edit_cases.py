"""Every edit, in settings that show on tiny models, and what the tests of edits share."""

from contextlib import contextmanager

import torch
from tiny import tiny

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.edits import Ablate, Freeze, Scale, Shuffle, Silence, Slide, Turn, across, edited, within

# Learned positions, rotary, norms before and after, parallel sublayers, and a decoder that is called past its model.
FAMILIES = ("gpt2", "llama", "gemma2", "gpt_neox", "opt")
PROMPT, NEW = 7, 4


def even(pre, post):
    """Every other coordinate: no rounding can change the choice."""
    return torch.arange(post.shape[-1], device=post.device).expand(post.shape) % 2 == 0


def edits(a: Anatomy) -> dict[str, object]:
    per_token = 0.4 + torch.rand(1, PROMPT + NEW, 1, generator=torch.Generator().manual_seed(1))
    return {
        "scale": Scale(-1, 3.0),
        # After block 0, so that later tokens see it: what block 1 adds is small beside it.
        "scale from the second new token on": Scale(0, 30.0, start=PROMPT + 1),
        "turn": Turn(0, 0.5, seed=1, start=2),
        "freeze": Freeze("L1.ln1", 0.7),
        "freeze token by token": Freeze("L1.ln1", per_token.to(a.dtype)),
        "slide": Slide(3),
        "slide, positions kept": Slide(3, "keep"),
        "z": Shuffle(1, across(a.n_heads, a.k, 0)),
        "q": Shuffle(1, across(a.n_heads, a.k, 0), "q"),
        "qk": Shuffle(1, within(a.n_kv_heads, a.k, 0), "qk"),
        "silence": Silence(1, (0, 3)),
        "zero": Ablate(1, even),
        "mean": Ablate(1, even, "mean", torch.ones(a.m, dtype=a.dtype)),
    }


NAMES = [*edits(read(tiny("gpt2")))]


# One of each, and none that needs more tokens than a slid window leaves.
ALL = ["scale", "turn", "freeze token by token", "slide", "z", "q", "qk", "silence", "zero", "mean"]


@contextmanager
def together(a: Anatomy, *names: str):
    with edited(a, *(edits(a)[name] for name in names)):
        yield


def text(length: int = PROMPT, rows: int = 1, seed: int = 3) -> torch.Tensor:
    return torch.randint(3, 97, (rows, length), generator=torch.Generator().manual_seed(seed))


def greedy(a: Anatomy, ids: torch.Tensor, cache: bool = True, **more) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [b, t] and the logits of the new ones [new, b, v]."""
    more = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "use_cache": cache, **more}
    output = a.model.generate(ids, output_logits=True, return_dict_in_generate=True, **more)
    return output.sequences, torch.stack(output.logits)


def far(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    return float((a - b).abs().max() / b.abs().max())


def state(a: Anatomy) -> list[object]:
    """Everything that an edit may touch outside the weights."""
    import transformers.modeling_utils as library

    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in a.model.modules()]
    return [*hooks, dict(vars(library.ALL_ATTENTION_FUNCTIONS)), torch._dynamo.eval_frame._stance.stance]


# `generate` hands logits over in float32: a hundred of its roundings.
CLOSE = 1e-5
# Rows beside others are added up in another order, in float32 throughout.
BESIDE = 10 * CLOSE


def padded(*rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Rows [1, t] of different lengths as one batch, padded on the left."""
    width = max(row.shape[1] for row in rows)
    ids = [torch.nn.functional.pad(row, (width - row.shape[1], 0)) for row in rows]
    marks = [torch.nn.functional.pad(torch.ones_like(row), (width - row.shape[1], 0)) for row in rows]
    return {"input_ids": torch.cat(ids), "attention_mask": torch.cat(marks)}

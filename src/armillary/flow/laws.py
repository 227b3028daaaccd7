"""Check that the canonical form computes what the model computes.

Every law is checked at every load on a tiny batch, and its error is stored with every result. A law that fails names
itself, the layer and the size of the failure.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.anatomy import Block, FeedForward, Routed
from armillary.anatomy.folded import fold, mlp_norm, reading_norm
from armillary.errors import ArmillaryError, LawError, ModelError
from armillary.flow.attention import (
    attend,
    biases,
    capped,
    cross_attend,
    folded_results,
    folded_scores,
    placed,
    projected,
    rotation,
    scores_of,
    softmax,
    visible,
)
from armillary.flow.capture import still
from armillary.flow.law_passes import Seen, attentions, look
from armillary.geometry.multiply import wide
from armillary.results import LawCheck

# A law compares two orders of the same few sums: errors of tens of roundings are rounding, thousands are not.
ROUNDINGS = {torch.float64: 64.0, torch.float32: 64.0, torch.float16: 8.0, torch.bfloat16: 8.0}
# Laws that say how a model's own norms and heads compute, and nothing about swapped ones.
OF_PARTS = {
    "norm": ("norms",),
    "embedding": ("norms",),
    "attention": ("heads",),
    "windows": ("heads",),
    "two views": ("norms", "heads"),
    "logits": ("norms",),
}


Errors = Iterable[tuple[str, float]]


def check(anatomy: Anatomy) -> tuple[LawCheck, ...]:
    """Run every law; raise `LawError` at the first that fails, return the errors of all otherwise.

    A model whose values contain NaN or infinity fails the laws: the errors are NaN there.
    """
    checks = []
    with still(anatomy.model):
        seen = _looked(anatomy)
        for name, (statement, law) in LAWS.items():
            other = next((part for part in OF_PARTS.get(name, ()) if part in anatomy.swapped), "")
            if other:
                checks.append(LawCheck(name, statement, 0.0, 0.0, f"not applicable: swapped {other}"))
            else:
                checks.append(_judged(anatomy, _measure(anatomy, seen, name, statement, law)))
    return tuple(checks)


def _looked(anatomy: Anatomy) -> Seen:
    try:
        return look(anatomy)
    except (torch.OutOfMemoryError, ArmillaryError):
        raise
    except (RuntimeError, LookupError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in anatomy.model.parameters()})
        cause = (
            "its config does not fit its weights; compare config.json with the original."
            if len(dtypes) == 1
            else f"its weights are of several dtypes ({', '.join(dtypes)}); convert them to one: model.float()."
        )
        raise ModelError(f"the model's own forward pass fails on a few tokens ({reason}): {cause}") from error


def _judged(anatomy: Anatomy, law: LawCheck) -> LawCheck:
    if law.error != law.error:
        raise LawError(
            f"the model's values contain NaN at {law.where} (law '{law.name}'): they overflow in "
            f"{str(anatomy.dtype).removeprefix('torch.')}, or the model is broken; load it with --dtype float32."
        )
    if anatomy.dtype is torch.float64 and law.tolerance < law.error <= torch.finfo(torch.float32).eps * 64:
        raise LawError(
            f"law '{law.name}' fails at {law.where} by {law.error:.2e}, as if computed in float32: the library's norms "
            f"and softmax may compute in float32, whatever the model's dtype. Pass it in float32: model.float()."
        )
    if not law.error <= law.tolerance:
        raise LawError(
            f"law '{law.name}' ({law.statement}) fails at {law.where} by {law.error:.2e}, where rounding explains "
            f"{law.tolerance:.0e}: this {anatomy.family} model does not compute what its table says; check the table, "
            "that the model's code is the library's own, and that no hook or patch changes it."
        )
    return law


def _measure(anatomy: Anatomy, seen: Seen, name: str, statement: str, law: Callable[[Seen], Errors]) -> LawCheck:
    tolerance = ROUNDINGS[anatomy.dtype] * torch.finfo(anatomy.dtype).eps
    worst, where = 0.0, "not applicable"
    for place, error in law(seen):
        if where == "not applicable" or not error <= worst:
            worst, where = error, place
        if worst != worst:
            break
    return LawCheck(name, statement, worst, tolerance, where)


def _error(computed: Tensor, reference: Tensor) -> float:
    reference = reference.double()
    return float((computed.double() - reference).abs().max() / reference.abs().max().clamp_min(1e-30))


# The laws, each a generator of (place, relative error).


def _shapes(seen: Seen) -> Errors:
    a, (b, t) = seen.anatomy, seen.ids.shape
    query, key = (b, t, a.n_heads, a.k), (b, t, a.n_kv_heads, a.k)
    promised: dict[str, tuple[int, ...]] = {"q": query, "z": query, "k": key, "v": key}
    promised |= {"pattern": (b, a.n_heads, len(seen.queries), t)}
    if a.encoder is not None:
        s = a.encoder.states(seen.ids)[0].shape[1]
        promised |= {"cross_q": query, "cross_z": query, "cross_pattern": (b, a.n_heads, len(seen.queries), s)}
        promised |= dict.fromkeys(("cross_k", "cross_v"), (b, s, a.n_heads, a.k))
    for name, site in a.sites.items():
        part = name.rpartition(".")[2]
        wanted = promised.get(part, (b, t, a.d))
        if part in ("mlp_pre", "mlp_up", "mlp_post") and site.layer is not None:
            wanted = (b, t, a.blocks[site.layer].feed_forward.W_in.shape[1])
        shape = tuple(seen.y(name).shape)
        same_rank = len(shape) == len(wanted)
        error = _error(torch.tensor(shape), torch.tensor(wanted)) if same_rank else 1.0
        yield f"{name} {list(shape)}, not {list(wanted)}" if error else name, error


def _norms(seen: Seen) -> Errors:
    for site, norm in seen.anatomy.norms.items():
        yield site, _error(norm(seen.x(site)), seen.y(site))


def _embedding(seen: Seen) -> Errors:
    a = seen.anatomy
    if a.signal is not None and a.signal.joined is not None:
        x = wide(a.signal.joined(a.signal.whole(seen.ids)))
    elif a.entry is not None:
        x = wide(a.entry(seen.ids))
    else:
        x = wide(a.W_E[seen.ids]) * a.embed_scale
    if a.positions.table is not None:
        x = x + wide(a.positions.table[: seen.ids.shape[1]])
    if a.token_type is not None:
        x = x + wide(a.token_type[0])
    if a.ln_embed is not None:
        x = a.ln_embed(x)
    yield "L0.resid_pre", _error(x, seen.y("L0.resid_pre"))


def _stream(seen: Seen) -> Errors:
    """Each sublayer's write is added to the stream; in pre-norm order the writes sum up to what ln_final gets."""
    a = seen.anatomy
    total = wide(seen.y("L0.resid_pre"))
    for i, block in enumerate(a.blocks):
        pre, post = wide(seen.y(f"L{i}.resid_pre")), seen.y(f"L{i}.resid_post")
        attn = wide(seen.y(f"L{i}.attn_out"))
        mlp = torch.zeros_like(attn) if block.channels is None else wide(seen.y(f"L{i}.mlp_out"))
        if block.cross is not None:
            crossed = wide(seen.y(f"L{i}.cross_out"))
            if a.order == "post":
                yield f"L{i}.ln_cross", _error(wide(seen.y(f"L{i}.ln1")) + crossed, seen.x(f"L{i}.ln_cross"))
            else:
                yield f"L{i}.ln_cross", _error(pre + attn, seen.x(f"L{i}.ln_cross"))
                attn = attn + crossed
        total = total + attn + mlp
        if a.order == "post":
            middle = f"L{i}.ln1" if block.cross is None else f"L{i}.ln_cross"
            yield f"L{i}.ln1", _error(pre + attn, seen.x(f"L{i}.ln1"))
            yield f"L{i}.ln2", _error(wide(seen.y(middle)) + mlp, seen.x(f"L{i}.ln2"))
            yield f"L{i}.resid_post", _error(seen.y(f"L{i}.ln2"), post)
            continue
        if not a.parallel and block.channels is not None:
            yield f"L{i}.ln2", _error(pre + attn, seen.x(mlp_norm(a, i)[0]))
        yield f"L{i}.resid_post", _error(pre + attn + mlp, post)
    if a.order == "pre" and a.ln_final is not None:
        yield "ln_final", _error(total, seen.x("ln_final"))


def _heads(seen: Seen) -> Errors:
    """The heads' own results, each through its W_O, sum up to attention's write."""
    for i, attention in attentions(seen.anatomy):
        summed = wide(seen.heads(f"L{i}.z")) @ wide(attention.W_O).flatten(0, 1)
        if attention.b_O is not None:
            summed = summed + wide(attention.b_O)
        after = seen.anatomy.blocks[i].ln1_post
        yield f"L{i}.attn_out", _error(summed if after is None else after(summed), seen.y(f"L{i}.attn_out"))


def _read_by(seen: Seen, layer: int) -> Tensor:
    """What a layer's mixer receives."""
    a = seen.anatomy
    own = a.order == "pre" and a.blocks[layer].ln1 is not None
    return wide(seen.y(f"L{layer}.ln1") if own else seen.y(f"L{layer}.resid_pre"))


def _attention(seen: Seen) -> Errors:
    """W_Q, W_K, W_V, the rotation, q/k-norm, soft cap, window and scale give every head's pattern and result.

    Errors of patterns and results are divided by the largest score S where it exceeds 1 (`_size`); those of q, k and v,
    which no softmax follows, are not. So a wrong weight shows at full size however large scores are.
    """
    a = seen.anatomy
    for i, attention in attentions(a):
        y, turn = _read_by(seen, i), rotation(a, i, seen.ids.shape[1])
        for side, weight, bias in (
            ("q", attention.W_Q, attention.b_Q),
            ("k", attention.W_K, attention.b_K),
            ("v", attention.W_V, attention.b_V),
        ):
            yield f"L{i}.{side}", _error(projected(y, weight, bias), seen.y(f"L{i}.{side}"))
        pattern, z = attend(attention, y, turn, a.causal)
        size = _size(scores_of(attention, y, turn)[..., visible(attention, y.shape[1], a.causal, y.device)])
        if f"L{i}.pattern" in a.sites:
            yield f"L{i}.pattern", _error(pattern[:, :, seen.queries], seen.y(f"L{i}.pattern")) / size
        yield f"L{i}.z", _error(z, seen.y(f"L{i}.z")) / size


def _size(scores: Tensor) -> float:
    """By how much softmax enlarges rounding: the largest |score| S, and at least 1.

    Both sides round a score to a share ε of its size, so scores differ by δ with |δ_j| ≤ η = εS. The derivative of
    p = softmax(s) is diag(p) − p pᵀ: to first order Δp_i = p_i (δ_i − Σ_j p_j δ_j). As |δ_i − Σ_j p_j δ_j| is at most
    2 (1 − p_i) η and p (1 − p) at most ¼, no entry of a pattern moves by more than η/2. The sum of all |Δp_i| is the
    mean distance of δ from its own mean, at most η, so a result Σ p_j v_j moves by at most η max|v|. The bound is
    reached (two keys, p = ½, δ = ±η): without this division a correct model with S = 100 fails by rounding alone.
    """
    return max(1.0, float(scores.abs().max()))


def _cross(seen: Seen) -> Errors:
    """Queries of the decoder and the encoder's own states give every head's pattern and result, which sum to the
    write."""
    a = seen.anatomy
    states = None if a.encoder is None else a.encoder.states(seen.ids)[0]
    for i, block in enumerate(a.blocks):
        if block.cross is None or states is None:
            continue
        reads = seen.y(f"L{i}.ln_cross" if a.order == "pre" else f"L{i}.ln1")
        pattern, z = cross_attend(block.cross, wide(reads), states)
        size = _size(scores_of(block.cross, wide(reads), None, wide(states)))
        yield f"L{i}.cross_pattern", _error(pattern[:, :, seen.queries], seen.y(f"L{i}.cross_pattern")) / size
        yield f"L{i}.cross_z", _error(z, seen.y(f"L{i}.cross_z")) / size
        summed = wide(seen.heads(f"L{i}.cross_z")) @ wide(block.cross.W_O).flatten(0, 1)
        summed = summed if block.cross.b_O is None else summed + wide(block.cross.b_O)
        yield f"L{i}.cross_out", _error(summed, seen.y(f"L{i}.cross_out"))


def _windows(seen: Seen) -> Errors:
    """The same in a text that is longer than the windows, which are shrunk for it where that can be done."""
    a = seen.anatomy
    if seen.windowed is None:
        return
    for i, attention in attentions(a):
        window = attention.window if attention.window is None else attention.window - seen.windowed.shrunk
        narrow = replace(attention, window=window)
        reads, attended = wide(seen.windowed.reads[i]), seen.windowed.results[i]
        _, z = attend(narrow, reads, rotation(a, i, reads.shape[1]), a.causal)
        yield f"L{i}.z", _error(z, attended)


def _two_views(seen: Seen) -> Errors:
    """Scores and head results from the folded matrices, which take directions and offsets, against the model's own."""
    a, t = seen.anatomy, seen.ids.shape[1]
    for i, attention in attentions(a):
        site, norm = reading_norm(a, i)
        # In float64, so that what is left is the model's own rounding.
        x = (seen.y(f"L{i}.resid_pre") if norm is None else seen.x(site)).double()
        z, folded = x if norm is None else norm.direction(x), fold(a, i, t)
        q, k = (wide(seen.y(f"L{i}.{side}")) for side in "qk")
        q, k = placed(attention, q, k, rotation(a, i, t))
        scores = capped(attention, torch.einsum("bihk,bjhk->bhij", q, k))
        added = biases(attention, t, z.device)
        scores = scores if added is None else scores + added
        recomputed = folded_scores(folded, z, a.causal)
        pairs = visible(attention, t, a.causal, z.device)
        yield f"L{i} scores", _error(recomputed[..., pairs], scores[..., pairs])
        pattern = softmax(attention, recomputed.masked_fill(~pairs, -torch.inf))
        size = _size(scores[..., pairs])
        yield f"L{i} results", _error(folded_results(folded, pattern, z), seen.y(f"L{i}.z")) / size


def _hidden(seen: Seen) -> Errors:
    """Each step of the feed-forward layer from the model's own values before it."""
    a = seen.anatomy
    for i, block in enumerate(a.blocks):
        if not isinstance(block.channels, FeedForward):
            continue
        ffn, y = block.channels, wide(seen.y(mlp_norm(a, i)[0]))
        up_site = f"L{i}.mlp_pre" if ffn.W_gate is None else f"L{i}.mlp_up"
        pre, up, post = (wide(seen.y(site)) for site in (f"L{i}.mlp_pre", up_site, f"L{i}.mlp_post"))
        yield f"L{i}.mlp_pre", _error(ffn.pre(y), pre)
        yield up_site, _error(ffn.up(y), up)
        yield f"L{i}.mlp_post", _error(ffn.activate(pre, up), post)
        yield f"L{i}.mlp_out", _error(_normed(block, ffn.write(post)), seen.y(f"L{i}.mlp_out"))


def _feed_forward(seen: Seen) -> Errors:
    """The whole layer, dense or routed, from what it reads."""
    for i, block in enumerate(seen.anatomy.blocks):
        if isinstance(block.channels, FeedForward | Routed):
            write = block.channels(wide(seen.y(mlp_norm(seen.anatomy, i)[0])))
            yield f"L{i}.mlp_out", _error(_normed(block, write), seen.y(f"L{i}.mlp_out"))


def _normed(block: Block, write: Tensor) -> Tensor:
    return write if block.ln2_post is None else block.ln2_post(write)


def _logits(seen: Seen) -> Errors:
    a = seen.anatomy
    if a.W_U is None or seen.logits is None:
        return
    final = wide(seen.x("ln_final")) if a.ln_final is not None else wide(seen.last)
    yield "logits", _error(a.logits(a.ln_final(final) if a.ln_final is not None else final), seen.logits)


def _edits(seen: Seen) -> Errors:
    """An edit at the last position leaves earlier positions alone; undone, the model is bit for bit itself."""
    # Activations that are packed on the way share one scale: what one position holds rounds the others.
    for layer, doubled in seen.doubled.items() if not seen.anatomy.packed else ():
        yield f"L{layer}.resid_post, earlier positions", _error(doubled[:, :-1], seen.last[:, :-1])
    end = f"L{seen.anatomy.layers - 1}.resid_post"
    same = torch.equal(seen.again, seen.y(end))
    yield f"{end}, after undoing", 0.0 if same else max(_error(seen.again, seen.y(end)), 1.0)


LAWS: dict[str, tuple[str, Callable[[Seen], Errors]]] = {
    "shapes": ("every site has the shape that its name promises", _shapes),
    "embedding": ("token, position and type embeddings start the stream", _embedding),
    "norm": ("Norm(x) is the module's output", _norms),
    "attention": ("W_Q, W_K, W_V give every head's own result", _attention),
    "cross attention": ("the encoder's states give every head's own result, and these sum to the write", _cross),
    "windows": ("a query sees the keys within its layer's window, and no others", _windows),
    "two views": ("per-head W_QK and W_VO on directions give the model's scores and results", _two_views),
    "heads": ("the heads' results through W_O sum to attention's write", _heads),
    "hidden values": ("W_in, W_gate, the activation and W_out give each step of the feed-forward layer", _hidden),
    "feed-forward": (
        "W_in, W_gate, W_out, and the router where there is one, give the feed-forward write",
        _feed_forward,
    ),
    "stream": ("embedding plus all writes is what the final norm receives", _stream),
    "logits": ("final norm and unembedding give the logits", _logits),
    "edits": ("an edit reaches no earlier position and is undone without a trace", _edits),
}

"""Replace parts of a Hugging Face model by parts of the laboratory, and undo it."""

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn

from armillary.anatomy import Anatomy
from armillary.anatomy.families import family_of
from armillary.anatomy.read import read
from armillary.errors import ArmillaryError, ModelError
from armillary.lab.parts.activations import Activation
from armillary.lab.parts.attention.member_heads import MembershipAttention
from armillary.lab.parts.attention.membership import Membership
from armillary.lab.parts.attention.scores import Score, ScoredAttention
from armillary.lab.parts.attention.supervised_heads import SupervisedAttention
from armillary.lab.parts.attention.width import WideAttention
from armillary.lab.parts.attention.wrapped_projections import is_gpt2, wrapper_of
from armillary.lab.parts.gated_layers import gated
from armillary.lab.parts.mimic import mimicked
from armillary.lab.parts.norms import new_norm, take_affine
from armillary.lab.parts.reordered_blocks import new_blocks
from armillary.lab.parts.symmetriser import Symmetriser

# Where the classes of activations live, ours among them (a swapped one can be swapped again).
ACTIVATION_HOMES = ("transformers.activations", "torch.nn.modules.activation", Activation.__module__)
NormMaker = Callable[[int], nn.Module]
Norms = str | NormMaker | Mapping[str, nn.Module]


class Swap:
    """What was replaced in a model; `undo` puts it back. Also a context manager that undoes at its end."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._before: list[tuple[str, nn.Module]] = []
        self._again: Callable[..., Any] | None = None

    def replace(self, path: str, module: nn.Module) -> None:
        old = self._model.get_submodule(path)
        like = next(old.parameters(), next(self._model.parameters()))
        self._model.set_submodule(path, module.to(like.device, like.dtype).train(old.training))
        self._before.append((path, old))

    def remember(self, again: Callable[..., Any]) -> None:
        """Note on the model how to do the same with another of its kind, such as an untrained twin."""
        self._again = again
        model: Any = self._model
        model.swapped_by = [*getattr(model, "swapped_by", ()), again]

    def undo(self) -> None:
        """The model's own modules again, with the weights they had."""
        model: Any = self._model
        if self._again in (known := getattr(model, "swapped_by", [])):
            known.remove(self._again)
            if not known:
                del model.swapped_by
        while self._before:
            self._model.set_submodule(*self._before.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.undo()


def swap(
    model: Any,
    *,
    norm: Norms | None = None,
    heads: str | None = None,
    results: str | None = None,
    score: Score | None = None,
    activation: str | None = None,
    gate: bool = False,
    head_width: int | None = None,
    n_heads: int | None = None,
    block_diagonal: bool = False,
    layout: str | None = None,
    keep: bool = True,
    **settings: Any,
) -> Swap:
    """Replace every norm of the stream, the heads and the activation of every layer.

    `norm` is a name of `lab.parts.NORMS`, 'symmetriser', a function from a width to a module, or modules by site, which
    stay as they are (`lab.parts.mimic.mimics` learns them). `settings` are the named norm's own; `attention_alpha` is α
    of DyT and Derf before attention; a symmetriser's `start` may also be 'mimic' (it has learned LayerNorm on Gaussian
    vectors), and with `shared` one recurrence and one set of messages serve all layers. A new norm takes over gain and
    shift where it has them, unless `keep` is False. `heads` and `results` are memberships (`lab.parts.MEMBERSHIPS`)
    for scores and results; `heads` may also be 'supervised' (by token, where positions are not rotary). `score` is a
    name of `lab.parts.SCORES`; projections stay. `activation` is a name of `lab.parts.ACTIVATIONS`. In GPT-2 alone:
    `gate` gives every layer a gated feed-forward with random weights, and `head_width`, `n_heads` or `block_diagonal`
    a new attention with random weights (`lab.parts.WideAttention`);
    `layout` is 'post-norm' or 'ngpt' (`lab.parts.reordered_blocks`).
    """
    wide = bool(head_width or n_heads or block_diagonal)
    if settings and not isinstance(norm, str):
        raise ArmillaryError(f"{', '.join(settings)} belong to a norm that is given by name, and none was given.")
    _must_agree(norm is not None, heads is not None, score is not None, wide, gate, layout)
    given: dict[str, Any] = {"norm": norm, "heads": heads, "results": results, "score": score}
    given |= {"activation": activation, "keep": keep, **settings}
    # Read once: afterwards the model is no longer what its family's table describes.
    swapped, anatomy = Swap(model), read(model)
    try:
        if norm is not None:
            _swap_norms(swapped, anatomy, norm, keep, settings)
        if heads is not None:
            _swap_heads(swapped, anatomy, partial(_memberships, heads, results))
        if score is not None:
            _swap_heads(swapped, anatomy, lambda n, width, pairs: ScoredAttention(score, n, width))
        if wide:
            _swap_widths(swapped, anatomy, head_width, n_heads, block_diagonal)
        if activation is not None:
            _swap_activations(swapped, anatomy, activation)
        if gate or layout is not None:
            _swap_layers(swapped, anatomy, gate, layout)
    except Exception:
        swapped.undo()
        raise
    swapped.remember(partial(swap, **{name: part for name, part in given.items() if part is not None}))
    return swapped


def _must_agree(norm: bool, heads: bool, score: bool, wide: bool, gate: bool, layout: str | None) -> None:
    """Parts that stand for the same module exclude each other."""
    if heads and score:
        raise ArmillaryError("heads by membership have the dot product as score; give heads or score, not both.")
    if wide and (heads or score):
        raise ArmillaryError("heads of another width have ordinary memberships and scores; give one of them.")
    if layout == "ngpt" and (norm or heads or score or wide or gate):
        raise ArmillaryError("nGPT has its own norms, heads and feed-forward; it can be given an activation alone.")


def _swap_norms(swapped: Swap, anatomy: Anatomy, norm: Norms, keep: bool, settings: dict[str, Any]) -> None:
    if family_of(anatomy.family).gain_offset:
        raise ModelError(
            f"norms of a {anatomy.family} store γ − 1 in place of γ, so a swapped norm would compute something else; "
            "swap norms in another family."
        )
    if isinstance(norm, Mapping):
        _must_be_sites(norm, anatomy.norms)
        for site, module in norm.items():
            swapped.replace(anatomy.sites[site].path, module)
        return
    make = _maker(norm, anatomy.d, settings)
    for site, canonical in anatomy.norms.items():
        new = make(site)
        if keep:
            take_affine(new, canonical.gain, canonical.shift)
        swapped.replace(anatomy.sites[site].path, new)


def _must_be_sites(given: Mapping[str, nn.Module], sites: Mapping[str, Any]) -> None:
    if given.keys() != sites.keys():
        odd = sorted(given.keys() ^ sites.keys())
        raise ArmillaryError(f"norms by site need one module for each of {', '.join(sites)}; {', '.join(odd)} differ.")


def _maker(norm: str | NormMaker, width: int, settings: dict[str, Any]) -> Callable[[str], nn.Module]:
    """From a site to its new norm."""
    if not isinstance(norm, str):
        return lambda site: norm(width)
    if norm == "symmetriser":
        return _symmetrisers(width, dict(settings))
    own = dict(settings)
    attention = {"alpha": own.pop("attention_alpha")} if "attention_alpha" in own else {}
    return lambda site: new_norm(norm, width, **{**own, **(attention if site.endswith(".ln1") else {})})


def _symmetrisers(width: int, settings: dict[str, Any]) -> Callable[[str], Symmetriser]:
    """Symmetrisers of one model: all that mimic have learned once, and all that share follow the first."""
    shared, first = settings.pop("shared", False), None
    learned: Symmetriser | None = None
    if settings.get("start") == "mimic":
        settings.pop("start")
        # From torch's global generator, like every other random start.
        learned = mimicked(width, seed=int(torch.randint(2**31, ())), **settings)

    def make(site: str) -> Symmetriser:
        nonlocal first
        new = Symmetriser(width, **settings)
        if learned is not None:
            new.adopt(learned)
        if shared and first is not None:
            new.share(first)
        first = first or new
        return new

    return make


def _memberships(heads: str, results: str | None, n: int, width: int, pairs: bool) -> nn.Module:
    if heads == "supervised":
        if results is not None or pairs:
            raise ArmillaryError(
                "a supervisor's memberships serve scores and results, and it reads queries before any rotation; give "
                "no results, and swap it into a model without rotary positions."
            )
        return SupervisedAttention(n, width)
    written = None if results is None else Membership(results, n, width, pairs)
    return MembershipAttention(Membership(heads, n, width, pairs), written)


def _must_be_gpt2(anatomy: Anatomy, what: str) -> None:
    if not is_gpt2(anatomy.model):
        raise ModelError(f"{what} can be swapped in GPT-2 models so far, and this is a {anatomy.family}.")


def _swap_heads(swapped: Swap, anatomy: Anatomy, new: Callable[[int, int, bool], nn.Module]) -> None:
    wrapper = wrapper_of(anatomy)
    width, pairs = anatomy.n_heads * anatomy.k, anatomy.positions.kind == "rotary"
    for layer in range(anatomy.layers):
        path = anatomy.sites[f"L{layer}.attn_out"].path
        swapped.replace(path, wrapper(anatomy.model.get_submodule(path), new(anatomy.n_heads, width, pairs)))


def _swap_widths(swapped: Swap, anatomy: Anatomy, width: int | None, heads: int | None, block_diagonal: bool) -> None:
    _must_be_gpt2(anatomy, "heads of another width")
    heads = heads or anatomy.n_heads
    if not width and (heads < 1 or anatomy.d % heads):
        raise ArmillaryError(
            f"{heads} heads do not divide a width of {anatomy.d}; choose another n_heads, or give head_width as well."
        )
    for layer in range(anatomy.layers):
        new = WideAttention(anatomy.d, heads, width or anatomy.d // heads, anatomy.layers, block_diagonal)
        swapped.replace(anatomy.sites[f"L{layer}.attn_out"].path, new)


def _swap_activations(swapped: Swap, anatomy: Anatomy, name: str) -> None:
    for layer in range(anatomy.layers):
        block = anatomy.sites[f"L{layer}.resid_pre"].path
        activations = [
            path
            for path, module in anatomy.model.get_submodule(block).named_modules()
            if type(module).__module__ in ACTIVATION_HOMES
        ]
        if len(activations) != 1:
            raise ModelError(
                f"layer {layer} of this {anatomy.family} has {len(activations)} activation modules where one was "
                "expected; its activation cannot be swapped."
            )
        swapped.replace(f"{block}.{activations[0]}", Activation(name))


def _swap_layers(swapped: Swap, anatomy: Anatomy, gate: bool, layout: str | None) -> None:
    """Whole feed-forward layers and whole blocks, which take over what was swapped into them before."""
    _must_be_gpt2(anatomy, "layers and their order")
    model: Any = anatomy.model
    for layer in range(anatomy.layers) if gate else ():
        path = f"{anatomy.sites[f'L{layer}.resid_pre'].path}.mlp"
        swapped.replace(path, gated(model.get_submodule(path), anatomy.d, anatomy.layers))
    for path, module in new_blocks(layout, model).items() if layout is not None else ():
        swapped.replace(path, module)


def centre(model: Any) -> None:
    """Take the mean over axes out of everything that a GPT-2 writes to its stream, in place.

    LayerNorm ignores that mean, so nothing changes; but on a centred stream RMSNorm and LayerNorm are the same. An
    unembedding that shares the embedding's weights gets its own copy first, because it reads the mean.
    """
    if not is_gpt2(model):
        raise ModelError(f"only GPT-2 models can be centred so far, and this is a {model.config.model_type}.")
    inner, head = model.base_model, model.get_output_embeddings()
    if head is not None and head.weight is inner.wte.weight:
        head.weight = nn.Parameter(head.weight.detach().clone())
    with torch.no_grad():
        written = [inner.wte.weight, inner.wpe.weight]
        for block in inner.h:
            for projection in (block.attn.c_proj, block.mlp.c_proj):
                written += [projection.weight, projection.bias]
        for weight in written:
            weight -= weight.mean(-1, keepdim=True)

"""Gradients of heads: equal to autograd's at the weights, and nothing is left behind."""

import numpy as np
import pytest
import torch
from planted import finding_of, tried, whole
from test_grid import FAMILIES
from tiny import tiny

from armillary.anatomy.read import read
from armillary.edits import Shuffle, Silence, across, edited
from armillary.flow.tokens import collate
from armillary.probes.grid.backpropagation.backward import loss_slices
from armillary.probes.grid.backpropagation.coupling import _written, derivatives, relative_change
from armillary.probes.grid.gradients import HeadGradients
from armillary.probes.machinery.bench import Bench
from armillary.specimens.models.heads.grid_models import gpt2
from armillary.specimens.models.texts import corpus, written


@pytest.mark.usefixtures("two_twins")
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_asked(name):
    finding = tried(HeadGradients(), read(tiny(name)), corpus(9, 14, vocabulary=97))
    whole(finding)
    direct = finding.more_tables.get("direct", finding.table).to_frame()
    assert (direct.foreign == 0).all() and (direct.own > 0).all()


def batch(rows: int = 2):
    return collate(corpus(rows, 14, vocabulary=97).windows, 0)


def slow(name: str, edits=()) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The loss's gradients at layer 1's W_Q, W_K and W_V, [heads, d, k] each, from the parameters."""
    model = tiny(name).train(False)
    anatomy = read(model)
    text = batch()
    with edited(anatomy, *edits):
        logits = model(input_ids=text.ids).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), text.ids[:, 1:].flatten(), reduction="sum")
    loss.backward()
    if name == "gpt2":
        parts = model.transformer.h[1].attn.c_attn.weight.grad.chunk(3, dim=1)
    elif name == "gpt_neox":
        fused = model.gpt_neox.layers[1].attention.query_key_value.weight.grad.T.reshape(32, 4, 3, 8)
        parts = [fused[:, :, part].flatten(1) for part in range(3)]
    else:
        attention = model.model.layers[1].self_attn
        parts = [p.weight.grad.T for p in (attention.q_proj, attention.k_proj, attention.v_proj)]
    return tuple(part.reshape(32, -1, 8).transpose(0, 1).double() for part in parts)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox"])
def test_slices_are_those_of_the_parameters(name):
    """Lengths and products of gradients, with and without a silenced head of an earlier layer."""
    silence = Silence(0, (1,))
    slices, _ = loss_slices(read(tiny(name)), batch(), [1])
    changed, _ = loss_slices(read(tiny(name)), batch(), [1], [silence])
    first = slices[1]
    for side, plain, other in zip("qkv", slow(name), slow(name, [silence]), strict=True):
        # `slow` sums over documents: add up the gradients of each.
        summed = torch.einsum("btd,bthk->hdk", first.y, getattr(first, side))
        assert torch.allclose(summed, plain, atol=1e-5 * plain.abs().max())
        silenced = torch.einsum("btd,bthk->hdk", changed[1].y, getattr(changed[1], side))
        assert torch.allclose(silenced, other, atol=1e-5 * other.abs().max())
        each = torch.einsum("btd,bthk->bhdk", first.y, getattr(first, side))
        also = torch.einsum("btd,bthk->bhdk", changed[1].y, getattr(changed[1], side))
        assert torch.allclose(first.products(changed[1], side), (each * also).sum((-1, -2)))


@pytest.mark.parametrize("frozen", [False, True])
def test_no_gradient_is_left_behind(frozen):
    anatomy = gpt2()
    parameters = dict(anatomy.model.named_parameters())
    first = next(iter(parameters.values()))
    first.grad = torch.ones_like(first)
    for parameter in parameters.values():
        parameter.requires_grad_(not frozen)
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    bench = Bench(anatomy, written(anatomy, 9, 12))
    bench.prove()
    HeadGradients().experiment(bench)
    bench.prove()
    assert all(parameter.requires_grad is not frozen for parameter in parameters.values())
    assert torch.equal(first.grad, torch.ones_like(first))
    assert all(parameter.grad is None for parameter in list(parameters.values())[1:])
    assert all(torch.equal(parameter, before[name]) for name, parameter in parameters.items())
    assert torch.is_grad_enabled()


def test_a_model_that_mixes_heads_would_be_seen():
    """Queries moved to other heads: a head's result then depends on slices that are not its own."""
    anatomy = gpt2()
    with edited(anatomy, Shuffle(0, across(4, 8, 0), "q")):
        rows = derivatives(anatomy, collate(written(anatomy, 2, 12).windows, 0), [0, 1])
    assert min(row.foreign for row in rows if row.head.startswith("L0")) > 0.01
    assert all(row.foreign == 0 for row in rows if row.head.startswith("L1"))


def test_earlier_layers_are_reached_and_later_ones_are_not():
    anatomy = gpt2(layers=3)
    rows = {row.head: row for row in derivatives(anatomy, collate(written(anatomy, 2, 12).windows, 0), [0, 1, 2])}
    assert rows["L2H0"].earlier > 0 and np.isnan(rows["L0H0"].earlier)
    frame = finding_of("gradients, heads that write much").to_frame().set_index("head")
    # A silenced head changes the input of later heads and the gradients of earlier ones.
    assert frame.loc["L0H0", "later"] > 0.1 and frame.loc["L1H0", "earlier"] > 0.1


def test_a_head_that_writes_nothing_is_coupled_to_none():
    def change(layer, W_Q, W_K, W_V, W_O):
        W_O[:8] = 0

    anatomy = gpt2(change)
    frame = tried(HeadGradients(), anatomy, written(anatomy)).to_frame().set_index("head")
    assert frame.loc["L1H0", "change"] == pytest.approx(0, abs=1e-6) and abs(frame.loc["L1H0", "cost"]) < 1e-6
    assert np.isnan(frame.loc["L1H0", "coupling"]), "over a write of nothing it is undefined"
    assert frame.loc["L1H1", "change"] > 0.1


def test_heads_that_write_little_are_coupled_as_much():
    """The change of a gradient goes with what a neighbour writes; divided by that, it hardly depends on the size."""
    little, much = (
        finding_of(f"gradients, heads that write {size}").to_frame().median(numeric_only=True)
        for size in ("little", "much")
    )
    assert little.change < 0.1 < 0.5 < much.change, "undivided, heads that write little would be independent"
    assert 0.4 < little.coupling / much.coupling < 2.5


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_what_heads_write_is_their_part_of_the_stream(name):
    """Alone, one head of a layer that writes: the whole of attention's write, also behind a norm."""
    anatomy = read(tiny(name))
    bench = Bench(anatomy, corpus(9, 14, vocabulary=97))
    batch = bench.batches()[0]
    states = bench.states(batch, ["L1.z", "L1.attn_out", "L1.resid_pre"])
    rows = _written(bench, batch, [(1, head) for head in range(anatomy.n_heads)])
    stream = states["L1.resid_pre"].double().square().sum((1, 2))
    assert np.allclose(rows[:, 0, 1], stream.numpy(), rtol=1e-5)
    weight = anatomy.blocks[1].attention.W_O.double()
    heads = torch.einsum("bthk,hkd->bthd", states["L1.z"].double().unflatten(-1, weight.shape[:2]), weight)
    scale = states["L1.attn_out"].double().square().sum((1, 2)) / heads.sum(2).square().sum((1, 2))
    slow = heads.square().sum((1, 3)) * scale[:, None]
    assert np.allclose(rows[..., 0], slow.numpy(), rtol=1e-5)


def test_relative_changes_are_those_of_vectors():
    rng = np.random.default_rng(0)
    g, h = rng.standard_normal((2, 50))
    stats = np.array([g @ g, g @ h, h @ h])
    assert relative_change(stats) == pytest.approx(np.linalg.norm(g - h) / np.linalg.norm(g))


def test_half_precision_can_be_asked():
    whole(tried(HeadGradients(), read(tiny("llama").half()), corpus(9, 14, vocabulary=97)))

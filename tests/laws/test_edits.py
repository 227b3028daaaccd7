"""Every edit on every family: it acts, it keeps the model causal, it is undone bit for bit, and it composes."""

from dataclasses import replace

import pytest
import torch
from tiny import MAKERS, tiny

from armillary.anatomy import Anatomy
from armillary.anatomy.folded import mlp_norm
from armillary.anatomy.read import read
from armillary.edits import EDITS, Ablate, Freeze, Scale, Shuffle, Silence, Slide, Turn, across, edited, within
from armillary.edits.edit import changing
from armillary.edits.late_start import keeping, resuming, unchanged_blocks
from armillary.errors import ArmillaryError, ModelError
from armillary.flow.capture import run, still, watching

NAMES = list(MAKERS)


def edits(a: Anatomy) -> dict[str, object]:
    return {
        "scale": Scale(1, 2.0),
        "scale the embedding": Scale(-1, 0.5),
        "freeze": Freeze("L1.ln1", 0.7),
        "turn": Turn(1, 0.3, seed=1),
        "slide": Slide(3),
        "z within": Shuffle(1, within(a.n_heads, a.k, 0)),
        "z across": Shuffle(1, across(a.n_heads, a.k, 0)),
        "q within": Shuffle(1, within(a.n_heads, a.k, 0), "q"),
        "q across": Shuffle(1, across(a.n_heads, a.k, 0), "q"),
        "silence": Silence(1, (0, 3)),
        "zero": Ablate(1, lambda pre, post: pre > 0),
        "mean": Ablate(1, lambda pre, post: pre < 0, "mean", torch.ones(a.m)),
    }


@pytest.fixture(scope="module")
def models() -> dict[str, Anatomy]:
    return {name: read(tiny(name)) for name in NAMES}


def ids(length: int = 12) -> torch.Tensor:
    return torch.randint(3, 97, (2, length), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("edit", [*edits(read(tiny("gpt2")))])
@pytest.mark.parametrize("name", NAMES)
def test_it_acts_stays_causal_and_leaves_no_trace(models, name, edit):
    a, text = models[name], ids()
    other = text.clone()
    other[:, -1] = 3 + (other[:, -1] - 2) % 90
    with still(a.model):
        before = run(a, text)
        with edited(a, edits(a)[edit]):
            logits, other_logits = run(a, text), run(a, other)
        after = run(a, text)
    assert torch.equal(before, after)
    behind = before[:, before.shape[1] - logits.shape[1] :]
    # Attention of one key has nothing to shuffle, and a later token has.
    assert (logits - behind).abs().max() > 1e-3 * behind.abs().max()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in a.model.modules())
    if a.causal:
        assert torch.equal(logits[:, :-1], other_logits[:, :-1])
        assert not torch.equal(logits[:, -1], other_logits[:, -1])


@pytest.mark.parametrize("edit", [*edits(read(tiny("gpt2")))])
@pytest.mark.parametrize("name", NAMES)
def test_a_pass_that_resumes_behind_unchanged_blocks_is_the_whole_pass_bit_for_bit(models, name, edit):
    a, text, states = models[name], ids(), {}
    chosen = edits(a)[edit]
    blocks = unchanged_blocks([chosen])
    assert blocks == {"scale": 2, "turn": 2, "scale the embedding": 0, "freeze": 0, "slide": 0}.get(edit, 1)
    with still(a.model):
        before = run(a, text)
        with edited(a, chosen):
            whole = run(a, text)
        # The first pass keeps what the blocks give; those after it resume there.
        for _ in range(3):
            with resuming(a, blocks, states), edited(a, chosen):
                assert torch.equal(run(a, text), whole)
        assert torch.equal(run(a, text), before)
    assert list(states) == ([blocks] if blocks else [])
    every: dict = {}
    with still(a.model):
        with keeping(a, every):
            assert torch.equal(run(a, text), before)
        with resuming(a, blocks, every), edited(a, chosen):
            assert torch.equal(run(a, text), whole)
    assert list(every) == list(range(1, a.layers))
    assert not any("forward" in vars(module) for module in a.model.modules())


def test_a_resumed_pass_runs_no_block_before_it(models):
    a, states, passed = models["gpt2"], {}, []
    inner = a.model.get_submodule(a.sites["L0.ln1"].path)
    handle = inner.register_forward_hook(lambda *_: passed.append(1))
    with still(a.model):
        for _ in range(2):
            with resuming(a, 1, states):
                run(a, ids())
        with keeping(a, every := {}):
            run(a, ids())
        with resuming(a, 1, every):
            run(a, ids())
    handle.remove()
    assert len(passed) == 2


@pytest.mark.parametrize("name", NAMES)
def test_q_and_k_alike_change_nothing(models, name):
    a = models[name]
    with still(a.model):
        before = run(a, ids())
        with edited(a, *(Shuffle(i, within(a.n_kv_heads, a.k, 5), "qk") for i in range(a.layers))):
            shuffled = run(a, ids())
    assert (shuffled - before).abs().max() <= 1e-5 * before.abs().max()


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_heads_are_edited_whichever_way_the_model_attends(implementation):
    a = read(tiny("llama"))
    a.model.set_attn_implementation(implementation)
    with still(a.model):
        before = run(a, ids())
        with edited(a, Shuffle(1, across(4, 8, 0), "q")):
            changed = run(a, ids())
        assert torch.equal(run(a, ids()), before)
    assert not torch.equal(changed, before)


def test_another_model_is_not_touched(models):
    mine, other = read(tiny("llama")), models["llama"]
    with still(other.model), still(mine.model):
        before = run(other, ids())
        with edited(mine, Shuffle(1, across(4, 8, 0), "q")):
            run(mine, ids())
            assert torch.equal(run(other, ids()), before)


def test_edits_compose(models):
    """Doubling twice is quadrupling; two edits of the heads meet in one function."""
    a = models["gpt2"]
    with still(a.model):
        with edited(a, Scale(0, 2.0), Scale(0, 2.0), Silence(2, (1,))):
            twice = run(a, ids())
        with edited(a, Silence(2, (1,)), Scale(0, 4.0)):
            once = run(a, ids())
        order = across(4, 8, 0)
        back = tuple(sorted(range(32), key=order.__getitem__))
        with edited(a, Shuffle(1, order, "q"), Shuffle(1, back, "q")):
            there_and_back = run(a, ids())
        assert torch.equal(there_and_back, run(a, ids()))
    assert torch.equal(twice, once)


def test_an_error_inside_undoes_it_too(models):
    a = models["gpt2"]
    with still(a.model):
        before = run(a, ids())
        with pytest.raises(ZeroDivisionError), edited(a, *edits(a).values()):
            raise ZeroDivisionError
        assert torch.equal(run(a, ids()), before)


def test_an_edit_that_never_took_place_is_told(models):
    for edit in (Scale(0, 2.0), Shuffle(0, across(4, 8, 0), "q")):
        with pytest.raises(ModelError, match="never took effect"), edited(models["gpt2"], edit):
            pass


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_is_by_its_angle_on_the_sphere_of_the_norm(models, name):
    a = models[name]
    norm, seen = replace(a.blocks[0].ln1, eps=0.0), []
    with still(a.model), watching(a, {"L1.resid_pre": lambda x, y: seen.append(x)}):
        run(a, ids())
        with edited(a, Turn(0, 0.25, seed=2, start=4)):
            run(a, ids())
    before, after = (norm.direction(x.double()) for x in seen)
    angle = torch.arccos((before * after).sum(-1) / norm.d)
    assert (angle[:, 4:] - 0.25).abs().max() < 1e-5
    assert torch.equal(seen[0][:, :4], seen[1][:, :4])
    assert (seen[0].norm(dim=-1) - seen[1].norm(dim=-1)).abs().max() < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_a_frozen_norm_is_affine(models, name):
    """What goes on is gain ⊙ (centred x) · scale + shift, whatever the token's own length."""
    a, seen = models[name], []
    norm = a.norms["L1.ln1"]
    with still(a.model), edited(a, Freeze("L1.ln1", 0.7)), watching(a, {"L1.ln1": lambda x, y: seen.append((x, y))}):
        run(a, ids())
    x, y = seen[0]
    linear = norm.gain * 0.7 * (x - x.mean(-1, keepdim=True) if norm.kind == "layernorm" else x)
    assert torch.allclose(y, linear if norm.shift is None else linear + norm.shift, atol=1e-5)


def test_sliding_with_kept_positions_moves_rotary_models_by_nothing(models):
    for name in ("llama", "gpt_neox", "qwen3"):
        a = models[name]
        with still(a.model):
            with edited(a, Slide(4)):
                restarted = run(a, ids())
            with edited(a, Slide(4, "keep")):
                logits = run(a, ids())
            alone = run(a, ids()[:, 4:])
        assert torch.equal(restarted, alone)
        assert (logits - restarted).abs().max() < 1e-4
    a = models["gpt2"]
    with still(a.model), edited(a, Slide(4, "keep")):
        logits = run(a, ids())
    with still(a.model):
        assert (logits - run(a, ids()[:, 4:])).abs().max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_coordinates_are_chosen_by_what_the_activation_got(models, name):
    """The gate's product decides where there is a gate; the layer's product is what is taken out."""
    a, got, seen = models[name], [], []

    def choose(pre, post):
        got.append((pre, post))
        return pre < 0

    sees = {site: lambda x, y: seen.append(y) for site in (mlp_norm(a, 1)[0], "L1.mlp_post")}
    with still(a.model), edited(a, Ablate(1, choose)), watching(a, sees):
        run(a, ids())
    (pre, post), ffn = got[0], a.blocks[1].feed_forward
    y = seen[0].reshape(*post.shape[:-1], -1)
    weight, bias = (ffn.W_in, ffn.b_in) if ffn.W_gate is None else (ffn.W_gate, ffn.b_gate)
    assert torch.allclose(pre, y @ weight + (0 if bias is None else bias), atol=1e-5)
    other = 1 if ffn.W_gate is None else y @ ffn.W_in + (0 if ffn.b_in is None else ffn.b_in)
    assert torch.allclose(post, ffn.activation(pre) * other, atol=1e-5)
    assert torch.equal(seen[1].reshape(post.shape), torch.where(pre < 0, 0, post))


def test_resampling_draws_other_tokens_values(models):
    a, seen = models["gpt2"], []
    marks = torch.ones(2, 12, dtype=torch.bool)
    marks[1, 6:] = False
    with still(a.model), watching(a, {"L0.mlp_post": lambda x, y: seen.append(x)}):
        run(a, ids())
        with edited(a, Ablate(0, lambda pre, post: torch.ones_like(post, dtype=torch.bool), "resample", kept=marks)):
            run(a, ids())
    before, after = (x.reshape(24, -1) for x in seen)
    source = (after[:, None] == before[None]).all(-1)
    assert source.any(1).all()
    assert not source[:, 18:].any()


@pytest.mark.parametrize("moved", [2, 5, 8])
def test_within_and_across_move_the_same_axes(moved):
    inside, outside = within(4, 8, 3, moved), across(4, 8, 3, moved)
    for order in (inside, outside):
        assert sorted(order) == list(range(32))
        assert sum(i != j for i, j in enumerate(order)) == 4 * moved
    assert {i for i, j in enumerate(inside) if i != j} == {i for i, j in enumerate(outside) if i != j}
    assert all(i // 8 == j // 8 for i, j in enumerate(inside))
    assert all(i // 8 != j // 8 for i, j in enumerate(outside) if i != j)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Freeze("L1.ln1", torch.tensor(torch.nan)), "`scale` must be finite; 1 of its 1 entries is NaN"),
        (lambda: Freeze("L1.ln1", torch.full((1, 4, 1), torch.inf)), "4 of its 4 entries are NaN or infinite"),
        (lambda: Ablate(1, chosen, "mean", torch.tensor([0.0, torch.nan])), "`means` must be finite; 1 of its 2"),
        (lambda: Ablate(1, chosen, "resample", seed=-1), "`seed` must be a whole number, 0 or more; got -1"),
    ],
)
def test_numbers_that_no_edit_can_use_are_refused(make, message):
    with pytest.raises(ArmillaryError, match=message):
        make()


def chosen(pre, post):
    return pre < 0


def test_what_cannot_be_edited_is_refused(models):
    a = models["llama"]
    refused = [
        (Scale(9, 2.0), "there is no layer 9"),
        (Freeze("L0.attn_out", 1.0), "is not a norm"),
        (Shuffle(0, (1, 0)), "each of 0 … 31 once"),
        (Shuffle(0, across(2, 8, 0), "qk"), "within heads"),
        (Silence(0, (4,)), "there is no head 4"),
        (Silence(7, (0,)), "there is no layer 7: the model has 3, 0 to 2"),
        (Ablate(0, lambda pre, post: pre < 0, "mean"), "one for each of the 48 coordinates; got none"),
        (Ablate(0, lambda pre, post: pre < 0, "mean", torch.ones(47)), r"of the 48 coordinates; got \[47\]"),
    ]
    for edit, message in refused:
        with pytest.raises(ArmillaryError, match=message), edited(a, edit):
            pass
    with pytest.raises(ArmillaryError, match="cannot slide by 12"), still(a.model), edited(a, Slide(12)):
        run(a, ids())
    with pytest.raises(ArmillaryError, match="give input_ids or inputs_embeds"), still(a.model), edited(a, Slide(2)):
        a.backbone(attention_mask=torch.ones(2, 12))
    with pytest.raises(ArmillaryError, match="one head"):
        across(1, 8, 0)
    with pytest.raises(ModelError, match=r"L1\.pattern can be watched but not edited"):
        changing(a, "L1.pattern", lambda value, given: value).__enter__()


@pytest.mark.parametrize("name", NAMES)
def test_every_site_is_edited_as_it_is_watched(models, name):
    """Also where a module gives several sites at once, or works on flattened rows."""
    a, shapes = models[name], {}
    sites = [site for site in a.sites if site.startswith("L1.") and not site.endswith("pattern")]
    with still(a.model):
        before = run(a, ids())
        for site in sites:
            seen = {}

            def double(value, given, seen=seen):
                seen["edited"] = value.shape
                return value * 2

            with watching(a, {site: lambda given, value, seen=seen: seen.update(value=value)}):
                run(a, ids())
            plain = seen["value"]
            watch = watching(a, {site: lambda given, value, seen=seen: seen.update(value=value)})
            with changing(a, site, double), watch:
                changed = run(a, ids())
            assert seen["edited"] == seen["value"].shape == plain.shape
            assert torch.equal(seen["value"], plain * 2), site
            # A norm reads directions, so doubled queries may only sharpen attention; everything else shows plainly.
            assert not torch.equal(changed, before), site
            shapes[site] = plain.shape
        assert torch.equal(run(a, ids()), before)
    assert shapes["L1.k"] == (2, 12, a.n_kv_heads, a.k)


@pytest.mark.parametrize("name", ["opt", "phi3"])
def test_a_norm_can_be_frozen_token_by_token(models, name):
    """One scale per token, as the norm itself would choose it, changes nothing: also in OPT, which flattens rows."""
    a, powers = models[name], {}
    norm = a.norms["L1.ln2"]
    with still(a.model):
        with watching(a, {"L1.ln2": lambda given, value: powers.update(p=norm.power(given))}):
            before = run(a, ids())
        assert powers["p"].shape == (2, 12, 1)
        with edited(a, Freeze("L1.ln2", (powers["p"] + norm.eps).rsqrt())):
            assert torch.allclose(run(a, ids()), before, atol=1e-4)


def test_the_list_of_edits_is_whole_and_its_examples_are_python():
    import armillary.edits

    assert {edit.__name__ for edit in EDITS} == {type(edit).__name__ for edit in edits(read(tiny("gpt2"))).values()}
    for edit in EDITS:
        assert edit.__doc__ and isinstance(eval(edit.example, vars(armillary.edits).copy()), edit)

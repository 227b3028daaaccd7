"""Is a model itself again whatever happens inside an edit, and are impossible edits refused?"""

from contextlib import ExitStack

import pytest
import torch
from edit_cases import ALL, FAMILIES, NAMES, NEW, PROMPT, edits, even, state, text, together
from tiny import MAKERS, tiny

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.edits import Ablate, Freeze, Scale, Shuffle, Silence, Slide, Turn, across, edited
from armillary.errors import ArmillaryError, ModelError
from armillary.flow.capture import run, still, watching
from armillary.specimens.models.perturbed import perturb


@pytest.fixture(scope="module")
def single() -> dict[str, Anatomy]:
    return {name: read(tiny(name)) for name in FAMILIES}


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
def test_edits_may_be_left_in_any_order(single, name):
    """Each beside one that changes the attention function and one that changes the model's arguments."""
    a, before = single[name], state(single[name])
    chosen = {n: e for n, e in edits(a).items() if n not in ("scale from the second new token on", "qk")}
    pairs = {pair for n in chosen for other in ("q", "slide") for pair in ((n, other), (other, n))}
    with still(a.model):
        whole, alone = run(a, text()), {}
        for n, e in chosen.items():
            with edited(a, e):
                alone[n] = run(a, text())
        for first, second in sorted(pairs):
            first_edit, two = edited(a, chosen[first]), edited(a, chosen[second])
            first_edit.__enter__()
            two.__enter__()
            run(a, text())
            first_edit.__exit__(None, None, None)
            assert torch.equal(run(a, text()), alone[second]), (first, second)
            two.__exit__(None, None, None)
        assert torch.equal(run(a, text()), whole)
    assert state(a) == before


def test_leaving_twice_and_never_leaving_are_harmless(single):
    a, before = single["llama"], state(single["llama"])
    with still(a.model):
        plain = run(a, text())
        stack = ExitStack()
        for n in ALL:
            stack.enter_context(together(a, n))
        assert not torch.equal(run(a, text())[:, -1], plain[:, -1])
        stack.close()
        stack.close()
        assert torch.equal(run(a, text()), plain)
        edit = together(a, *ALL)
        edit.__enter__()
        run(a, text())
        edit.__exit__(None, None, None)
        edit.__exit__(None, None, None)
        forgotten = together(a, *ALL)
        forgotten.__enter__()
        del forgotten
        assert torch.equal(run(a, text()), plain)
    assert state(a) == before


@pytest.mark.parametrize("edit", [*NAMES, "all"])
def test_an_error_inside_undoes_it(single, edit):
    """Raised by the user's own code, by the model in the midst of a pass, or by the next edit."""
    chosen = ALL if edit == "all" else [edit]
    for name in ("gpt2", "llama", "gemma2"):
        a = single[name]
        before, whole = state(a), run(a, text())
        with pytest.raises(ZeroDivisionError), together(a, *chosen):
            raise ZeroDivisionError(run(a, text()))
        with pytest.raises(IndexError), together(a, *chosen):
            a.model(text().fill_(10**6))
        with pytest.raises(ArmillaryError, match="no layer 99"), together(a, *chosen), edited(a, Scale(99, 2.0)):
            pass
        assert state(a) == before
        assert torch.equal(run(a, text()), whole)


@pytest.mark.parametrize("name", FAMILIES)
def test_half_precision(single, name):
    """In float16 (torch's CPU has every kernel for it) an edit does what it does in float32."""
    full, half = single[name], read(tiny(name).half())
    ids = text(PROMPT + NEW, rows=2)
    more = {"resample": Ablate(1, even, "resample", seed=1)}
    with still(full.model), still(half.model):
        plain, plain_half = run(full, ids, logits=True), run(half, ids, logits=True)
        wide, narrow = ({**edits(a), **more} for a in (full, half))
        for edit in wide:
            with edited(full, wide[edit]):
                expected = run(full, ids, logits=True)
            with edited(half, narrow[edit]):
                result = run(half, ids, logits=True)
            assert result.dtype == torch.float16
            effect = (expected - plain[:, -expected.shape[1] :]).abs().max()
            error = (result.float() - expected).abs().max()
            assert error < effect / 10 or edit == "qk", edit
        assert torch.equal(run(half, ids, logits=True), plain_half)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
def test_a_compiled_model_is_edited(single, name):
    """Compiled, it runs uncompiled inside; read before it was compiled or after."""
    a = single[name]
    compiled = torch.compile(a.model, backend="eager")
    with torch.no_grad():
        for n, e in edits(a).items():
            if n == "scale from the second new token on":
                continue
            with edited(a, e):
                expected = a.model(text(), labels=text())
                assert torch.equal(compiled(text(), labels=text()).loss, expected.loss), n
            with edited(read(compiled), e):
                result = compiled(text(), labels=text())
            assert torch.equal(result.logits, expected.logits), n
            assert torch.equal(result.loss, expected.loss), n


def test_compiled_code_neither_ignores_an_edit_nor_keeps_it():
    a = read(perturb(MAKERS["gpt2"](n_layer=1)))
    torch.compiler.reset()
    compiled = torch.compile(a.model, backend="eager")
    with torch.no_grad():
        with edited(a, Scale(0, 2.0)):
            expected = compiled(text()).logits
        whole = compiled(text()).logits
        assert torch.equal(whole, a.model(text()).logits)
        with edited(a, Scale(0, 2.0)):
            assert torch.equal(compiled(text()).logits, expected)
        assert torch.equal(compiled(text()).logits, whole)
    assert not torch.equal(whole, expected)


def test_the_compiler_is_used_again_afterwards(single):
    @torch.compile(backend="eager")
    def compiling(x):
        return x + (1 if torch.compiler.is_compiling() else 0)

    a, zero = single["gpt2"], torch.zeros(1)
    scaled, slid = edited(a, Scale(0, 2.0)), edited(a, Slide(1))
    assert compiling(zero) == 1
    scaled.__enter__()
    slid.__enter__()
    assert compiling(zero) == 0
    run(a, text())
    scaled.__exit__(None, None, None)
    assert compiling(zero) == 0
    slid.__exit__(None, None, None)
    assert compiling(zero) == 1


def test_patterns_may_be_watched_while_heads_are_edited(single):
    """Watching patterns makes the model attend eagerly; the edit goes with it."""
    a, seen = single["llama"], []
    with still(a.model), watching(a, {"L1.pattern": lambda x, y: seen.append(y)}):
        run(a, text())
        with together(a, "q"):
            run(a, text())
    with still(a.model), together(a, "q"), watching(a, {"L1.pattern": lambda x, y: seen.append(y)}):
        run(a, text())
    assert not torch.allclose(seen[1], seen[0], atol=1e-3)
    assert torch.equal(seen[2], seen[1])


IMPOSSIBLE = [
    (lambda: Ablate(0, even, how="bogus"), "`how` cannot be 'bogus'; known: mean, resample, zero"),
    (lambda: Ablate(0, even, how="means"), "did you mean 'mean'"),
    (lambda: Ablate(0, "pre < 0"), "`choose` must be a function"),
    (lambda: Ablate("x", even), "`layer` must be a whole number; got 'x'"),
    (lambda: Shuffle(0, (1, 0), where="x"), "`where` cannot be 'x'; known: q, qk, z"),
    (lambda: Shuffle(0, 3), "`order` must be a tuple"),
    (lambda: Shuffle(0, (0.5, 1)), "`order` must be a whole number, 0 or more; got 0.5"),
    (lambda: Shuffle(None, (1, 0)), "`layer` must be a whole number; got None"),
    (lambda: Slide(3, "restarts"), "`positions` cannot be 'restarts'; did you mean 'restart'"),
    (lambda: Slide(-1), "`by` must be a whole number, 0 or more; got -1"),
    (lambda: Slide(1.5), "`by` must be a whole number, 0 or more; got 1.5"),
    (lambda: Scale("x", 2.0), "`layer` must be a whole number; got 'x'"),
    (lambda: Scale(True, 2.0), "`layer` must be a whole number; got True"),
    (lambda: Scale(0, "2"), "`factor` must be a finite number; got '2'"),
    (lambda: Scale(0, float("nan")), "`factor` must be a finite number; got nan"),
    (lambda: Scale(0, 2.0, start=0.5), "`start` must be a whole number; got 0.5"),
    (lambda: Turn(0.0, 0.1), "`layer` must be a whole number; got 0.0"),
    (lambda: Turn(0, None), "`angle` must be a finite number; got None"),
    (lambda: Turn(0, 0.1, seed=-1), "`seed` must be a whole number, 0 or more; got -1"),
    (lambda: Freeze("L0.ln1", "x"), "`scale` must be a finite number; got 'x'"),
    (lambda: Freeze("L0.ln1", torch.ones(2, 3)), r"one per token \[b, t, 1\]; got a tensor \[2, 3\]"),
    (lambda: Silence(0, 3), r"`heads` must name at least one head, as in heads=\(0, 2\); got 3"),
    (lambda: Silence(0, ()), "`heads` must name at least one head"),
    (lambda: Silence(0, ("x",)), "`heads` must be a whole number; got 'x'"),
]
ON_ENTRY = [
    (lambda a: Scale(99, 2.0), r"no layer 99: the model has 3, 0 to 2 \(−1 stands for what the first block receives\)"),
    (lambda a: Turn(-2, 0.1), "no layer -2"),
    (lambda a: Silence(-1, (0,)), "no layer -1: the model has 3, 0 to 2"),
    (lambda a: Ablate(3, even), "no layer 3"),
    (lambda a: Shuffle(99, across(4, 8, 0)), "no layer 99"),
    (lambda a: Shuffle(-1, across(4, 8, 0), "q"), "no layer -1"),
    (lambda a: Freeze("L99.ln1", 0.5), "'L99.ln1' is not a norm of this model; did you mean"),
    (lambda a: Freeze(7, 0.5), "7 is not a norm of this model; known: L0.ln1"),
    (lambda a: Silence(0, (-1,)), "no head -1: a layer has 4, 0 to 3"),
    (lambda a: Silence(0, (0, 4)), "no head 4"),
    (lambda a: Scale, r"takes edits such as Scale\(layer=3, factor=2.0\)"),
    (lambda a: "scale", "takes edits such as"),
]


@pytest.mark.parametrize(("make", "message"), IMPOSSIBLE)
def test_impossible_settings_are_refused_when_made(make, message):
    with pytest.raises(ArmillaryError, match=message):
        make()


@pytest.mark.parametrize(("make", "message"), ON_ENTRY)
def test_what_this_model_does_not_have_is_refused_on_entry(single, make, message):
    a = single["llama"]
    before = state(a)
    with pytest.raises(ArmillaryError, match=message), edited(a, make(a)):
        pytest.fail("it was entered")
    assert state(a) == before


def test_what_is_wrong_in_a_pass_is_told(single):
    a = single["llama"]
    with pytest.raises(ArmillaryError, match=r"takes what armillary\.load"), edited(a.model, Scale(0, 2.0)):
        pass
    for choose in (lambda pre, post: post, lambda pre, post: True, lambda pre, post: post[..., :3] > 0):
        with pytest.raises(ArmillaryError, match="one truth value per coordinate"), edited(a, Ablate(0, choose)):
            run(a, text())
    edit = Ablate(0, even, "resample", kept=torch.ones(2, 3))
    with pytest.raises(ArmillaryError, match=r"marks \[2, 3\] tokens, but the pass holds \[1, 7\]"), edited(a, edit):
        run(a, text())
    with pytest.raises(ArmillaryError, match="holds 1 to draw from"), edited(a, Ablate(0, even, "resample")):
        run(a, text(1))
    with pytest.raises(ModelError, match="the window never slid by 2"), edited(a, Slide(2)):
        pass
    full = torch.zeros(1, 1, PROMPT, PROMPT)
    with pytest.raises(ModelError, match=r"pass a mask \[b, t\], or position_ids"), edited(a, Scale(0, 2.0, start=2)):
        a.model(text(), attention_mask=full)
    with pytest.raises(ModelError, match="several texts in one row"), edited(a, Turn(0, 0.1)):
        a.model(text(), cu_seq_lens_q=torch.tensor([0, 3, 7]))

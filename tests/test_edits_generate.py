"""Do edits act when a model is used as people use it: `generate`, caches, padding, labels, positional arguments?"""

from contextlib import contextmanager

import pytest
import torch
from edit_cases import (
    ALL,
    BESIDE,
    CLOSE,
    FAMILIES,
    NAMES,
    NEW,
    PROMPT,
    edits,
    even,
    far,
    greedy,
    padded,
    state,
    text,
    together,
)
from tiny import tiny

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.edits import EDITS, Ablate, Freeze, Scale, Slide, Turn, edited
from armillary.edits.edit import changing
from armillary.errors import ArmillaryError, ModelError
from armillary.flow.capture import run, still, watching


@pytest.fixture(scope="module")
def exact() -> dict[str, Anatomy]:
    return {name: read(tiny(name).double()) for name in FAMILIES}


@pytest.fixture(scope="module")
def single() -> dict[str, Anatomy]:
    return {name: read(tiny(name)) for name in FAMILIES}


@pytest.fixture(scope="module")
def plain(exact) -> dict[str, torch.Tensor]:
    """What the unedited models write, computed once."""
    return {name: greedy(a, text())[1] for name, a in exact.items()}


def generated(a: Anatomy, *chosen) -> torch.Tensor:
    with edited(a, *chosen):
        return greedy(a, text())[1]


@contextmanager
def columns(a: Anatomy, start: int):
    """What an edit must not do: take a tensor's columns for positions."""

    def change(stream, given):
        return torch.cat((stream[:, :start], 30 * stream[:, start:]), 1)

    with changing(a, "L0.resid_post", change):
        yield


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        *((name, edit) for name in FAMILIES if name != "gpt_neox" for edit in NAMES),
        *((name, "all") for name in FAMILIES),
    ],
)
def test_a_cache_changes_nothing(exact, plain, name, edit):
    a, widths, before = exact[name], [], state(exact[name])
    chosen = ALL if edit == "all" else [edit]
    with together(a, *chosen), watching(a, {"L0.resid_pre": lambda x, y: widths.append(y.shape[1])}):
        tokens, without = greedy(a, text(), cache=False)
        again, cached = greedy(a, text())
    seen = PROMPT - sum(n.startswith("slide") for n in chosen) * 3
    assert widths == [*range(seen, seen + NEW), seen, *[1] * (NEW - 1)]
    assert torch.equal(tokens, again)
    assert far(cached, without) < CLOSE
    # q and k shuffled alike change no score; everything else must show.
    assert (far(without, plain[name]) < CLOSE) == (edit == "qk")
    assert state(a) == before


def test_taking_columns_for_positions_is_noticed(exact):
    """The control of the test above: it fails where an edit counts columns."""
    a = exact["gpt2"]
    with columns(a, PROMPT + 1):
        without, cached = greedy(a, text(), cache=False)[1], greedy(a, text())[1]
    assert far(cached, without) > 10 * CLOSE
    assert torch.equal(cached, greedy(a, text())[1])


@pytest.mark.parametrize(
    "more", [{"num_beams": 3}, {"prefill_chunk_size": 4}, {"cache_implementation": "static"}], ids=str
)
def test_other_ways_to_generate(exact, more):
    a = exact["llama"]
    settings = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    for names in (["scale from the second new token on", "turn"], ["q", "qk", "silence", "mean"], ["slide"]):
        with together(a, *names):
            beams = {name: value for name, value in more.items() if name == "num_beams"}
            without = a.model.generate(text(rows=2), use_cache=False, **beams, **settings)
            if names == ["slide"] and "cache_implementation" in more:
                with pytest.raises(ArmillaryError, match="use a cache that grows"):
                    a.model.generate(text(rows=2), **more, **settings)
            else:
                assert torch.equal(a.model.generate(text(rows=2), **more, **settings), without)


COUNTING = ["scale from the second new token on", "turn", "slide", "slide, positions kept"]
PADDED = [n for n in NAMES if n != "freeze token by token"]


@pytest.mark.parametrize("edit", PADDED)
@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "opt"])
def test_a_row_padded_on_the_left_is_edited_as_it_would_be_alone(single, name, edit):
    a, rows = single[name], (text(), text(PROMPT + 4, seed=5))
    with together(a, edit):
        alone = torch.cat([greedy(a, row)[1] for row in rows], 1)
        batch = padded(*rows)
        # That a cache changes nothing is tested above; it is where positions are counted that padding comes in.
        for cache in (True, False) if edit in COUNTING else (True,):
            beside = greedy(a, batch["input_ids"], cache, attention_mask=batch["attention_mask"])[1]
            assert far(beside, alone) < BESIDE


def test_counting_padding_is_noticed(single):
    a, rows = single["gpt2"], (text(), text(PROMPT + 4, seed=5))
    batch = padded(*rows)
    with columns(a, PROMPT - 1):
        alone = torch.cat([greedy(a, row, False)[1] for row in rows], 1)
        beside = greedy(a, batch["input_ids"], False, attention_mask=batch["attention_mask"])[1]
    assert far(beside[:, 0], alone[:, 0]) > 10 * BESIDE


def test_a_scale_per_token_counts_columns_and_not_positions(single):
    """It was measured on the batch, padding included: on another padding it belongs to other tokens."""
    a, seen = single["gpt2"], []
    batch, scale = padded(text(), text(PROMPT + 4, seed=5)), 0.4 + torch.rand(2, PROMPT + 4, 1)
    norm = a.norms["L1.ln1"]
    with (
        still(a.model),
        edited(a, Freeze("L1.ln1", scale)),
        watching(a, {"L1.ln1": lambda x, y: seen.append((x - x.mean(-1, keepdim=True), y))}),
    ):
        a.model(**batch)
    centred, y = seen[0]
    assert torch.allclose(y, scale * centred * norm.gain + norm.shift, atol=1e-5)


def test_a_scale_per_token_follows_the_text_when_the_window_slides(single):
    """Its columns are the whole text's: in either order, after two slides, beside padding, with a cache."""
    a, batch = single["gpt2"], padded(text(), text(PROMPT + 4, seed=5))
    scale = 0.4 + torch.rand(2, PROMPT + 4 + NEW, 1, generator=torch.Generator().manual_seed(1))

    def logits(*edits):
        with still(a.model), edited(a, *edits):
            return a.model(**batch).logits

    freeze = Freeze("L1.ln1", scale)
    whole, mistaken = logits(Slide(3), freeze), logits(Slide(3), Freeze("L1.ln1", scale.roll(3, 1)))
    assert torch.equal(whole, logits(freeze, Slide(3))) and torch.equal(whole, logits(Slide(1), Slide(2), freeze))
    assert far(whole, mistaken) > 0.01, "columns of the slid text"
    # The row without padding, cut by hand.
    with still(a.model), edited(a, Freeze("L1.ln1", scale[1:, 3:])):
        alone = a.model(batch["input_ids"][1:, 3:]).logits
    assert far(whole[1:], alone) < BESIDE
    with edited(a, Slide(3), freeze):
        cached, without = (greedy(a, text(PROMPT + 4, seed=5, rows=2), cache)[1] for cache in (True, False))
    assert far(cached, without) < BESIDE


@pytest.mark.parametrize("padding", [0, 3])
def test_a_negative_start_counts_from_the_end_of_each_row(single, padding):
    """Also where the shorter row is padded on the right."""
    a, seen, last = single["llama"], [], PROMPT - padding
    mask = torch.ones(2, PROMPT, dtype=torch.long)
    mask[1, last:] = 0
    for edit in ((), (Scale(1, 2.0, start=-2),)):
        with still(a.model), edited(a, *edit), watching(a, {"L1.resid_post": lambda x, y: seen.append(y)}):
            run(a, text(rows=2), mask)
    ratio = seen[1] / seen[0]
    assert (ratio[0, -2:] == 2).all() and (ratio[0, :-2] == 1).all()
    assert (ratio[1, last - 2 : last] == 2).all() and (ratio[1, : last - 2] == 1).all()


def test_what_a_cache_does_not_allow_is_refused(single):
    a = single["llama"]
    resample = Ablate(1, even, "resample")
    with pytest.raises(ArmillaryError, match=r"only the newest tokens: run without a cache"), edited(a, resample):
        greedy(a, text())
    with edited(a, resample):
        resampled = greedy(a, text(), cache=False)[1]
    assert far(resampled, greedy(a, text())[1]) > 0.01
    with (
        pytest.raises(ModelError, match="start=-1 counts from the end of the text"),
        edited(a, Scale(1, 2.0, start=-1)),
    ):
        greedy(a, text())
    short = Freeze("L1.ln1", torch.ones(1, 9, 1))
    with pytest.raises(ArmillaryError, match=r"each of 1 × 9 tokens, and the norm at L1\.ln1 got token 10"):
        generated(a, short)
    for edit in (Scale(1, 2.0, start=40), Turn(1, 0.1, start=40)):
        with pytest.raises(ModelError, match="no text has a token at position 40"), edited(a, edit):
            greedy(a, text())
    with edited(a, Slide(2)):
        slid = a.model.generate(text(), max_new_tokens=2, return_dict_in_generate=True)
        for mask in (None, padded(text(9), text(8))["attention_mask"][1:]):
            with pytest.raises(ArmillaryError, match=r"give the (whole text again|text from its start)"):
                greedy(a, slid.sequences, attention_mask=mask, past_key_values=slid.past_key_values)


@pytest.mark.parametrize("edit", NAMES)
def test_a_cache_belongs_to_the_edits_it_was_begun_under(single, edit):
    """What it holds was not edited; only an edit of later tokens can go on from it."""
    a, whole = single["llama"], text(PROMPT + 2)
    with torch.no_grad():
        cache = a.model(whole[:, :PROMPT], use_cache=True).past_key_values
        with together(a, edit):
            expected = a.model(whole).logits[:, -2:]
            if edit == "scale from the second new token on":
                assert far(a.model(whole[:, PROMPT:], past_key_values=cache).logits, expected) < CLOSE
                return
            with pytest.raises(ModelError, match=f"created outside the edit and holds {PROMPT} tokens"):
                a.model(whole[:, PROMPT:], past_key_values=cache)
            inside = a.model(whole[:, :PROMPT], use_cache=True).past_key_values
            assert far(a.model(whole[:, PROMPT:], past_key_values=inside).logits, expected) < CLOSE


@pytest.mark.parametrize("name", [*FAMILIES, "bert", "bert-decoder"])
def test_slide_gives_what_the_shorter_text_gives(name):
    """Hidden states, logits and loss, with every argument by name or by position."""
    a, whole = read(tiny(name)), text(12, rows=2)
    short = whole[:, 3:].contiguous()
    mask = torch.ones_like(whole)
    mask[1, 10:] = 0
    with still(a.model):
        for module in (a.model, a.backbone):
            with edited(a, Slide(3)):
                by_position, by_name = module(whole), module(input_ids=whole)
            alone = module(short)
            assert torch.equal(by_position[0], alone[0])
            assert torch.equal(by_name[0], alone[0])
        with edited(a, Slide(3)):
            slid = a.model(whole, attention_mask=mask, labels=whole)
        alone = a.model(short, attention_mask=mask[:, 3:], labels=short)
        assert torch.equal(slid.logits, alone.logits)
        assert torch.equal(slid.loss, alone.loss)
        with edited(a, Slide(3)), pytest.raises(ArmillaryError, match="cannot slide by 3; slide by less"):
            a.model(whole, attention_mask=(mask.cumsum(1) <= 3).long())


def test_slide_by_position_only(single):
    whole, mask, places = text(12, rows=2), torch.ones(2, 12, dtype=torch.long), 5 + torch.arange(12).expand(2, 12)
    order = {"gpt2": (None, mask, None, places), "llama": (mask, places)}
    for name, rest in order.items():
        model = single[name].model
        with torch.no_grad():
            for positions, expected in (("restart", places[:, :9]), ("keep", places[:, 3:])):
                with edited(single[name], Slide(3, positions)):
                    slid = model(whole, *rest).logits
                assert torch.equal(slid, model(whole[:, 3:], position_ids=expected).logits)


def test_slide_over_embeddings_and_last_logits(single):
    a, whole = single["gpt2"], text(12, rows=2)
    with torch.no_grad():
        alone = a.model(whole[:, 3:]).logits
        with edited(a, Slide(3)):
            embedded = a.model(inputs_embeds=a.model.transformer.wte(whole)).logits
            last = a.model(whole, logits_to_keep=2).logits
            with pytest.raises(ArmillaryError, match="give logits_to_keep as a number"):
                a.model(whole, logits_to_keep=torch.tensor([4]))
            with pytest.raises(ArmillaryError, match="give input_ids or inputs_embeds"):
                a.model(attention_mask=torch.ones(2, 12))
    assert torch.equal(embedded, alone)
    assert torch.equal(last, alone[:, -2:])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_slid_window_writes_what_the_shorter_prompt_writes(exact, name):
    a = exact[name]
    alone = greedy(a, text()[:, 3:])
    with edited(a, Slide(3)):
        slid = greedy(a, text())
    assert torch.equal(slid[0][:, 3:], alone[0])
    assert far(slid[1], alone[1]) < CLOSE


def test_two_slides_are_one(exact):
    a = exact["gpt2"]
    batch = padded(text(), text(PROMPT + 4, seed=5))
    for first in ("restart", "keep"):
        for second in ("restart", "keep"):
            with edited(a, Slide(1, first), Slide(2, second)):
                twice = greedy(a, batch["input_ids"], attention_mask=batch["attention_mask"])[1]
            both = {"restart": 0, "keep": 1}[first] + {"restart": 0, "keep": 2}[second]
            rows = [row[:, 3:] for row in (text(), text(PROMPT + 4, seed=5))]
            alone = [greedy(a, row, position_ids=both + torch.arange(row.shape[1])[None])[1] for row in rows]
            assert far(twice, torch.cat(alone, 1)) < CLOSE


def test_labels_of_padded_rows_are_cut_from_their_own_first_token(single):
    a, rows = single["llama"], (text(), text(PROMPT + 4, seed=5))
    batch, losses = padded(*rows), []
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    places = (batch["attention_mask"].cumsum(1) - 1).clamp_min(0)
    with torch.no_grad():
        for row in rows:
            losses += [a.model(row[:, 3:], labels=row[:, 3:]).loss] * (row.shape[1] - 4)
        with edited(a, Slide(3)):
            slid = a.model(**batch, position_ids=places, labels=labels).loss
        with edited(a, Slide(3, "keep")), pytest.raises(ArmillaryError, match="pass position_ids"):
            a.model(**batch)
    assert float(slid) == pytest.approx(float(torch.stack(losses).mean()), rel=1e-5)


def test_resampling_never_draws_padding(single):
    a, seen = single["gpt2"], []
    batch = padded(text(), text(PROMPT + 4, seed=5))
    for edit in ((), (Ablate(0, lambda pre, post: torch.ones_like(post, dtype=torch.bool), "resample"),)):
        with still(a.model), edited(a, *edit), watching(a, {"L0.mlp_post": lambda x, y: seen.append(x)}):
            a.model(**batch)
    before, after = (x.flatten(0, 1) for x in seen)
    source = (after[:, None] == before[None]).all(-1)
    assert source.any(1).all()
    assert not source[:, batch["attention_mask"].flatten() == 0].any()


def test_every_edit_is_tested_here():
    assert {type(edit) for edit in edits(read(tiny("gpt2"))).values()} == set(EDITS)

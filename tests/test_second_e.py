"""Heads over a training run, and long generations: planted truth comes back, and every step is checked by itself."""

import gc
import json
import math
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from command import refused, works
from folders import tokenizer
from planted import case_of, finding_of, name_of, tried, whole
from scipy.stats import spearmanr
from tiny import tiny

from armillary.anatomy import Anatomy
from armillary.anatomy.loading.load import load_model
from armillary.anatomy.loading.steps import find_checkpoints
from armillary.anatomy.read import read
from armillary.edits import Freeze, edited
from armillary.errors import ModelError, OutputError
from armillary.flow.capture import run as run_model
from armillary.flow.capture import still, watching
from armillary.flow.controls import random_twin
from armillary.flow.documents import from_any
from armillary.flow.tokens import Corpus, Window, collate, encode
from armillary.probes.grid.backpropagation.backward import marked_slices
from armillary.probes.grid.checkpoints.emerge_ranks import (
    NEXT,
    NOW,
    OTHERS,
    beyond_others,
    cells,
    correlation,
    exchanged,
)
from armillary.probes.grid.checkpoints.emergence import (
    Emergence,
    _shares,
    emergence_json,
    measure_emergence,
    read_emergence,
    shipped,
)
from armillary.probes.grid.checkpoints.phenomena import MARKED, OTHER, mark
from armillary.probes.grid.emerge import HeadEmergence, _verdict
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.shared_pass import gather
from armillary.probes.stability.generation import Generation, size_of
from armillary.probes.stability.nudges.growth import APART, FROZEN, LIVE
from armillary.probes.stability.nudges.row_freeze import RowFreeze, Switch
from armillary.probes.stability.writing.departures import Departures
from armillary.probes.stability.writing.generating import ANEW, Generations, Writer, arms_of, evicts
from armillary.probes.stability.writing.generation_parts import norms_do_it, states_stay, text_stays, very_long
from armillary.probes.stability.writing.generation_views import text_table
from armillary.probes.stability.writing.ring_text import Ring, entropy_of, read_ring, sites_of
from armillary.probes.stability.writing.written_text import TEXT, Measured, _effective_rank, _repetition
from armillary.results import Why
from armillary.specimens.models.heads.emerging_heads import STEPS, WORDS, resting, run_folder, trained
from armillary.specimens.models.texts import corpus
from armillary.specimens.planted import CASES

EMERGE, GENERATION = "heads.emerge", "stability.generation"


def words(documents: int = 16, length: int = 40) -> Corpus:
    return corpus(documents, length, vocabulary=WORDS)


@pytest.mark.parametrize("case", [name_of(case) for case in CASES if case.planted.claim in (EMERGE, GENERATION)])
def test_planted_truth_comes_back(case):
    finding = finding_of(case)
    whole(finding)
    assert finding.verdict == case_of(case).planted.verdict, f"{finding.statistic}: {finding.reading}"


# Checkpoints.


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four checkpoints of a tiny model with a tokenizer, in the layout of Hugging Face's Trainer."""
    models = [random_twin(read(tiny("gpt2")), seed).model for seed in range(4)]
    folder = run_folder(tmp_path / "run", models)
    for path in folder.iterdir():
        tokenizer().save_pretrained(path)
    return folder


def test_checkpoints_are_sorted_by_number(run):
    (run / "checkpoint-300").rename(run / "checkpoint-1000")
    (run / "checkpoint-best").mkdir()
    checkpoints = find_checkpoints(run)
    assert [checkpoint.step for checkpoint in checkpoints.each] == [0, 100, 200, 1000]
    assert checkpoints.last == run / "checkpoint-1000" and not checkpoints.damaged


def test_our_own_layout_is_read(run):
    (run / "steps").mkdir()
    for number in (0, 100, 200, 300):
        (run / f"checkpoint-{number}").rename(run / "steps" / f"{number:06d}")
    assert [checkpoint.step for checkpoint in find_checkpoints(run).each] == [0, 100, 200, 300]
    assert find_checkpoints(run / "steps").each == find_checkpoints(run).each


def cut(path: Path) -> None:
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def test_a_damaged_checkpoint_is_named_and_the_others_are_used(run):
    cut(run / "checkpoint-100")
    checkpoints = find_checkpoints(run)
    assert [checkpoint.step for checkpoint in checkpoints.each] == [0, 200, 300]
    assert checkpoints.damaged[0].startswith("step 100 was left out: ") and "cut short" in checkpoints.damaged[0]


def test_too_few_checkpoints_are_refused(run, tmp_path):
    for number in (100, 200):
        cut(run / f"checkpoint-{number}")
    with pytest.raises(ModelError, match=r"holds 2 checkpoints that can be read \(step 100 was left out"):
        find_checkpoints(run)
    for number in (100, 200, 300):
        shutil.rmtree(run / f"checkpoint-{number}")
    with pytest.raises(ModelError, match="holds one checkpoint that can be read; at least 3"):
        find_checkpoints(run)
    with pytest.raises(ModelError, match="holds no checkpoint that can be read; at least 3"):
        find_checkpoints(run / "checkpoint-0")
    with pytest.raises(ModelError, match="is not a folder of checkpoints"):
        find_checkpoints("builtin:gpt")


def test_checkpoints_of_two_models_are_refused(run):
    shutil.rmtree(run / "checkpoint-100")
    tiny("llama").save_pretrained(run / "checkpoint-100")
    with pytest.raises(
        ModelError, match=r"are not of one model: lm_head.weight is 97 × 32 at step 100 and missing at step 300"
    ):
        find_checkpoints(run)


def test_other_heads_in_equal_weights_are_refused(run):
    path = run / "checkpoint-100" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "n_head": 2}), "utf-8")
    with pytest.raises(ModelError, match="n_heads is 2 at step 100 and 4 at the last"):
        measure_emergence(last_of(run), words(), 0)


def last_of(run: Path):
    checkpoints = find_checkpoints(run)
    return replace(load_model(checkpoints.last), checkpoints=checkpoints)


def test_weights_that_are_no_numbers_are_named(run):
    model = tiny("gpt2")
    with torch.no_grad():
        model.transformer.h[0].mlp.c_fc.weight[0, 0] = torch.nan
    model.save_pretrained(run / "checkpoint-100")
    table = measure_emergence(last_of(run), words(), 0)
    assert table.steps == (0, 200, 300)
    assert "step 100 was left out" in table.damaged[0] and "NaN" in table.damaged[0]


# The command.


def test_a_run_is_surveyed(run, tmp_path):
    output = works(
        "survey", run, "--steps", "--claims", "heads.emerge,sphere.radius", "--quick", "--out", tmp_path / "o"
    )
    assert "heads.emerge" in output.stdout
    record = json.loads((tmp_path / "o" / "survey.json").read_text("utf-8"))
    assert record["model"]["source"].endswith("checkpoint-300")
    assert [claim["id"] for claim in record["claims"]] == ["sphere.radius", "heads.emerge"]
    assert (tmp_path / "o" / "tables" / "heads.emerge.heads.csv").exists()


def test_without_steps_the_reading_says_what_to_give(run, tmp_path):
    works("survey", run / "checkpoint-300", "--claims", "heads.emerge", "--quick", "--out", tmp_path / "o")
    claim = json.loads((tmp_path / "o" / "survey.json").read_text("utf-8"))["claims"][0]
    assert claim["verdict"] == "undecided" and claim["why"] == "NO_CHECKPOINTS"
    assert "armillary survey DIR --steps" in claim["reading"]


def test_a_folder_without_checkpoints_is_refused(run, tmp_path):
    refused("holds no checkpoint", "survey", run / "checkpoint-0", "--steps", "--out", tmp_path / "o")
    refused("is not a folder of checkpoints", "survey", "builtin:gpt", "--steps", "--out", tmp_path / "o")


# Models that cannot have an answer.


def test_untrained_models_in_a_row_support_nothing():
    """Independent initialisations are no training: no role comes about."""
    models = [random_twin(read(resting()[0]), seed).model for seed in range(4)]
    assert tried(HeadEmergence(), trained(models), words()).verdict != "supported"


def test_the_folder_of_a_planted_run_goes_with_its_model():
    anatomy = trained(resting())
    assert anatomy.checkpoints is not None
    folder = anatomy.checkpoints.folder
    assert len(list(folder.iterdir())) == STEPS
    del anatomy
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_an_encoder_and_a_single_head_do_not_apply(name):
    model = tiny(name) if name == "bert" else type(tiny(name))(type(tiny(name).config)(n_embd=8, n_layer=2, n_head=1))
    anatomy, probe = read(model), HeadEmergence()
    finding = probe.conclude(gather(anatomy, words(), ()), probe.experiment(Bench(anatomy, words())))
    assert finding.verdict == "undecided" and finding.why is Why.NOT_APPLICABLE
    assert probe.passes(anatomy) == 0


def test_no_interval_over_few_heads():
    table = synthetic(layers=1, heads=4, follow=1.0)
    assert math.isnan(correlation(cells(table, NEXT), 0)[1])


# Marks.


def test_marked_and_other_tokens_are_matched():
    anatomy = load_model("builtin:gpt")
    corpus = encode(from_any(None), anatomy.tokenizer, anatomy.context, 2500)
    marked = mark(anatomy, corpus, 0)
    assert set(marked.names) == {"induction", "same", "previous"}
    texts = [anatomy.tokenizer.decode([token]) for token in range(anatomy.vocabulary)]
    tokens: dict[tuple[str, int], list[int]] = {}
    for entry in marked.batches:
        batch = entry.batch
        for key, mask in entry.marks.items():
            assert not (mask & (batch.following < 0)).any()
            rows, places = mask.nonzero(as_tuple=True)
            tokens.setdefault(key, []).extend(batch.ids[rows, places].tolist())
            for row, t in zip(rows.tolist(), places.tolist(), strict=True):
                before, token, after = batch.ids[row, :t], batch.ids[row, t], batch.following[row, t]
                if key[0] == "same":
                    assert bool((before == token).any()) == (key[1] == MARKED)
                elif key[0] == "previous":
                    assert texts[before[-1]][-1].isalpha() and texts[token][0].isalpha()
                    assert (texts[token][-1].isalpha() and texts[after][0].isalpha()) is (key[1] == MARKED)
                else:
                    seen = (before == token).nonzero()
                    assert (len(seen) == 1 and batch.ids[row, seen[0, 0] + 1] == after) == (key[1] == MARKED)
    for name in marked.names:
        assert len(tokens[name, MARKED]) == len(tokens[name, OTHER]) == marked.counts[name]
    assert sorted(tokens["same", MARKED]) == sorted(tokens["same", OTHER])


# Gradients.


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_gradients_of_marked_tokens_are_those_of_the_parameters(name):
    model, text = tiny(name), collate(words(3, 14).windows, 0)
    torch.manual_seed(0)
    marks = [torch.rand(text.ids.shape) < 0.3, torch.rand(text.ids.shape) < 0.3]
    slices = marked_slices(read(model), text, marks)
    for mask, layers in zip(marks, slices, strict=True):
        model.zero_grad()
        losses = torch.nn.functional.cross_entropy(
            model(input_ids=text.ids).logits[:, :-1].flatten(0, 1), text.ids[:, 1:].flatten(), reduction="none"
        )
        (losses * mask[:, :-1].flatten()).sum().backward()
        if name == "gpt2":
            attention = model.transformer.h[1].attn
            parts = [*attention.c_attn.weight.grad.chunk(3, dim=1), attention.c_proj.weight.grad]
        else:
            attention = model.model.layers[1].self_attn
            sides = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
            parts = [side.weight.grad.T for side in sides]
        for side, expected in zip("qkvo", parts, strict=True):
            mine = layers[1].gradient(side)
            flat = mine.permute(1, 0, 2).flatten(1) if side != "o" else mine.flatten(0, 1)
            # Sums of a few dozen float32 products.
            torch.testing.assert_close(flat, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_shares_are_over_the_heads_of_a_layer():
    squares = np.random.default_rng(0).random((2, 3, 2, 3, 4, 4))
    squares[..., 1, :, :] = 0
    shares = _shares(squares, "qkv")
    assert np.isnan(shares[..., 1, :]).all()
    np.testing.assert_allclose(shares[..., [0, 2], :].sum(-1), 1)
    np.testing.assert_allclose(
        shares[0, 0, 0, 0, 0], squares[0, 0, 0, 0, 0, :3].sum() / squares[0, 0, 0, 0, :, :3].sum()
    )


# Ranks.


def synthetic(layers: int = 6, heads: int = 4, follow: float = 1.0, steps: int = 5, busy: float = 0.0) -> Emergence:
    """Gains that follow the excess; `busy` heads get more of every gradient, and gain more, whatever the tokens."""
    rng = np.random.default_rng(5)
    talent, work = rng.normal(size=(2, layers, heads))
    roles = 0.05 + np.cumsum(
        [
            0 * talent,
            *(0.1 * (follow * talent + busy * work + 0.3 * rng.normal(size=talent.shape)) for _ in range(steps - 1)),
        ],
        0,
    )
    noise = 0.3 * rng.normal(size=(steps, 2, layers, heads))
    logits = np.stack([talent * (follow != 0) + 1.5 * busy * work + noise[:, 0], busy * work + noise[:, 1]], 1)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return Emergence(tuple(range(steps)), {"induction": 99}, roles[:, None], shares[:, None], shares[:, None])


def test_what_follows_the_gradient_is_found_and_what_does_not_is_not():
    for follow, sign in ((1.0, 1), (-1.0, -1)):
        interval = correlation(cells(synthetic(follow=follow), NEXT), 0)
        assert sign * interval[0] > 0.5 and interval[1] < interval[0] < interval[2]
    none = cells(synthetic(follow=0.0), NEXT)
    assert correlation(none, 0)[1] < 0 < correlation(none, 0)[2] + 0.2


def test_heads_that_are_busy_everywhere_do_not_count():
    """Heads that get much of any gradient also exceed on marked tokens, and gain; but other tokens predict as much."""
    table = cells(synthetic(layers=14, heads=2, follow=0.0, busy=1.0), NEXT)
    assert correlation(table, 0)[0] > 0.4
    assert correlation(table, 0, OTHERS, ())[0] > 0.5
    assert beyond_others(table, 0)[1] < 0
    followed = cells(synthetic(layers=14, heads=2), NEXT)
    assert beyond_others(followed, 0)[1] > 0


def test_the_correlation_is_spearmans():
    table = synthetic()
    cell = next(cell for cell in cells(table, NEXT) if cell.emerges)
    gain = np.diff(table.roles, axis=0)[cell.at, 0]
    expected = spearmanr(table.excess[cell.at, 0].ravel(), (gain - gain.mean(1, keepdims=True)).ravel()).statistic
    assert correlation([cell], 0, given=())[0] == pytest.approx(expected, abs=1e-12)


def test_exchanged_heads_lose_the_correlation():
    table = cells(synthetic(), NOW)
    value, low, high = exchanged(table, 6, 0)
    assert low < value < high < correlation(table, 0)[0] and abs(value) < 0.1


@pytest.mark.parametrize(
    ("ends", "null", "beyond", "verdict"),
    [
        ((0.6, 0.4, 0.8), 0.3, (0.5, 0.1, 0.9), "supported"),
        ((0.6, 0.4, 0.8), 0.7, (0.5, 0.1, 0.9), "undecided"),
        ((0.6, 0.4, 0.8), 0.3, (0.1, -0.1, 0.3), "undecided"),
        ((0.6, 0.4, 0.8), 0.3, (-0.3, -0.5, -0.1), "refuted"),
        ((0.4, 0.2, 0.6), 0.3, (0.5, 0.1, 0.9), "undecided"),
        ((0.1, -0.1, 0.25), 0.3, (0.5, 0.1, 0.9), "refuted"),
        ((0.6, math.nan, math.nan), 0.3, (0.5, math.nan, math.nan), "undecided"),
    ],
)
def test_every_limit_of_the_rule(ends, null, beyond, verdict):
    assert _verdict(ends, (0.0, -0.3, null), beyond) == verdict


# The stored table.


def test_a_table_is_read_back(tmp_path):
    table = replace(synthetic(), making={"date": "today"}, damaged=("step 2 was left out",))
    table.shares[1, 0, 0, 2] = np.nan
    path = tmp_path / "emergence.json"
    path.write_text(emergence_json(table), "utf-8")
    again = read_emergence(path)
    assert again.steps == table.steps and again.counts == table.counts
    assert again.making == table.making and again.damaged == table.damaged
    for name in ("roles", "shares", "shares_with_output"):
        np.testing.assert_allclose(getattr(again, name), getattr(table, name), rtol=1e-5)
    path.write_text('{"steps": [0]}', "utf-8")
    with pytest.raises(OutputError, match="cannot be read"):
        read_emergence(path)


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_a_table_that_ships_belongs_to_its_model(name):
    anatomy = load_model(f"builtin:{name}")
    table = shipped(anatomy)
    if table is None:
        pytest.skip("no table ships with this model")
    assert table.roles.shape == (len(table.steps), len(table.names), anatomy.layers, anatomy.n_heads)
    np.testing.assert_allclose(table.shares.sum(-1), 1, atol=1e-4)
    assert {"recipe", "text", "date", "versions", "measured_on"} <= set(table.making)


def test_only_built_in_models_have_a_table():
    assert shipped(read(tiny("gpt2"))) is None


# Long generations.


@cache
def written(name: str = "gpt2") -> tuple[Anatomy, Ring, Generations]:
    """A tiny model's own text: windows of 16 tokens, six of them."""
    anatomy = read(tiny(name))
    bench = Bench(anatomy, corpus97())
    ring = read_ring(bench, 8, sites_of(anatomy))
    return anatomy, ring, Writer(bench, ring, 8, arms_of(anatomy, 12), 40).write(sites_of(anatomy))


def corpus97(documents: int = 12, length: int = 40) -> Corpus:
    ids = torch.randint(0, 97, (documents, length), generator=torch.Generator().manual_seed(3))
    windows = tuple(Window(i, tuple(row)) for i, row in enumerate(ids.tolist()))
    return Corpus(windows, "words", documents, ids.numel(), ())


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_writing_is_reading_what_was_written(name):
    """States and predictions of every token are those of a plain pass over its half window and what followed."""
    anatomy, ring, generations = written(name)
    tokens, half = generations.arms[ANEW if name == "llama" else LIVE], 8
    for row, start in enumerate(generations.starts[:2]):
        whole = torch.cat((ring.stretch(start, -half), tokens.ids[row]))
        for step in (0, 5, half, half + 3, 4 * half + 7):
            first = step // half * half
            ids = whole[first : half + step + 1][None]
            states: dict[str, torch.Tensor] = {}
            with still(anatomy.model), watching(anatomy, {s: keeping(states, s) for s in tokens.states}):
                logits = run_model(anatomy, ids, logits=True)[0, -1]
            # A cache sums in another order: rounding of a few layers.
            torch.testing.assert_close(entropy_of(logits), tokens.entropy[row, step], rtol=1e-4, atol=1e-5)
            for site, x in tokens.states.items():
                torch.testing.assert_close(states[site][0, -1], x[row, step], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
def test_a_cache_that_evicts_keeps_the_other_keys_as_they_were(name):
    """States are those of one pass over the whole text in which a token sees what has not fallen out: keys of a half
    window ago, made while their own past was still in view. Reading that half anew gives others."""
    anatomy, ring, generations = written(name)
    live, half = generations.arms[LIVE], 8
    steps = live.ids.shape[1]
    assert evicts(anatomy) and set(generations.arms) == {LIVE, FROZEN, ANEW}
    place = torch.arange(half + steps)
    oldest = (place // half - 1).clamp_min(0) * half
    seen = (place[None] <= place[:, None]) & (place[None] >= oldest[:, None])
    hidden = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]
    for row in range(2):
        whole = torch.cat((ring.stretch(generations.starts[row], -half), live.ids[row]))[None]
        states: dict[str, torch.Tensor] = {}
        with still(anatomy.model), watching(anatomy, {s: keeping(states, s) for s in live.states}):
            anatomy.model(input_ids=whole, attention_mask=hidden)
        for site, x in live.states.items():
            torch.testing.assert_close(states[site][0, half:], x[row], rtol=1e-4, atol=1e-4)
    anew = generations.arms[ANEW]
    assert torch.equal(live.ids[:8, 0], anew.ids[:, 0]) and not torch.equal(live.ids[:8], anew.ids)


def test_keys_that_hold_their_place_cannot_stay():
    assert [evicts(read(tiny(name))) for name in ("gpt2", "mistral", "llama")] == [False, False, True]
    anatomy = read(tiny("llama"))
    assert not evicts(replace(anatomy, positions=replace(anatomy.positions, rotary_type="dynamic")))


@pytest.mark.parametrize(("context", "windows", "verdict"), [(512, 9, "supported"), (576, 7, "qualified")])
def test_a_text_that_fits_into_the_context_is_qualified_at_most(context, windows, verdict):
    anatomy = replace(read(tiny("gpt2")), context=context)
    assert size_of(anatomy, False)[:2] == (64, windows) and size_of(anatomy, True)[1] == 4
    departures = replace(synthetic_departures(0.0, windows), window=64)
    part = very_long(Evidence(anatomy), departures)
    assert part.verdict == verdict and part.asserted and f"context holds {context}" in part.reading
    assert ("nothing about longer texts" in part.reading) == (verdict == "qualified")


def keeping(states, site):
    def see(given, value):
        states[site] = given

    return see


def test_arms_share_prompts_and_random_numbers_and_differ_by_their_norms():
    _, ring, generations = written()
    live, frozen, apart = (generations.arms[arm].ids for arm in (LIVE, FROZEN, APART))
    starts = torch.stack([ring.stretch(start, 1) for start in generations.starts])
    assert torch.equal(live[:, :1], starts) and torch.equal(frozen[:, :1], starts[: len(frozen)])
    assert not torch.equal(live[: len(frozen)], frozen) and not torch.equal(frozen, apart)


def test_the_model_is_left_as_it_was():
    anatomy, _, _ = written()
    bench = Bench(anatomy, corpus97())
    bench.prove()
    Generation().experiment(bench)
    bench.prove()


def test_rows_are_frozen_as_the_edit_freezes_a_whole_batch():
    anatomy, ids = read(tiny("llama")), corpus97().windows
    batch = collate(ids[:4], 0)
    scales = dict.fromkeys(anatomy.norms, 0.7)
    rows = torch.tensor([False, True, True, False])
    with still(anatomy.model):
        plain = run_model(anatomy, batch.ids)
        with edited(anatomy, *(Freeze(site, scale) for site, scale in scales.items())):
            frozen = run_model(anatomy, batch.ids)
        for apart in (torch.zeros(4, dtype=torch.bool), torch.tensor([False, False, True, False])):
            with RowFreeze(scales, rows, apart, Switch(True)).on(anatomy):
                mixed = run_model(anatomy, batch.ids)
            torch.testing.assert_close(mixed[[0, 3]], plain[[0, 3]])
            torch.testing.assert_close(mixed[1], frozen[1])
            assert torch.allclose(mixed[2], frozen[2], atol=1e-5) == (not apart.any())
            torch.testing.assert_close(mixed[2, :1], (plain if apart.any() else frozen)[2, :1])
        with RowFreeze(scales, rows, rows, Switch(False)).on(anatomy):
            torch.testing.assert_close(run_model(anatomy, batch.ids), plain)


def test_repetition_is_counted_by_hand():
    before = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 8]])
    new = torch.tensor([[9, 9, 9, 9, 9, 9, 9, 9], [1, 2, 3, 10, 11, 12, 13, 14]])
    repeated, distinct, pairs = _repetition(new, before)
    # Triples end in 9 9 9 from the third token on, and repeat from the fourth; 1 2 3 stood eight tokens before.
    np.testing.assert_allclose(repeated, [5 / 8, 1 / 8])
    np.testing.assert_allclose(distinct, [1 / 8, 1])
    np.testing.assert_allclose(pairs, [1 / 7, 1])


def test_the_effective_rank_of_known_windows():
    line = torch.nn.functional.normalize(torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]] * 4), dim=1)
    four = torch.cat((torch.eye(4), -torch.eye(4)))
    lost = torch.full((8, 4), torch.nan)
    ranks = _effective_rank(torch.stack((line, four, lost)))
    np.testing.assert_allclose(ranks[:2], [1, 4], rtol=1e-5)
    assert torch.isnan(ranks[2])


def synthetic_departures(trend: float, windows: int = 7, jump: float = 0.0) -> Departures:
    """One state quantity and the text's: noise, with a trend in units of real text's spread in the live arm. In the
    first window, which sees the prompt, everything is elsewhere."""
    rng = np.random.default_rng(7)
    names = ("log length at ln_final", *TEXT)
    real = rng.normal(size=(80, len(names)))
    live = rng.normal(size=(24, windows, len(names)))
    empty = Departures(Measured(names, 1, real, {}), 32, windows)
    live[:, -2:, 0] += trend * empty.spread[0]
    live[:, 0] += 100
    frozen = live[:8].copy()
    frozen[:, :, 0] += jump * empty.spread[0]
    return replace(empty, measured=Measured(names, 1, real, {LIVE: live, FROZEN: frozen, APART: frozen.copy()}))


@pytest.mark.parametrize(("windows", "third"), [(4, 1), (6, 1), (7, 2), (10, 3)])
def test_thirds_of_the_windows_after_the_first_are_compared(windows, third):
    departures = synthetic_departures(0.0, windows)
    series = np.arange(windows, dtype=float)[None, :, None] + np.zeros((2, 1, 1))
    first, last = departures.ends(series)
    assert departures.third == third
    np.testing.assert_allclose(first, np.mean(range(1, 1 + third)))
    np.testing.assert_allclose(last, np.mean(range(windows - third, windows)))


def test_the_first_window_does_not_count():
    departures = synthetic_departures(0.0)
    other = synthetic_departures(0.0)
    for values in other.measured.arms.values():
        values[:, 0] -= 500
    np.testing.assert_array_equal(departures.trends(LIVE), other.trends(LIVE))
    np.testing.assert_array_equal(departures.levels(LIVE), other.levels(LIVE))
    np.testing.assert_array_equal(departures.trends(FROZEN), other.trends(FROZEN))


def test_the_band_is_what_real_text_does_over_as_many_windows():
    """Half windows are the ring's steps: two windows from a start on, and two that begin four windows later."""
    departures = synthetic_departures(0.0)
    real = departures.measured.real
    first, last = ((real + np.roll(real, -2, 0)) / 2, (np.roll(real, -8, 0) + np.roll(real, -10, 0)) / 2)
    np.testing.assert_allclose(departures.spread, (last - first).std(0))


def test_trends_are_measured_in_units_of_real_text():
    evidence = Evidence(read(tiny("gpt2")))
    for trend, side in ((0.0, "inside"), (5.0, "outside"), (-5.0, "outside"), (2.0, "open")):
        departures = synthetic_departures(trend)
        assert abs(departures.trends(LIVE)[:, 0].mean() - trend) < 1
        assert departures.sides(evidence, LIVE)[0] == side
    jumped = synthetic_departures(0.0, jump=6.0)
    assert states_stay(evidence, jumped).verdict == "supported"
    assert norms_do_it(evidence, jumped).verdict == "supported"
    assert jumped.share(evidence, FROZEN) == (1.0, 1.0, 1.0)
    same = synthetic_departures(0.0)
    assert norms_do_it(evidence, same).verdict == "refuted"


def test_an_overflow_counts_as_leaving():
    evidence, departures = Evidence(read(tiny("gpt2"))), synthetic_departures(0.0)
    departures.measured.arms[FROZEN][:] = np.nan
    departures.measured.arms[APART][:] = np.nan
    assert norms_do_it(evidence, departures).verdict == "supported"
    assert departures.share(evidence, FROZEN)[0] == 1.0


def test_text_that_ends_in_a_loop_is_not_coherent():
    """A text that collapses at once has no trend; its level shows it."""
    evidence, departures = Evidence(read(tiny("gpt2"))), synthetic_departures(0.0)
    place = departures.measured.names.index("repeated triples")
    departures.measured.arms[LIVE][:, :, place] += 50
    assert departures.sides(evidence, LIVE)[place] == "inside"
    assert departures.collapsed(evidence)[0] == "outside"
    assert text_stays(evidence, departures).verdict == "qualified"


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen3", "gemma2", "gpt_neox", "opt", "phi"])
def test_every_family_can_write(name):
    anatomy, text = read(tiny(name)), corpus97()
    probe = Generation()
    finding = probe.conclude(gather(anatomy, text, ()), probe.experiment(Bench(anatomy, text, quick=True)))
    whole(finding)
    assert finding.n == 16 * 4 * 32
    evicting = name in ("llama", "qwen3", "gpt_neox", "phi")
    assert evicts(anatomy) == evicting == (finding.parts[-1].name == "states stay with the window read anew")
    assert len(finding.controls) == (1 if evicting else 2)
    assert ("dropped from the model's own cache" in finding.reading) == evicting
    assert probe.passes(anatomy) > 0


@pytest.mark.parametrize("case", ["bert", "short context", "short text"])
def test_generation_says_what_is_missing(case):
    anatomy, text = read(tiny("bert" if case == "bert" else "gpt2")), corpus97()
    if case == "short context":
        anatomy = replace(anatomy, context=24)
    if case == "short text":
        text = corpus97(9, 12)
    probe = Generation()
    finding = probe.conclude(gather(anatomy, text, ()), probe.experiment(Bench(anatomy, text)))
    assert finding.verdict == "undecided"
    assert finding.why is (Why.TOO_LITTLE_TEXT if case == "short text" else Why.NOT_APPLICABLE)
    assert (probe.passes(anatomy) == 0) == (case != "short text")


def test_what_a_model_writes_is_escaped_in_the_figure():
    finding = replace(
        finding_of("generation, a loud word"),
        more_tables={"text": text_table([("norms live", 1, "<b>bold</b>\n\x1b[31m & more")])},
    )
    drawn = finding.plot().to_json()
    assert (
        "<b>bold" not in drawn
        and "&lt;b&gt;bold&lt;/b&gt;⏎⟨1B⟩[31m &amp; more" in json.loads(drawn)["data"][-1]["text"]
    )

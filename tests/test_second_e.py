"""Heads over a training run: planted roles come back, gradients are autograd's, and bad folders are named."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from command import refused, works
from folders import tokenizer
from planted_second_e import CASES, USEFUL, copier, emerged, finding_of, run_folder, words
from scipy.stats import spearmanr
from tiny import tiny

from armillary.anatomy.loading.load import load_model
from armillary.anatomy.loading.steps import find_checkpoints
from armillary.anatomy.read import read
from armillary.errors import ModelError, OutputError
from armillary.flow.controls import random_twin
from armillary.flow.documents import from_any
from armillary.flow.tokens import collate, encode
from armillary.probes.grid.backward import marked_slices
from armillary.probes.grid.emerge import HeadEmergence, _verdict
from armillary.probes.grid.emerge_ranks import NEXT, NOW, OTHERS, beyond_others, cells, correlation, exchanged
from armillary.probes.grid.emergence import (
    Emergence,
    _shares,
    emergence_json,
    measure_emergence,
    read_emergence,
    shipped,
)
from armillary.probes.grid.phenomena import MARKED, OTHER, mark
from armillary.results import VERDICTS, Finding, Why


def whole(finding: Finding) -> None:
    """Every cell is a number or a word, every column is described, and the interval contains the value."""
    assert finding.verdict in VERDICTS and finding.reading and finding.headline
    assert (finding.why is not None) == (finding.verdict == "undecided")
    for table in (finding.table, *finding.more_tables.values()):
        assert all(column.meaning for column in table.columns)
        assert not any(isinstance(cell, float) and math.isnan(cell) for row in table.rows for cell in row)
    if finding.verdict != "undecided":
        assert finding.controls and finding.quantities and finding.table.rows and finding.n > 0
        assert finding.statistic.low <= finding.statistic.value <= finding.statistic.high
    assert finding.plot() is not None


@pytest.mark.parametrize("case", list(CASES))
def test_planted_truth_comes_back(case):
    finding = finding_of(case)
    whole(finding)
    assert finding.verdict == CASES[case][1], f"{finding.statistic}: {finding.reading}"


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
    found = find_checkpoints(run)
    assert [checkpoint.step for checkpoint in found.each] == [0, 100, 200, 1000]
    assert found.last == run / "checkpoint-1000" and not found.damaged


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
    found = find_checkpoints(run)
    assert [checkpoint.step for checkpoint in found.each] == [0, 200, 300]
    assert found.damaged[0].startswith("step 100 was left out: ") and "cut short" in found.damaged[0]


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
    with pytest.raises(ModelError, match="is no folder of checkpoints"):
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
    said = works("survey", run, "--steps", "--claims", "heads.emerge,sphere.radius", "--quick", "--out", tmp_path / "o")
    assert "heads.emerge" in said.stdout
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
    refused("is no folder of checkpoints", "survey", "builtin:gpt", "--steps", "--out", tmp_path / "o")


# Models that cannot have an answer.


def test_untrained_models_in_a_row_support_nothing():
    """Independent initialisations are no training: no role comes about."""
    models = [random_twin(read(copier(0 * USEFUL)), seed).model for seed in range(4)]
    assert emerged(models).verdict != "supported"


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_an_encoder_and_a_single_head_do_not_apply(name):
    from planted_second_e import Bench, gather

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
    found = mark(anatomy, corpus, 0)
    assert set(found.names) == {"induction", "same", "previous"}
    texts = [anatomy.tokenizer.decode([token]) for token in range(anatomy.vocabulary)]
    tokens: dict[tuple[str, int], list[int]] = {}
    for marked in found.batches:
        batch = marked.batch
        for key, mask in marked.marks.items():
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
    for name in found.names:
        assert len(tokens[name, MARKED]) == len(tokens[name, OTHER]) == found.counts[name]
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
        found = correlation(cells(synthetic(follow=follow), NEXT), 0)
        assert sign * found[0] > 0.5 and found[1] < found[0] < found[2]
    none = cells(synthetic(follow=0.0), NEXT)
    assert correlation(none, 0)[1] < 0 < correlation(none, 0)[2] + 0.2


def test_heads_that_are_busy_everywhere_do_not_count():
    """Heads that get much of any gradient also exceed on marked tokens, and gain; but other tokens predict as much."""
    found = cells(synthetic(layers=14, heads=2, follow=0.0, busy=1.0), NEXT)
    assert correlation(found, 0)[0] > 0.4
    assert correlation(found, 0, OTHERS, ())[0] > 0.5
    assert beyond_others(found, 0)[1] < 0
    followed = cells(synthetic(layers=14, heads=2), NEXT)
    assert beyond_others(followed, 0)[1] > 0


def test_the_correlation_is_spearmans():
    table = synthetic()
    cell = next(cell for cell in cells(table, NEXT) if cell.emerges)
    gain = np.diff(table.roles, axis=0)[cell.at, 0]
    expected = spearmanr(table.excess[cell.at, 0].ravel(), (gain - gain.mean(1, keepdims=True)).ravel()).statistic
    assert correlation([cell], 0, given=())[0] == pytest.approx(expected, abs=1e-12)


def test_exchanged_heads_lose_the_correlation():
    found = cells(synthetic(), NOW)
    value, low, high = exchanged(found, 6, 0)
    assert low < value < high < correlation(found, 0)[0] and abs(value) < 0.1


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

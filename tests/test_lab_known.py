"""A run that another study has made is taken over, and no other one is; norm-free arms learn more than frequencies."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from command import run
from runs import verse

from armillary.errors import ArmillaryError
from armillary.lab import data
from armillary.lab.parts.initial_weights import prepare
from armillary.lab.study.arm_training import ArmTrainer, StudyCorpus, build_arm
from armillary.lab.study.arms import NORMS
from armillary.lab.study.design import LOUD, RATES, SIZES, Run, Size
from armillary.lab.study.queue import Study, read_runs


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return data.Text.of(verse(tmp_path_factory.mktemp("text") / "text.txt"))


@pytest.fixture
def gate(text, tmp_path, monkeypatch):
    monkeypatch.setattr("armillary.lab.study.design.RATES", (1e-3, 2e-3))
    Study("gate", "smoke", text, tmp_path / "gate", 2, "cpu").run(["layernorm"])
    return tmp_path / "gate"


def test_the_plain_model_is_trained_once_for_all_studies(text, gate, tmp_path, monkeypatch):
    def refuse(*args):
        raise AssertionError("a run that is known was made again")

    monkeypatch.setattr("armillary.lab.study.arm_training.ArmTrainer.run", refuse)
    for folder in (gate, tmp_path):
        rows = Study("metric", "smoke", text, tmp_path / "m" / folder.name, 2, "cpu", known=(folder,)).run(["dot"])
        theirs = {row["key"]: row for row in read_runs(gate)}
        assert len(rows) == len(theirs) == 6
        for row in rows:
            assert row["key"].startswith("metric/smoke/dot/")
            assert (row["study"], row["arm"]) == ("metric", "dot")
            assert row["loss"] == theirs[row["taken_from"]]["loss"]


def test_what_is_taken_over_is_what_a_run_of_its_own_gives(text, gate, tmp_path):
    taken = Study("metric", "smoke", text, tmp_path / "a", 2, "cpu", known=(gate,)).run(["dot"])
    rows = Study("metric", "smoke", text, tmp_path / "b", 2, "cpu").run(["dot"])
    assert {row["key"]: row["loss"] for row in taken} == {row["key"]: row["loss"] for row in rows}


def test_other_models_and_longer_studies_are_trained(text, gate, tmp_path):
    rows = Study("metric", "smoke", text, tmp_path / "m", 3, "cpu", known=(gate,)).run(["dot", "cosine"])
    trained = [row["key"] for row in rows if "taken_from" not in row]
    assert sum("/cosine/" in key for key in trained) == 7
    assert [key for key in trained if "/dot/" in key] == [
        row["key"] for row in rows if row["seed"] == 2 and "/dot/" in row["key"]
    ]


@pytest.mark.parametrize("key", ["text", "device", "training", "size"])
def test_runs_of_another_text_size_or_recipe_are_not_taken(text, gate, tmp_path, key):
    path = gate / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest[key] = {**manifest[key], "looks": 6} if key == "training" else manifest[key]
    manifest[key] = {**manifest[key], "batch": 5} if key == "size" else manifest[key]
    manifest[key] = "other" if key in ("text", "device") else manifest[key]
    path.write_text(json.dumps(manifest))
    rows = Study("metric", "smoke", text, tmp_path / "m", 1, "cpu", known=(gate,)).run(["dot"])
    assert rows
    assert not any("taken_from" in row for row in rows)


def test_robustness_is_not_taken_from_a_study_that_did_not_measure_it(text, gate, tmp_path):
    rows = Study("mismatch", "smoke", text, tmp_path / "m", 1, "cpu", known=(gate,)).run(["layernorm"])
    assert {row["tuning"] for row in rows if "taken_from" in row} == {True}
    assert all("dropped" in row for row in rows if not row["tuning"])


def test_a_folder_without_studies_is_refused(text, tmp_path):
    (tmp_path / "empty").mkdir()
    study = Study("metric", "smoke", text, tmp_path / "m", 1, "cpu", known=(tmp_path / "empty",))
    with pytest.raises(ArmillaryError, match="holds no study"):
        study.run(["dot"])


def test_known_runs_from_the_command_line(text, gate, tmp_path):
    out = tmp_path / "m"
    run(f"lab run metric --arms dot --seeds 2 --text {text.source} --known {gate} --out {out} --device cpu")
    assert all("taken_from" in row for row in read_runs(out))


CHAIN = Size("chain", 1, 32, 4, context=32, batch=16, tokens=250 * 512, vocabulary=257)


@pytest.fixture(scope="module")
def chain():
    """A text in which one token decides the next, and a few tokens are far more frequent than the others."""
    draws = np.random.default_rng(0)
    follow = draws.choice(
        CHAIN.vocabulary, (CHAIN.vocabulary, 2), p=(w := 1 / np.arange(1, CHAIN.vocabulary + 1)) / w.sum()
    )
    tokens = [0]
    for coin in draws.integers(0, 2, 60_000):
        tokens.append(
            int(follow[tokens[-1], coin]) if draws.random() > 0.05 else int(draws.integers(0, CHAIN.vocabulary))
        )
    corpus = StudyCorpus.__new__(StudyCorpus)
    corpus.train, corpus.valid = torch.tensor(tokens[:54_000]), torch.tensor(tokens[54_000:])
    corpus._order = None, torch.zeros(0)
    counts = np.bincount(tokens, minlength=CHAIN.vocabulary) / len(tokens)
    return corpus, -float((counts[counts > 0] * np.log(counts[counts > 0])).sum())


def learned(arm, corpus, size=CHAIN):
    """Loss of one run at the highest rate of the grid."""
    return ArmTrainer(arm, size, corpus, "cpu").run(Run("norms", arm.name, "chain", RATES[-1], 0, 0))["loss"]


# Norms are 2.2 to 2.4 nats below the frequencies after 120 steps; arms without norms take all 250.
@pytest.mark.parametrize(
    ("name", "steps"),
    [("layernorm", 120), ("sphere", 120), ("symmetriser ring", 120), ("dyt, loud", 250), ("derf, loud", 250)],
)
def test_an_arm_of_norms_learns_more_than_how_frequent_tokens_are(name, steps, chain):
    corpus, frequencies = chain
    arm = next(arm for arm in NORMS if arm.name == name)
    assert learned(arm, corpus, replace(CHAIN, tokens=steps * 512)) < frequencies - 1


@pytest.mark.parametrize("name", ["dyt", "derf"])
def test_a_quiet_unembedding_keeps_a_norm_free_arm_at_the_frequencies(name, chain):
    """The unembedding alone decides: a loud embedding with positions does not help, a loud unembedding does."""
    corpus, frequencies = chain
    arm = next(arm for arm in NORMS if arm.name == name)
    assert learned(arm, corpus) > frequencies - 0.5
    for tables, fine in (("wte wpe", False), ("lm_head", True)):
        trainer = ArmTrainer(replace(arm, embed_scale=False, untied=True), CHAIN, corpus, "cpu")
        build = trainer._build

        def louder(start, build=build, tables=tables):
            model = build(start)
            with torch.no_grad():
                for table in tables.split():
                    model.get_submodule(table if table == "lm_head" else f"transformer.{table}").weight.mul_(LOUD)
            return model

        trainer._build = louder
        loss = trainer.run(Run("norms", name, "chain", RATES[-1], 0, 0))["loss"]
        assert (loss < frequencies - 1) == fine, tables


def test_a_loud_start_multiplies_the_tables_once():
    for untied in (False, True):
        plain, loud = (
            build_arm(replace(NORMS[0], untied=untied, embedding_scale=s), SIZES["smoke"], 0) for s in (1.0, 8.0)
        )
        for (name, ours), theirs in zip(plain.named_parameters(), loud.parameters(), strict=True):
            factor = 8.0 if "wte" in name or "wpe" in name or "lm_head" in name else 1.0
            torch.testing.assert_close(theirs, factor * ours)
    with pytest.raises(ArmillaryError, match="must be above 0, got -1"):
        prepare(plain, embedding_scale=-1.0)

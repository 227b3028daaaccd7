"""Geometry during training: every number against a direct float64 computation, and nothing left behind."""

import copy
import json
import math
import subprocess
import sys
import types
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
import transformers as tr
from tiny import MAKERS, tiny
from torch import nn

from armillary.anatomy.read import read
from armillary.errors import ArmillaryError, ModelError, OutputError, TextError
from armillary.flow.capture import run, still, watching_patterns
from armillary.flow.tokens import Corpus, Window
from armillary.probes.instruments import patterns
from armillary.probes.instruments.lengths import LengthSums
from armillary.specimens.models.bag import VOCABULARY, bag, gaussian
from armillary.specimens.models.draws import generator
from armillary.specimens.models.texts import corpus
from armillary.training import snapshot as measuring
from armillary.training.callback import GeometryCallback
from armillary.training.health import HealthCallback
from armillary.training.snapshot import DivergedError, Snapshot, plain, snapshot

TEXT = torch.randint(3, 97, (6, 14), generator=generator(3))


def ragged():
    """Rows of many lengths: batches are padded, and padding must not count."""
    rows = [tuple(row[: 14 - i].tolist()) for i, row in enumerate(TEXT)]
    return Corpus(tuple(Window(i, row) for i, row in enumerate(rows)), "t", len(rows), sum(map(len, rows)), ())


def direct(model, rows):
    """The same numbers from a float64 copy, read row by row by hooks of the test's own, without padding."""
    model = copy.deepcopy(model).double().eval()
    anatomy = read(model)
    inputs = {site: [] for site in anatomy.sites}
    for name, site in anatomy.sites.items():
        model.get_submodule(site.path).register_forward_hook(
            lambda m, args, kw, out, n=name: inputs[n].append(args[0] if args else kw["hidden_states"]),
            with_kwargs=True,
        )
    with torch.no_grad():
        for row in rows:
            anatomy.backbone(torch.tensor([row]), use_cache=False)
    expected = {}
    for site, norm in anatomy.norms.items():
        x = [batch.reshape(-1, norm.d) for batch in inputs[site]]
        expected[f"length_first/{site}"] = torch.stack([batch[0] for batch in x]).norm(dim=1).mean()
        later = torch.cat([batch[1:] for batch in x])
        expected[f"length/{site}"] = later.norm(dim=1).mean()
        centred = later - later.mean(1, keepdim=True) if norm.kind == "layernorm" else later
        z = centred / (centred.square().mean(1, keepdim=True) + norm.eps).sqrt()
        values = torch.linalg.eigvalsh(z.T.cov(correction=0)).clamp_min(0)
        shares = (values / values.sum()).numpy()
        expected[f"effective_rank/{site}"] = math.exp(-sum(p * math.log(p) for p in shares if p > 0))
    for i in range(anatomy.layers):
        peak = torch.cat([batch.reshape(-1, batch.shape[-1]) for batch in inputs[f"L{i}.mlp_post"]]).abs().amax(0)
        expected[f"dead_units/L{i}.mlp_post"] = (peak < 0.01 * peak.sort().values[(len(peak) - 1) // 2]).double().mean()
    return {name: float(value) for name, value in {**expected, **direct_entropy(model, rows)}.items()}


def direct_entropy(model, rows):
    """From Hugging Face's own patterns, in a loop; a key is visible where it weighs anything."""
    longest = sorted(rows, key=len, reverse=True)[: measuring.PATTERN_ROWS]
    ids = torch.tensor([row[: len(longest[-1])] for row in longest])
    model.set_attn_implementation("eager")
    with torch.no_grad():
        patterns = model.base_model(ids, use_cache=False, output_attentions=True).attentions
    expected = {}
    for layer, pattern in enumerate(patterns):
        for head in range(pattern.shape[1]):
            shares = []
            for query in pattern[:, head].flatten(0, 1):
                seen = query[query > 0]
                if len(seen) > 1:
                    shares.append(float(-(seen * seen.log()).sum()) / math.log(len(seen)))
            expected[f"attention_entropy/L{layer}H{head}"] = np.mean(shares)
    return expected


def agree(ours, theirs):
    assert ours.keys() == theirs.keys()
    assert ours == pytest.approx(theirs, rel=2e-4)


@pytest.mark.parametrize("name", MAKERS)
def test_every_number_agrees_with_a_direct_computation(name):
    model = tiny(name)
    agree(GeometryCallback(TEXT).snapshot(model).scalars(), direct(model, TEXT.tolist()))


@pytest.mark.parametrize("name", ["gpt2", "llama", "opt", "bert"])
def test_padding_never_counts(name):
    model, text = tiny(name), ragged()
    agree(GeometryCallback(text).snapshot(model).scalars(), direct(model, [list(w.ids) for w in text.windows]))


@pytest.mark.parametrize(
    ("what", "instead"),
    [
        ("ORDINARY", measuring.FIRST),
        ("Patterns", lambda first_query, compared: patterns.Patterns(first_query + 3, compared)),
        ("entropy_rank", lambda values: float(values.sum() ** 2 / values.square().sum())),
        ("PATTERN_WIDTH", 5),
    ],
)
def test_a_mistake_is_noticed(monkeypatch, what, instead):
    model = tiny("gpt2")
    truth = direct(model, TEXT.tolist())
    agree(GeometryCallback(TEXT).snapshot(model).scalars(), truth)
    monkeypatch.setattr(measuring, what, instead)
    with pytest.raises(AssertionError):
        agree(GeometryCallback(TEXT).snapshot(model).scalars(), truth)


def test_counting_first_positions_is_noticed(monkeypatch):
    model = tiny("llama")
    sums = LengthSums.sums
    monkeypatch.setattr(LengthSums, "sums", lambda self, name, kinds: sums(self, name, [0, 1, 2]))
    with pytest.raises(AssertionError):
        agree(GeometryCallback(TEXT).snapshot(model).scalars(), direct(model, TEXT.tolist()))


def kill(model, layer, units):
    with torch.no_grad():
        if hasattr(model, "transformer"):
            mlp = model.transformer.h[layer].mlp
            mlp.c_fc.weight[:, units] = 0
            mlp.c_fc.bias[units] = 0
            return 128
        model.model.layers[layer].mlp.up_proj.weight[units] = 0
        return 48


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("dead", [2, 30])
def test_dead_units_are_counted(name, dead):
    """Also where they are the most: the median unit is then dead itself."""
    model = tiny(name)
    assert set(GeometryCallback(TEXT).snapshot(model).dead_units.values()) == {0.0}
    width = kill(model, 1, list(range(dead)))
    dead_units = GeometryCallback(TEXT).snapshot(model).dead_units
    assert dead_units == {"L0.mlp_post": 0.0, "L1.mlp_post": dead / width, "L2.mlp_post": 0.0}


def test_padding_wakes_no_unit():
    """A unit that fires for token 0 alone, which is what rows are padded with, is dead in a text without it."""
    embedding = gaussian()
    embedding[1:, 1] = embedding[1:, 0]
    model = bag(embedding).model
    with torch.no_grad():
        model.transformer.h[0].mlp.c_fc.weight[:, 7] = torch.eye(32)[0] - torch.eye(32)[1]
    text = ragged()
    assert GeometryCallback(text).snapshot(model).dead_units["L0.mlp_post"] == 1 / 128
    awake = Corpus((*text.windows, Window(6, (5, 0, 5))), "t", 7, text.tokens + 3, ())
    assert GeometryCallback(awake).snapshot(model).dead_units["L0.mlp_post"] == 0


def test_a_faint_unit_is_dead_and_a_weak_one_is_not():
    model = tiny("llama")
    with torch.no_grad():
        up = model.model.layers[0].mlp.up_proj.weight
        up[3] *= 1e-4
        up[4] *= 0.1
    assert GeometryCallback(TEXT).snapshot(model).dead_units["L0.mlp_post"] == 1 / 48


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "bert"])
def test_uniform_attention_has_entropy_one(name):
    model = tiny(name)
    before = GeometryCallback(TEXT).snapshot(model).attention_entropy
    assert max(before.values()) < 0.999
    with torch.no_grad():
        for attention in read(model).blocks:
            attention.attention.W_Q.zero_()
            if attention.attention.b_Q is not None:
                attention.attention.b_Q.zero_()
    after = GeometryCallback(TEXT).snapshot(model).attention_entropy
    assert list(after) == [f"L{layer}H{head}" for layer in range(3) for head in range(4)]
    assert list(after.values()) == pytest.approx([1.0] * 12, abs=1e-6)


@pytest.mark.parametrize("rank", [2, 8])
def test_effective_rank_of_a_planted_stream(rank):
    """Centring a stream of this rank leaves its rank; the ordinary stream next to it fills far more."""
    text = corpus(documents=16)
    ranks = GeometryCallback(text).snapshot(bag(gaussian(rank)).model).effective_rank
    assert all(0.5 * rank < value <= rank + 1e-3 for value in ranks.values())
    whole = GeometryCallback(text).snapshot(bag(gaussian()).model).effective_rank
    assert min(whole.values()) > 25


def test_a_stream_on_a_line_has_effective_rank_one_and_a_point_none():
    line = torch.randn(VOCABULARY, 1, generator=generator(5)) @ torch.randn(1, 32, generator=generator(6))
    snapshot = GeometryCallback(corpus(documents=8)).snapshot(bag(50 * line).model)
    assert list(snapshot.effective_rank.values()) == pytest.approx([1.0] * 5, abs=1e-3)
    point = GeometryCallback(corpus(documents=8)).snapshot(bag(torch.zeros(VOCABULARY, 32)).model)
    assert set(point.effective_rank.values()) == {0.0}


def state_of(model):
    return {
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "requires": [p.requires_grad for p in model.parameters()],
        "training": [module.training for module in model.modules()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "attention": model.config._attn_implementation,
        "random": torch.get_rng_state(),
        "threads": torch.get_num_threads(),
    }


def same(before, after):
    for key, value in before.items():
        if key == "weights":
            assert all(torch.equal(value[name], after[key][name]) for name in value)
        elif key == "gradients":
            assert all(a is b is None or torch.equal(a, b) for a, b in zip(value, after[key], strict=True))
        elif key == "random":
            assert torch.equal(value, after[key])
        else:
            assert value == after[key], key


def in_training(name):
    """A model as training leaves it: some gradients, a frozen part, a part in evaluation mode."""
    model = tiny(name).train()
    model(input_ids=TEXT, labels=TEXT).loss.backward()
    next(model.parameters()).requires_grad_(False)
    next(m for m in model.modules() if isinstance(m, nn.LayerNorm | nn.Embedding)).eval()
    return model


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_everything_is_as_it_was(name, attention):
    model = in_training(name)
    model.set_attn_implementation(attention)
    before = state_of(model)
    GeometryCallback(TEXT).snapshot(model)
    same(before, state_of(model))


def test_a_model_in_training_is_looked_at_without_dropout():
    model, look = tiny("gpt2"), GeometryCallback(TEXT)
    assert look.snapshot(copy.deepcopy(model).train()) == look.snapshot(model)


def test_everything_is_as_it_was_after_an_error(monkeypatch):
    def fail(*args):
        torch.rand(3)
        raise RuntimeError("on the way")

    model = in_training("gpt2")
    before = state_of(model)
    monkeypatch.setattr(patterns, "fields_of", fail)
    with pytest.raises(RuntimeError, match="on the way"):
        GeometryCallback(TEXT).snapshot(model)
    same(before, state_of(model))


@pytest.mark.parametrize("name", MAKERS)
def test_patterns_are_hugging_faces_own(name):
    """And the model, which attends as it likes to, is afterwards as it was."""
    anatomy, seen = read(tiny(name)), []
    before = state_of(anatomy.model)
    with still(anatomy.model), watching_patterns(anatomy, lambda layer, pattern: seen.append((layer, pattern))):
        run(anatomy, TEXT)
    same(before, state_of(anatomy.model))
    anatomy.model.set_attn_implementation("eager")
    # By the same arithmetic: inside `still`, products and activations may be computed another way, equal to rounding.
    with still(anatomy.model):
        truth = anatomy.backbone(TEXT, use_cache=False, output_attentions=True).attentions
    assert [layer for layer, _ in seen] == [0, 1, 2]
    for (_, ours), theirs in zip(seen, truth, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_a_layer_that_is_never_passed_is_an_error():
    anatomy = read(tiny("gpt2"))
    before = state_of(anatomy.model)
    with (
        pytest.raises(ModelError, match=r"never passed \['L1.pattern', 'L2.pattern'\]"),
        watching_patterns(anatomy, lambda layer, pattern: None),
    ):
        anatomy.model.transformer.h[0](torch.zeros(1, 5, anatomy.d))
    same(before, state_of(anatomy.model))


def test_an_attention_that_cannot_be_set_again_comes_back():
    """In every config of the model, also one that is not shared: a name that transformers itself would refuse."""
    anatomy = read(tiny("gpt2"))
    inner = anatomy.model.transformer.config = copy.deepcopy(anatomy.model.config)
    inner._attn_implementation = "no longer installed"
    with still(anatomy.model), watching_patterns(anatomy, lambda layer, pattern: None):
        assert inner._attn_implementation == anatomy.model.config._attn_implementation == "eager"
        run(anatomy, TEXT)
    assert inner._attn_implementation == "no longer installed"
    assert anatomy.model.config._attn_implementation == "sdpa"


def test_two_looks_see_the_same_and_a_later_one_sees_the_change():
    model, look = tiny("gemma2"), GeometryCallback(TEXT)
    first = look.snapshot(model)
    assert look.snapshot(model) == first
    with torch.no_grad():
        model.model.norm.weight += 1  # the gain comes after what is measured …
        model.model.layers[0].input_layernorm.weight += 1  # … of its own site
    later = look.snapshot(model)
    assert later.length["L0.ln1"] == first.length["L0.ln1"]
    assert later.length["L0.ln2"] != first.length["L0.ln2"]


def test_wrapped_models_are_unwrapped():
    model = tiny("gpt2")
    look = GeometryCallback(TEXT)
    truth = look.snapshot(model)
    compiled = torch.compile(model, backend="eager")
    for wrapped in (nn.DataParallel(model), compiled, torch.compile(nn.DataParallel(model), backend="eager")):
        assert look.snapshot(wrapped) == truth


def test_autocast_around_a_look_changes_nothing():
    model, look = tiny("llama"), GeometryCallback(TEXT)
    truth = look.snapshot(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert look.snapshot(model) == truth


def test_attention_is_read_on_a_few_short_rows_and_says_so(monkeypatch):
    monkeypatch.setattr(measuring, "PATTERN_WIDTH", 9)
    snapshot = GeometryCallback(TEXT).snapshot(tiny("gpt2"))
    assert (snapshot.tokens, snapshot.pattern_rows, snapshot.pattern_width) == (84, 4, 9)


def test_a_snapshot_is_json(tmp_path):
    nothing = Snapshot({"ln_final": math.nan}, {"ln_final": 2.0}, {}, {}, {}, 4, 1, 2)
    assert nothing.to_dict()["length"] == {"ln_final": None}
    snapshot = GeometryCallback(TEXT.numpy()).snapshot(tiny("gpt2"))
    back = json.loads(json.dumps(snapshot.to_dict(), allow_nan=False))
    assert back["attention_entropy"]["L2H3"] == snapshot.scalars()["attention_entropy/L2H3"]
    assert back["tokens"] == 84


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_plain_callable(tmp_path):
    log = tmp_path / "deep" / "log.jsonl"
    look, model = GeometryCallback(TEXT, every=2, log=log), tiny("llama")
    given = [look(step, model) for step in range(4)]
    assert [bool(mask) for mask in given] == [True, False, True, False]
    assert given[0] == look.snapshot(model).scalars()
    written = lines(log)
    assert [row["step"] for row in written] == [0, 2]
    assert {name: value for name, value in written[0].items() if "/" in name} == given[0]
    assert {name: written[0][name] for name in ("tokens", "pattern_rows", "pattern_width")} == {
        "tokens": 84,
        "pattern_rows": 4,
        "pattern_width": 14,
    }
    assert GeometryCallback(TEXT)(7, model) == given[0]


def train(tmp_path, callbacks, **settings):
    """A few steps of Hugging Face's own trainer on a tiny GPT-2 with dropout."""
    rows = [{"input_ids": row, "labels": row} for row in TEXT.repeat(2, 1)]
    base = {"max_steps": 5, "per_device_train_batch_size": 2, "logging_steps": 2, "save_strategy": "no", "seed": 1}
    quiet = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "dataloader_pin_memory": False}
    args = tr.TrainingArguments(output_dir=str(tmp_path), **{**base, **quiet, **settings})
    model = tiny("gpt2")
    trainer = tr.Trainer(model=model, args=args, train_dataset=rows, eval_dataset=rows[:4], callbacks=callbacks)
    trainer.train()
    return trainer


def test_hugging_face_trainer_every_few_steps(tmp_path):
    log = tmp_path / "log.jsonl"
    trainer = train(tmp_path / "run", [look := GeometryCallback(TEXT, every=2, log=log)])
    written = lines(log)
    assert [row["step"] for row in written] == [0, 2, 4, 5]
    start = look.snapshot(tiny("gpt2")).scalars()
    assert {name: value for name, value in written[0].items() if "/" in name} == start
    last = look.snapshot(trainer.model).scalars()
    assert {name: value for name, value in written[-1].items() if "/" in name} == last
    assert last["length/ln_final"] != start["length/ln_final"]
    history = [row for row in trainer.state.log_history if "length/ln_final" in row]
    assert [row["step"] for row in history] == [0, 2, 4, 5]
    assert history[-1]["attention_entropy/L0H0"] == last["attention_entropy/L0H0"]


def test_hugging_face_trainer_at_evaluations(tmp_path):
    log = tmp_path / "log.jsonl"
    train(tmp_path / "run", [GeometryCallback(TEXT, log=log)], eval_strategy="steps", eval_steps=3, max_steps=6)
    assert [row["step"] for row in lines(log)] == [0, 3, 6]


def test_health_and_geometry_side_by_side(tmp_path):
    """Both under one trainer: each has its own log and its own place in the history."""
    health, geometry = (tmp_path / f"{name}.jsonl" for name in ("health", "geometry"))
    callbacks = [GeometryCallback(TEXT, every=2, log=geometry), HealthCallback(TEXT, every=2, log=health)]
    with pytest.warns(RuntimeWarning, match="loss on the text"):  # an untrained model guesses
        trainer = train(tmp_path / "run", callbacks)
    assert [row["step"] for row in lines(geometry)] == [0, 2, 4, 5]
    assert [row["step"] for row in lines(health)] == [2, 4, 5]
    history = [row for row in trainer.state.log_history if "health/loss.text" in row]
    assert [row["step"] for row in history] == [2, 4, 5]
    assert {row["status"] for row in lines(health)} == {"bad"}
    last = callbacks[1].check(trainer.model).scalars()
    assert {name: value for name, value in history[-1].items() if "/" in name} == plain(last)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_health_at_evaluations_can_end_the_training(tmp_path):
    settings = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 6}
    trainer = train(tmp_path / "a", [HealthCallback(TEXT, log=tmp_path / "a.jsonl", stop=True)], **settings)
    assert trainer.state.global_step == 2
    assert [row["step"] for row in lines(tmp_path / "a.jsonl")] == [2]
    trainer = train(tmp_path / "b", [HealthCallback(TEXT, log=tmp_path / "b.jsonl")], **settings)
    assert trainer.state.global_step == 6
    assert [row["step"] for row in lines(tmp_path / "b.jsonl")] == [2, 4, 6]


@pytest.mark.parametrize("stop", [False, True])
def test_health_of_a_stream_that_is_infinite(tmp_path, stop):
    """No weight is, so the check cannot finish; the run is told, and ends only if asked."""
    model, log = tiny("gpt2"), tmp_path / "log.jsonl"
    with torch.no_grad():
        model.transformer.h[0].mlp.c_proj.weight.mul_(1e38)
    control = tr.TrainerControl()
    with pytest.warns(RuntimeWarning) as warned:
        HealthCallback(TEXT, every=3, log=log, stop=stop).on_step_end(None, fake_state(), control, model=model)
    first, *later = (str(warning.message) for warning in warned)
    assert first.startswith("step 3: the stream contains NaN or infinity")
    assert later == ["step 3: the training ends here, as stop=True asks."] * stop
    assert control.should_training_stop == stop
    assert [(row["step"], row["status"]) for row in lines(log)] == [(3, "bad")]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_resumed_run_keeps_no_health_of_lost_steps(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("".join(f'{{"step": {step}, "status": "ok"}}\n' for step in (2, 4, 6)))
    look, state = HealthCallback(TEXT, every=2, log=log), fake_state(4)
    look.on_train_begin(None, state, tr.TrainerControl(), model=tiny("gpt2"))
    assert [row["step"] for row in lines(log)] == [2]
    look.on_step_end(None, state, tr.TrainerControl(), model=tiny("gpt2"))
    look.on_train_end(None, state, tr.TrainerControl(), model=tiny("gpt2"))
    assert [row["step"] for row in lines(log)] == [2, 4]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_watching_does_not_change_what_is_learnt(tmp_path):
    watchers = [GeometryCallback(TEXT, every=1), HealthCallback(TEXT, every=2)]
    watched = train(tmp_path / "a", watchers).model.state_dict()
    alone = train(tmp_path / "b", []).model.state_dict()
    assert all(torch.equal(watched[name], alone[name]) for name in alone)


def fake_state(step=3):
    return types.SimpleNamespace(global_step=step, epoch=0.5, is_world_process_zero=True, log_history=[])


def test_a_diverged_model_is_an_error_but_ends_no_training(tmp_path):
    model, log = tiny("gpt2"), tmp_path / "log.jsonl"
    with torch.no_grad():
        model.transformer.h[1].mlp.c_fc.weight[0, 0] = math.nan
    look = GeometryCallback(TEXT, every=3, log=log)
    with pytest.raises(DivergedError, match="training has diverged"):
        look(3, model)
    state = fake_state()
    with pytest.warns(RuntimeWarning, match="step 3: the stream contains NaN"):
        look.on_step_end(None, state, None, model=model)
    assert lines(log) == [{"step": 3, "error": lines(log)[0]["error"]}]
    assert state.log_history == []


def test_a_resumed_training_says_nothing_twice(tmp_path):
    log, model = tmp_path / "log.jsonl", tiny("gpt2")
    look = GeometryCallback(TEXT, every=2, log=log)
    for step in (0, 2, 4, 6):
        look(step, model)
    again = GeometryCallback(TEXT, every=2, log=log)
    again.on_train_begin(None, fake_state(4), None, model=model)
    assert [row["step"] for row in lines(log)] == [0, 2, 4]
    again.on_step_end(None, fake_state(6), None, model=model)
    assert [row["step"] for row in lines(log)] == [0, 2, 4, 6]


def test_only_the_first_process_looks(tmp_path):
    state = fake_state()
    state.is_world_process_zero = False
    look = GeometryCallback(TEXT, every=1, log=tmp_path / "log.jsonl")
    look.on_step_end(None, state, None, model=tiny("gpt2"))
    assert not (tmp_path / "log.jsonl").exists()


def test_tensorboard_that_is_missing_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ArmillaryError, match=r"not installed; pip install tensorboard, or write JSON lines"):
        GeometryCallback(TEXT, tensorboard=tmp_path)


class Writer:
    """What torch's SummaryWriter promises, as far as we ask."""

    writers: list["Writer"] = []  # noqa: RUF012

    def __init__(self, log_dir):
        self.folder, self.rows, self.flushed, self.closed = log_dir, [], [], False
        Writer.writers.append(self)

    def add_scalar(self, name, value, step):
        self.rows.append((name, value, step))

    def flush(self):
        self.flushed.append(len(self.rows))

    def close(self):
        self.closed = True


@pytest.fixture
def board(monkeypatch):
    monkeypatch.setattr(Writer, "writers", [])
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer))
    return Writer.writers


def test_tensorboard_gets_every_number(board, tmp_path):
    look = GeometryCallback(TEXT, tensorboard=tmp_path)
    scalars = [look(step, tiny("gpt2")) for step in (0, 5)]
    look.close()
    (writer,) = board
    assert writer.folder == str(tmp_path) and writer.closed
    assert writer.rows == [(name, value, 5 * i) for i, row in enumerate(scalars) for name, value in row.items()]
    assert writer.flushed == [len(scalars[0]), 2 * len(scalars[0])], "a running training can be followed look by look"


def test_tensorboard_in_the_trainers_own_folder(board, tmp_path, monkeypatch):
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    train(tmp_path, [GeometryCallback(TEXT, every=5, tensorboard=True)])
    assert board[0].folder.startswith(str(tmp_path / "runs"))
    assert {step for _, _, step in board[0].rows} == {0, 5}
    assert board[0].closed
    with pytest.raises(ArmillaryError, match="without a Trainer, name a folder"):
        GeometryCallback(TEXT, tensorboard=True)(0, tiny("gpt2"))


def test_a_real_event_file(tmp_path):
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        look = GeometryCallback(TEXT, tensorboard=tmp_path)
        look(0, tiny("gpt2"))
        look.close()
    assert next(tmp_path.glob("events.out.tfevents*")).stat().st_size > 0


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.rand(2, 5), r"must be ids \[rows, width\]; got torch.float32 of shape \(2, 5\)"),
        (torch.arange(5), r"of shape \(5,\)"),
        (torch.full((2, 5), -1), "must be ids"),
        (torch.ones(3, 1, dtype=torch.long), "no row of two tokens"),
        (Corpus((), "t", 0, 0, ()), "no row of two tokens"),
    ],
)
def test_text_that_is_no_text(tokens, message):
    with pytest.raises(TextError, match=message):
        GeometryCallback(tokens)


def test_a_look_by_itself():
    model = tiny("gpt2")
    assert snapshot(model, ragged()) == GeometryCallback(ragged()).snapshot(model)
    with pytest.raises(TextError, match="no row of two tokens"):
        snapshot(model, Corpus((), "t", 0, 0, ()))


def test_text_that_does_not_fit_the_model():
    with pytest.raises(
        TextError, match="rows of up to 14 tokens and ids up to 200; this model reads 64 tokens and knows 97"
    ):
        GeometryCallback(TEXT.clamp_max(0) + 200).snapshot(tiny("gpt2"))
    with pytest.raises(TextError, match="rows of up to 70 tokens"):
        GeometryCallback(torch.ones(2, 70, dtype=torch.long)).snapshot(tiny("gpt2"))


def test_settings_that_cannot_be(tmp_path):
    with pytest.raises(ArmillaryError, match="every=0 is not an interval"):
        GeometryCallback(TEXT, every=0)
    with pytest.raises(OutputError, match="cannot be written"):
        GeometryCallback(TEXT, log=tmp_path)(0, tiny("gpt2"))
    with pytest.raises(ModelError, match="not a transformers model"):
        GeometryCallback(TEXT).snapshot(nn.Linear(2, 2))


def test_attention_without_a_pattern_is_an_error(monkeypatch):
    model = tiny("gpt2")
    monkeypatch.setattr("armillary.flow.capture._eager", nullcontext)
    with pytest.raises(ModelError, match="GPT2Attention gave no attention pattern"):
        GeometryCallback(TEXT).snapshot(model)


def test_the_list_of_probes_stays_light():
    heavy = "('armillary.training.callback', 'armillary.training.snapshot')"
    code = f"import armillary.probes, sys; sys.exit(any(m in sys.modules for m in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

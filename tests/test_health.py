"""A model's health: what is planted is found and named, healthy models are not bad, and pipelines can rely on it."""

import json
import math
import re
from dataclasses import replace

import pytest
import torch
import transformers
from click.testing import CliRunner

import armillary
from armillary.anatomy.read import read
from armillary.cli import main
from armillary.flow.documents import from_any
from armillary.readouts.health.checks import BY_ID, usual_values
from armillary.readouts.health.health_report import against, check_health
from armillary.results.sheets.health import STATUSES
from armillary.run import text_of
from armillary.specimens.models.sick import HEAD, INJURIES, LAYER, TWIN, UNIT, injured
from armillary.training.health import HealthCallback
from armillary.views.text.health import health_text

TOKENS = 400
# Injury → the line that must find it, its status, and what names the place.
FOUND = {
    "a dead unit": ("units.dead", "look", f"L{LAYER} unit {UNIT}"),
    "a duplicated unit": ("units.double", "look", f"L{LAYER} unit {TWIN} = {UNIT}"),
    "units that write nothing": ("units.mute", "look", f"L{LAYER} unit 0"),
    "a silent head": ("heads.silent", "look", f"L{LAYER}H{HEAD}"),
    "uniform heads": ("heads.uniform", "bad", "L0H0"),
    "a uniform head": ("heads.uniform", "look", f"L{LAYER}H{HEAD}"),
    "a head on one token": ("heads.collapsed", "look", f"L{LAYER}H{HEAD}"),
    "a large weight": ("weights.largest", "look", f"h.{LAYER}.mlp.c_proj.weight"),
    "an unusual weight": ("weights.largest", "look", f"h.{LAYER}.mlp.c_proj.weight"),
    "a weight beyond float16": ("weights.largest", "bad", f"h.{LAYER}.mlp.c_proj.weight"),
    "a weight that is NaN": ("weights.finite", "bad", f"h.{LAYER}.mlp.c_proj.weight"),
    "duplicate embeddings": ("embeddings.double", "bad", "token 0"),
    "rank collapse": ("stream.rank", "bad", "resid"),
    "axes that a norm hides": ("norms.flat", "look", f"64 at L{LAYER}.ln2"),
    "a norm that hides all axes": ("norms.flat", "look", f"256 at L{LAYER}.ln1"),
}


@pytest.fixture(scope="module")
def healthy():
    return armillary.load("builtin:gpt", progress=False)


@pytest.fixture(scope="module")
def text(healthy):
    return text_of(healthy, from_any(None), TOKENS, 0)


@pytest.fixture(scope="module")
def health(healthy, text):
    return check_health(healthy, text)


def test_a_healthy_model_is_not_called_bad(health):
    assert health.status == "ok", [line for line in health.lines if line.status != "ok"]
    assert {line.id for line in health.lines} == {"weights.finite", *BY_ID}
    assert all(line.usual and not line.advice for line in health.lines)


def test_the_other_healthy_models_were_not_called_bad():
    """What is stored of all four models passes its own limits."""
    assert set(usual_values()) == {"builtin:gpt", "builtin:llama", "SmolLM2-135M", "MiniLM-L6"}
    for values in usual_values().values():
        for id, check in BY_ID.items():
            value = values[id]
            assert value is None or check.status(value, None) != "bad"


def test_every_injury_is_planted():
    assert set(FOUND) == set(INJURIES)


@pytest.mark.parametrize("what", FOUND)
def test_what_is_planted_is_found_and_named(healthy, text, health, what):
    sick = check_health(read(injured(healthy.model, what)), text)
    id, status, place = FOUND[what]
    assert sick[id].status == status
    assert place in sick[id].where
    assert sick[id].advice
    assert (sick.status == "bad") == ("bad" in [line.status for line in sick.lines])
    if what != "a weight that is NaN":
        compared = against(sick, health)
        assert compared[id].base == health[id].shown


def test_advice_names_what_is_wrong(healthy, text):
    """A weight of 50 is unusual and fits float16; 20,000 is too near its end."""
    for what, warned in (("an unusual weight", False), ("a large weight", True)):
        line = check_health(read(injured(healthy.model, what)), text)["weights.largest"]
        assert ("float16" in line.advice) == warned and line.advice


def test_one_of_thousands_is_not_none():
    assert [BY_ID["units.double"].show(value) for value in (0.0, 1 / 7168, 0.0006)] == ["0.0%", "below 0.1%", "0.1%"]


def test_a_change_for_the_worse_is_looked_at(health):
    worse = tuple(replace(line, value=line.value + 0.01) if line.id == "loss.text" else line for line in health.lines)
    compared = against(replace(health, lines=worse), health)
    assert [line.id for line in compared.lines if line.status == "look"] == ["loss.text"]
    better = tuple(replace(line, value=line.value - 0.01) if line.id == "loss.text" else line for line in health.lines)
    assert against(replace(health, lines=better), health).status == "ok"


def test_rogue_dimensions_do_not_jump_between_layers(healthy, text, health):
    """The widest cone moves to another layer by a hair; the share, which differs from layer to layer, stays."""
    from armillary.readouts.health.checks import _rogue
    from armillary.readouts.health.vitals import measure

    vitals = measure(healthy, text)
    cosine = vitals.cones.cosine.copy()
    order = cosine[0].argsort()
    cosine[0, order[-2]] = cosine[0, order[-1]] * 1.001
    moved = replace(vitals, cones=replace(vitals.cones, cosine=cosine))
    assert _rogue(moved) == _rogue(vitals)
    assert vitals.cones.rogue[0, order[-2]] != vitals.cones.rogue[0, order[-1]]


def test_tokens_are_named_with_their_text(healthy, text):
    sick = replace(read(injured(healthy.model, "duplicate embeddings")), tokenizer=healthy.tokenizer)
    assert re.search(r"token \d+ '", check_health(sick, text)["embeddings.double"].where)


def test_the_loss_is_the_models_own(healthy, text, health):
    """Bits per byte and perplexity by hand, from Hugging Face's own loss."""
    from armillary.probes.machinery.bench import Bench

    nats = count = 0.0
    for window in Bench(healthy, text).text.windows:
        ids = torch.tensor([window.ids])
        with torch.no_grad():
            nats += float(healthy.model(input_ids=ids, labels=ids).loss) * (len(window.ids) - 1)
        count += len(window.ids) - 1
    assert health["loss.text"].value == pytest.approx(nats / count / math.log(healthy.vocabulary), rel=1e-4)
    perplexity = float(re.search(r"perplexity ([\d.,]+)", health["loss.text"].where)[1].replace(",", ""))
    assert perplexity == pytest.approx(math.exp(nats / count), rel=0.01)


def test_text_page_and_json(health, tmp_path):
    shown = str(health)
    assert len(shown.splitlines()) <= 30
    assert all(line.name in shown for line in health.lines)
    page = health.save(tmp_path / "health.html").read_text("utf-8")
    assert "http" not in re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL).replace("http-equiv", "")
    stored = json.loads(health.save(tmp_path / "health.json").read_text("utf-8"))
    assert stored["status"] == "ok" and stored["lines"][0]["status"] in STATUSES
    assert (tmp_path / "health.json").exists() and health.save(tmp_path / "h.csv").read_text("utf-8").startswith(
        "status"
    )


def test_a_pipeline_is_stopped_by_what_is_bad(healthy, tmp_path):
    folder = tmp_path / "sick"
    injured(healthy.model, "a weight beyond float16").save_pretrained(folder)
    healthy.tokenizer.save_pretrained(folder)
    run = CliRunner().invoke(main, ["health", str(folder), "--tokens", "200", "--strict", "--json"])
    assert run.exit_code == 1, run.output
    assert json.loads(run.stdout)["status"] == "bad"
    run = CliRunner().invoke(main, ["health", str(folder), "--tokens", "200"])
    assert run.exit_code == 0
    assert "Too large for float16" in " ".join(run.output.split())


def test_broken_files_are_the_answer_not_a_refusal(healthy, tmp_path):
    """All other commands refuse such a model; here it is what was asked."""
    folder = tmp_path / "sick"
    sick = injured(healthy.model, "a weight that is NaN")
    with torch.no_grad():
        sick.transformer.h[0].ln_1.weight[2] = float("inf")
    sick.save_pretrained(folder)
    healthy.tokenizer.save_pretrained(folder)
    run = CliRunner().invoke(main, ["health", str(folder), "--strict", "--json"])
    assert run.exit_code == 1, run.output
    finite = json.loads(run.stdout)["lines"][0]
    assert (finite["id"], finite["status"], finite["shown"]) == ("weights.finite", "bad", "2 tensors")
    assert "h.0.ln_1.weight" in finite["where"] and f"h.{LAYER}.mlp.c_proj.weight" in finite["where"]
    assert CliRunner().invoke(main, ["health", str(folder)]).exit_code == 0
    assert armillary.health(sick, progress=False).status == "bad"
    run = CliRunner().invoke(main, ["survey", str(folder)])
    assert run.exit_code == 2 and "contains NaN or infinity" in run.output


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_cut_beside_a_base(health, width):
    shown = health_text(against(health, health), width)
    assert "…" not in shown and max(map(len, shown.splitlines())) <= width
    for line in health.lines:
        assert line.usual.replace(" to ", "–") in shown
    assert width < 80 or len(shown.splitlines()) <= 30


def test_what_does_not_apply_is_not_called_ok(health):
    lines = tuple(
        replace(line, value=math.nan, shown="does not apply") if line.id == "loss.text" else line
        for line in health.lines
    )
    without = replace(health, lines=lines)
    assert without.title == "builtin:gpt: nothing to look at in 20 checks"
    assert re.search(r"^–      loss on the text, over a blind guess  –", health_text(without, 80), re.MULTILINE)


def test_massive_activations_are_placed(health):
    where = health["stream.massive"].where
    assert re.fullmatch(r"L\d\.resid_\w+, dimension \d+, first token in \d+% of documents, tokens '.+'", where)


def test_an_unknown_ending_is_refused_before_anything_is_loaded():
    run = CliRunner().invoke(main, ["health", "nowhere", "--out", "h.pdf"])
    assert run.exit_code == 2 and "give a file in .html, .json or .csv" in run.output


def test_the_callback_logs_warns_and_stops(healthy, text, tmp_path):
    rows = torch.tensor([window.ids[:40] for window in text.windows if len(window.ids) >= 40])
    callback = HealthCallback(rows, every=2, log=tmp_path / "health.jsonl", stop=True)
    state = transformers.TrainerState(global_step=2, is_world_process_zero=True, log_history=[])
    control = transformers.TrainerControl()
    callback.on_step_end(None, state, control, model=healthy.model)
    assert not control.should_training_stop
    assert state.log_history[0]["health/units.dead"] < 0.01
    assert callback(1, healthy.model) == {}
    state.global_step = 4
    with (
        pytest.warns(RuntimeWarning, match="step 4: .*NaN"),
        pytest.warns(RuntimeWarning, match="step 4: the training ends here"),
    ):
        callback.on_step_end(None, state, control, model=injured(healthy.model, "a weight that is NaN"))
    assert control.should_training_stop
    assert len((tmp_path / "health.jsonl").read_text().splitlines()) == 2

"""Is a text that was read in parts what one process reads, and is a set of parts that is not whole refused?"""

import json
import random
import shutil

import folders
import pytest
import torch
from command import blank_figures, check_sentence, run

import armillary
from armillary.errors import ArmillaryError, OutputError, TextError
from armillary.flow.documents import sample
from armillary.measures import Measure, Moments, Named, Rows, State
from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.machinery.processes import kept_pass, shards
from armillary.probes.machinery.processes.shards import Shard

# Every shared instrument of the sphere, words and heads; one experiment.
CLAIMS = "sphere.radius,spectrum.two-zeros,sphere.direction,attention.cosine,words.travel"
TEXT = list(sample().texts)[:24]


@pytest.fixture(autouse=True, scope="module")
def small():
    """Batches of a few hundred tokens; two untrained twins, since every arm is divided alike; no pictures."""
    with pytest.MonkeyPatch.context() as patch:
        blank_figures(patch)
        patch.setattr("armillary.flow.controls.TWINS", ((float("inf"), 2),))
        patch.setattr("armillary.flow.tokens.BATCH_TOKENS", 256)
        patch.setattr("armillary.flow.tokens.SEGMENT_TOKENS", 600)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(folders.model_folder("gpt2", tmp_path_factory.mktemp("models") / "gpt2"))


def survey(model, **more):
    settings = {"tokens": 2500, "claims": CLAIMS, "quick": True, "progress": False}
    return armillary.survey(model, more.pop("text", TEXT), **settings | more)


@pytest.fixture(scope="module")
def three(model, tmp_path_factory):
    """The folders of three shards."""
    out = tmp_path_factory.mktemp("shards")
    for number in (1, 2, 3):
        assert len(survey(model, shard=f"{number}/3", out=out / str(number))) == 0
    return [out / str(number) for number in (1, 2, 3)]


def content(folder):
    record = json.loads((folder / "survey.json").read_text())
    del record["times"]
    tables = {path.name: path.read_bytes() for path in (folder / "tables").iterdir()}
    return record, tables


def states_of(monkeypatch, **how):
    """What a survey concludes from, as arrays by arm, instrument and measure."""
    seen = []
    original = armillary.survey_states.gather
    with monkeypatch.context() as patch:
        patch.setattr(armillary.survey_states, "gather", lambda *a, **k: seen.append(original(*a, **k)) or seen[-1])
        survey(**how)
    (evidence,) = seen
    return {
        (arm, instrument.name, *name, key): array
        for instrument, arms in evidence.states.items()
        for arm, state in arms.items()
        for name, measure in measures(state)
        for key, array in readable(measure).items()
    }


def measures(part, name=()):
    """Every measure of a state, by its name."""
    named = part.items() if isinstance(part, Named) else vars(part).items() if isinstance(part, State) else ()
    if not isinstance(part, Named | State):
        yield name, part
    for key, inner in named:
        if isinstance(inner, Measure):
            yield from measures(inner, (*name, key))


def readable(measure):
    """Moments are kept about a shift that depends on the order of sums, and rows come in the order of reading; what is
    read of them does not depend on it."""
    if isinstance(measure, Rows):
        rows = measure.joined().flatten(1)
        return {"rows": torch.tensor(sorted(map(list, rows.tolist())), dtype=rows.dtype)}
    if not isinstance(measure, Moments):
        return measure.arrays()
    if not measure.count:
        return {"count": torch.tensor(0)}
    return {"count": torch.tensor(measure.count), "mean": measure.mean(), "covariance": measure.covariance()}


def test_shards_add_up_to_what_one_process_reads(model, three, monkeypatch):
    whole = states_of(monkeypatch, model=model)
    merged = states_of(monkeypatch, model=model, shards=three)
    assert list(whole) == list(merged)
    assert len(whole) > 500
    worst = 0.0
    for where, array in whole.items():
        other = merged[where]
        assert array.dtype == other.dtype, where
        if array.is_floating_point():
            assert torch.equal(array.isfinite(), other.isfinite()), where
            largest = array.nan_to_num(0, 0, 0).abs().amax() if array.numel() else 0
            apart = (array - other).nan_to_num(0, 0, 0).abs().amax() if array.numel() else 0
            worst = max(worst, float(apart) / (float(largest) or 1))
            assert apart <= 1e-12 * largest, (where, float(apart), float(largest))
        else:
            assert torch.equal(array, other), where
    # The sums are made in another order, and something must show that there are any.
    assert worst > 0


def test_the_order_of_folders_does_not_matter(model, three, tmp_path):
    survey(model, shards=three, out=tmp_path / "a")
    mixed = random.Random(3).sample(three, 3)
    assert mixed != three
    survey(model, shards=mixed, out=tmp_path / "b")
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_verdicts_are_those_of_one_process(model, three):
    whole, merged = survey(model), survey(model, shards=three)
    assert [f.verdict for f in merged] == [f.verdict for f in whole]
    for a, b in zip(whole, merged, strict=True):
        assert b.statistic.value == pytest.approx(a.statistic.value, rel=1e-6, nan_ok=True), a.id
    assert merged.text == whole.text
    assert merged.provenance.arms == whole.provenance.arms


def test_missing_doubled_and_foreign_shards_are_refused_by_name(model, three, tmp_path):
    first, second, third = three
    with pytest.raises(OutputError, match=r"^2/3 is missing; "):
        survey(model, shards=[first, third])
    with pytest.raises(OutputError, match=r"^1/3, 3/3 are missing; "):
        survey(model, shards=[second])
    with pytest.raises(OutputError, match=rf"shard 2/3 is in {second} and {second}; give each shard once"):
        survey(model, shards=[first, second, second, third])
    half = tmp_path / "half"
    survey(model, shard="2/2", out=half)
    with pytest.raises(OutputError, match=rf"{first} is shard 1/3 and {half} is shard 2/2: they divide"):
        survey(model, shards=[first, half])
    for changed, what in (
        ({"seed": 1}, "seed"),
        ({"tokens": 2000}, "text"),
        ({"claims": "sphere.radius"}, "claims"),
        ({"dtype": "bfloat16"}, "model, dtype"),
    ):
        other = tmp_path / what
        survey(model, shard="2/3", out=other, **changed)
        with pytest.raises(OutputError, match=rf"{other} does not belong to {first}: it has another {what}; merge"):
            survey(model, shards=[first, other, third])
    with pytest.raises(OutputError, match="was read from another model, text, seed or version than merge finds now"):
        survey(model, shards=three, text=TEXT[::-1])


def test_folders_that_hold_no_shard(model, three, tmp_path):
    with pytest.raises(OutputError, match="contains no complete shard"):
        survey(model, shards=[tmp_path, *three])
    copy = tmp_path / "copy"
    shutil.copytree(three[0], copy)
    (copy / "shard" / "shard.json").write_text('{"shard": [1, 3]}')
    with pytest.raises(OutputError, match=r"shard\.json is damaged \(ValueError\); read that shard again"):
        survey(model, shards=[copy, *three[1:]])
    shutil.copy(three[0] / "shard" / "shard.json", copy / "shard" / "shard.json")
    states = next(path for path in (copy / "shard").iterdir() if path.suffix == ".safetensors")
    states.write_bytes(states.read_bytes()[:-10])
    with pytest.raises(OutputError, match=r"is damaged .* read that shard again"):
        survey(model, shards=[copy, *three[1:]])
    with pytest.raises(ArmillaryError, match="holds one of the shards; write the survey to another folder"):
        survey(model, shards=three, out=three[1])
    assert shards.read_facts(three[1]).shard == Shard(2, 3)


def test_what_cannot_be_divided_is_refused(model, tmp_path):
    out = tmp_path / "out"
    for asked in ("0/3", "4/3", "1", "a/b", "1/0"):
        with pytest.raises(TextError, match=f"--shard {asked} is not a valid shard; give i/n"):
            survey(model, shard=asked, out=out)
    with pytest.raises(TextError, match=r"make \d+ parts of 600; use at most as many shards"):
        survey(model, shard="1/500", out=out)
    with pytest.raises(TextError, match="read no text, so there is nothing to split"):
        survey(model, shard="1/2", out=out, claims="sphere.ellipsoid")
    with pytest.raises(ArmillaryError, match="pass it as out="):
        survey(model, shard="1/2")
    with pytest.raises(ArmillaryError, match="shard and dask were given; choose one of them"):
        survey(model, shard="1/2", out=out, dask="local:2")


def test_an_instrument_that_raises_in_a_shard_is_lost_to_its_claims_alone(model, tmp_path, monkeypatch):
    claims = "sphere.radius,words.travel"
    with monkeypatch.context() as patch:
        patch.setattr(type(LENGTHS), "start", lambda *a: (_ for _ in ()).throw(ZeroDivisionError("planted")))
        survey(model, shard="1/2", out=tmp_path / "1", claims=claims)
    survey(model, shard="2/2", out=tmp_path / "2", claims=claims)
    result = survey(model, shards=[tmp_path / "1", tmp_path / "2"], claims=claims)
    assert result["sphere.radius"].verdict == "failed"
    assert "planted (shard 1/2)" in result["sphere.radius"].reading
    assert result["words.travel"].verdict != "failed"


def test_a_stopped_shard_goes_on(model, three, tmp_path, monkeypatch):
    class StopError(BaseException):
        pass

    monkeypatch.setattr(kept_pass.KeptPass.__init__, "__defaults__", (0.0,))
    out, keep, calls = tmp_path / "stopped", kept_pass.KeptPass.keep, []

    def counted(*args):
        calls.append(1)
        if len(calls) > 4:
            raise StopError
        keep(*args)

    with monkeypatch.context() as patch:
        patch.setattr(kept_pass.KeptPass, "keep", counted)
        with pytest.raises(StopError):
            survey(model, shard="1/3", out=out)
    with pytest.raises(OutputError, match="contains no complete shard"):
        shards.read_facts(out)
    survey(model, shard="1/3", out=out, resume=True)
    names = sorted(path.name for path in (three[0] / "shard").iterdir())
    assert sorted(path.name for path in (out / "shard").iterdir()) == names
    for name in names:
        assert (out / "shard" / name).read_bytes() == (three[0] / "shard" / name).read_bytes(), name
    assert not (out / "pass").exists()
    # A survey that begins anew in the folder of a shard leaves none.
    survey(model, out=out, claims="sphere.radius")
    assert not (out / "shard").exists()


def test_the_commands(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n---\n".join(TEXT))
    asked = ("survey", model, "--text", text, "--tokens", 2500, "--claims", "sphere.radius,sphere.plane", "--quick")
    for number in (1, 2):
        result = run(*asked, "--shard", f"{number}/2", "--out", tmp_path / str(number))
        assert result.exit_code == 0, result.stderr
        assert f"shard {number}/2 of" in result.stdout
    merged = run("merge", tmp_path / "2", tmp_path / "1", "--out", tmp_path / "merged")
    assert merged.exit_code == 0, merged.stderr
    assert "sphere.plane" in merged.stdout
    whole = run(*asked, "--out", tmp_path / "whole")
    assert whole.exit_code == 0
    ids = [finding.id for finding in armillary.read(tmp_path / "merged")]
    assert ids == [finding.id for finding in armillary.read(tmp_path / "whole")]
    missing = run("merge", tmp_path / "2", "--out", tmp_path / "other")
    assert missing.exit_code == 2
    check_sentence(missing.stderr, "1/2 is missing")
    piped = run("survey", model, "--text", "-", "--shard", "1/2", "--out", tmp_path / "3", input="Some text.")
    check_sentence(piped.stderr, "standard input can be read only once")
    refused = run(*asked, "--shard", "3/2", "--out", tmp_path / "3")
    assert refused.exit_code == 2
    check_sentence(refused.stderr, "--shard 3/2 is not a valid shard")

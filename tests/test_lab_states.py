"""End states of a study are kept, come back, and are read: planted vectors give known numbers."""

import json

import pytest
import torch
from command import refused, run

from armillary import laboratory
from armillary.errors import ArmillaryError, OutputError
from armillary.lab import data
from armillary.lab.study.arm_training import build_arm
from armillary.lab.study.arms import STUDIES, arms_of
from armillary.lab.study.conclusions.outcome import outcome
from armillary.lab.study.design import SIZES
from armillary.lab.study.end_states.state_folders import GEOMETRY, read_geometry, state_path
from armillary.lab.study.end_states.state_geometry import effective_rank, geometry, keep, reading, restore
from armillary.lab.study.queue import Study

SMOKE = SIZES["smoke"]


def test_vectors_on_a_sphere_are_known_by_their_lengths():
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(4000, 8, generator=draws)
    row = reading(x, x / x.norm(dim=-1, keepdim=True))
    assert row["spread after the norm"] == pytest.approx(0, abs=1e-6)
    assert row["spread of lengths"] > 0.2
    # Isotropic: a mean over 4000 pairs whose cosine has a standard deviation of 1/√8.
    assert abs(row["mean cosine"]) < 4 / (8 * 4000) ** 0.5
    assert row["effective rank"] == pytest.approx(8, rel=0.02)
    assert row["top axis"] == pytest.approx(1 / 8, rel=0.1)


def test_a_narrow_cone_and_a_plane_are_seen():
    draws = torch.Generator().manual_seed(2)
    x = torch.randn(2000, 8, generator=draws)
    cone = x + 20
    assert reading(cone, cone)["mean cosine"] > 0.98
    plane = x.clone()
    plane[:, 2:] = 0
    assert effective_rank(plane.double()) == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize(
    ("study", "name"), [("norms", "derf"), ("softheads", "random membership"), ("rank", "6 heads of 4")]
)
def test_an_end_state_comes_back(tmp_path, study, name):
    """Weights, buffers drawn at random, and tied weights, to the precision of float16."""
    arm = next(arm for arm in arms_of(study) if arm.name == name)
    size = SIZES["xs"] if study == "rank" else SMOKE
    model, other = (build_arm(arm, size, seed).eval() for seed in (1, 2))
    keep(model, state_path(tmp_path, name))
    restore(other, state_path(tmp_path, name))
    for (path, ours), theirs in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(ours.half(), theirs.half()), path
    ids = torch.arange(20)[None]
    with torch.no_grad():
        first, second = (each(input_ids=ids, use_cache=False).logits for each in (model, other))
    assert torch.allclose(first, second, atol=0.02 * float(first.abs().max()))


def test_hooks_are_gone_after_reading():
    model = build_arm(arms_of("norms")[0], SMOKE, 0).eval()
    rows = geometry(model, torch.randint(0, SMOKE.vocabulary, (4, SMOKE.context)))
    # LayerNorm at its start has no gain: everything leaves on the sphere.
    assert rows["spread after the norm"] < 1e-2
    assert rows["last length"] > 0
    assert not any(module._forward_hooks for module in model.modules())


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr("armillary.lab.study.design.RATES", (1e-3,))
    chosen = tuple(arm for arm in arms_of("norms") if arm.name in ("layernorm", "dyt", "rmsnorm"))
    monkeypatch.setitem(STUDIES, "norms", chosen)
    Study("norms", "smoke", data.Text.of(laboratory.SAMPLE), tmp_path, 1, "cpu").run()
    return tmp_path


def test_end_states_are_surveyed_and_shown(study):
    assert {path.name for path in (study / "states").iterdir()} == {
        "layernorm.safetensors", "dyt.safetensors", "rmsnorm.safetensors"
    }  # fmt: skip
    shown = run("lab", "show", study, "--survey", "--out", study / "page.html")
    assert shown.exit_code == 0, shown.stderr
    assert "surveyed layernorm" in shown.stderr and "End states" in shown.stdout
    arms = read_geometry(study)
    assert list(arms) == ["layernorm", "rmsnorm", "dyt"]
    assert set(arms["layernorm"].claims) == set(laboratory.STATE_CLAIMS.split(","))
    for state in arms.values():
        assert bool(state.claims) != bool(state.refused), "verdicts, or a reason why there are none"
    assert arms["dyt"].numbers["spread after the norm"] > arms["layernorm"].numbers["spread after the norm"]
    assert "Geometry of the end states" in (study / "page.html").read_text()
    assert json.loads((study / GEOMETRY).read_text()).keys() == arms.keys()
    (study / GEOMETRY).write_text('{"layernorm": 3}')
    with pytest.raises(OutputError, match=r"geometry.json is damaged .* delete it"):
        outcome(study)


def test_without_end_states_there_is_nothing_to_survey(study):
    for path in (study / "states").iterdir():
        path.unlink()
    with pytest.raises(ArmillaryError, match="contains no end states"):
        laboratory.survey_states(study)
    refused("contains no end states; each arm's first paired run writes one", "lab", "show", study, "--survey")

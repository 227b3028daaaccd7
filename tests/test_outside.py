"""A package that is installed from a folder adds a probe, an instrument and a family, and mistakes in it are named."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import folders
import pytest
import torch

import armillary
from armillary import probes
from armillary.errors import ArmillaryError
from armillary.probes.machinery.probe import judge
from armillary.probes.machinery.shared_pass import gather
from armillary.specimens.models.bag import VOCABULARY, D, bag, gaussian
from armillary.specimens.models.texts import corpus

FOLDER = Path(__file__).parent / "outside"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Where pip has put the package."""
    target = tmp_path_factory.mktemp("site")
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-q"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, FOLDER], check=True)
    return target


# One process does what several commands would: to start one takes longer than most of them.
COMMANDS = """
import json, sys
from command import works
from armillary.anatomy.families import family_of
model, out = sys.argv[1:]
said = {name: works("claims", *name.split()).stdout for name in ("", "outside.kurtosis", "sphere.radius")}
chosen = "sphere.radius,outside.kurtosis"
said["survey"] = works("survey", model, "--claims", chosen, "--quick", "--out", out).stdout
said["family"] = family_of("twin_llama").model_type
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def outputs(installed, tmp_path_factory):
    """What commands print where the package is installed, and the folder of a survey."""
    model = folders.model_folder("gpt2", tmp_path_factory.mktemp("model") / "gpt2")
    out = tmp_path_factory.mktemp("survey")
    paths = [str(installed), str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    words = [sys.executable, "-c", COMMANDS, str(model), str(out)]
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "out": out}


def test_its_claim_is_listed_with_where_it_comes_from(outputs):
    assert "outside.kurtosis" in outputs[""]
    assert "armillary-outside" in outputs[""]
    assert "armillary-outside" in outputs["outside.kurtosis"]
    assert "armillary-outside" not in outputs["sphere.radius"]


def test_its_claim_is_measured_beside_ours(outputs):
    assert "outside.kurtosis" in outputs["survey"]
    survey = armillary.read(outputs["out"])
    assert survey["sphere.radius"].verdict == "supported"
    assert survey["outside.kurtosis"].verdict in ("supported", "refuted")


def test_its_family_is_known(outputs):
    assert outputs["family"] == "twin_llama"


@pytest.fixture
def probe(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from armillary_outside.kurtosis import PROBE

    return PROBE


def heavy(seed=0):
    """Embeddings whose coordinates are Laplacian: kurtosis 6 before the norm, a little less after it."""
    draw = torch.distributions.Laplace(0.0, 1.0)
    torch.manual_seed(seed)
    return draw.sample((VOCABULARY, D))


@pytest.mark.parametrize(("embedding", "verdict"), [(heavy(), "supported"), (gaussian(), "refuted")])
def test_the_planted_truth_comes_back(probe, embedding, verdict):
    evidence = gather(bag(embedding), corpus(), probe.instruments)
    assert judge(probe, evidence).verdict == verdict


class Point:
    """An entry point as importlib.metadata gives it."""

    def __init__(self, load):
        self.load, self.name, self.value, self.dist = load, "p", "package:PROBE", None


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: 1 / 0, "cannot be loaded .ZeroDivisionError"),
        (lambda: 3, "as a probe; a probe is an object with"),
        (lambda: type(probes.PROBES[0]), "as a probe; a probe is an object with"),
        (lambda: SimpleNamespace(claim=probes.PROBES[0].claim), "as a probe; a probe is an object with"),
        (lambda: probes.PROBES[0], "sphere.radius, which armillary has already"),
    ],
)
def test_a_mistake_in_an_outside_package_is_named(monkeypatch, load, message):
    probes.outside.cache_clear()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Point(load)])
    with pytest.raises(ArmillaryError, match=message):
        probes.choose("all")
    probes.outside.cache_clear()

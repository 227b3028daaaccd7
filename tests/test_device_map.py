"""What of models that accelerate has spread over devices? Those in one memory are measured, others refused."""

import folders
import pytest
import torch
import transformers
from tiny import tiny
from torch import nn

import armillary
from armillary.anatomy.loading.load import _check_whole
from armillary.errors import ModelError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folders.model_folder("gpt2", tmp_path_factory.mktemp("models") / "gpt2")


def test_a_device_map_that_fits_is_no_obstacle(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, device_map="auto").eval()
    anatomy = armillary.load(model, progress=False)
    plain = armillary.load(str(folder), progress=False)
    assert anatomy.provenance["fingerprint"] == plain.provenance["fingerprint"]
    assert [law.name for law in anatomy.laws] == [law.name for law in plain.laws]


def test_offloaded_weights_are_refused_in_a_sentence(folder, tmp_path):
    parts = {name: "cpu" for name, _ in tiny("gpt2").transformer.named_children()}
    device_map = {f"transformer.{name}": where for name, where in parts.items()}
    device_map |= {"transformer.h": "disk", "lm_head": "cpu"}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, device_map=device_map, offload_folder=tmp_path)
    with pytest.raises(ModelError, match=r"parts of this model are offloaded \(device_map: cpu, disk\)"):
        armillary.load(model, progress=False)
    with pytest.raises(ModelError, match="load it whole on one device, without offload"):
        armillary.survey(model, ["Some text."], claims="sphere.radius", progress=False)


def test_weights_on_several_devices_are_refused(monkeypatch):
    class Elsewhere(nn.Module):
        def parameters(self, recurse=True):
            return iter([torch.zeros(1), _Far(), _Far()])

    class _Far:
        device = torch.device("cuda", 1)

    with pytest.raises(ModelError, match="the weights of Elsewhere are spread over cpu, cuda:1"):
        _check_whole(Elsewhere())

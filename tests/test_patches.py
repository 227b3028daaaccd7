"""Largest activations on images: a planted one is found at its patch, and without it there is none."""

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from tiny_senses import SENSES

from armillary.anatomy.read import read
from armillary.cli import main
from armillary.errors import ModelError
from armillary.flow.media.sources import media_of
from armillary.readouts.patch_maps import patch_maps
from armillary.specimens.models.perturbed import perturbed
from armillary.views.figures.patch_maps import patch_page


def _images() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.3, 0.7, (24, 24, 3)).astype(np.float32) for _ in range(4)]


def _planted(strength: float):
    """A ViT whose projection answers to one colour, which one patch of every image has, in coordinate 5."""
    model = perturbed(SENSES["vit"])
    with torch.no_grad():
        weight = model.vit.embeddings.patch_embeddings.projection.weight
        weight[5] = 0
        weight[5, 0], weight[5, 1] = strength, -strength
    return read(model)


@pytest.mark.parametrize("place", [(0, 0), (2, 4), (5, 1)])
def test_a_planted_activation_is_found_at_its_patch(place):
    images = _images()
    for image in images:
        # Red without green, in one patch of four by four pixels.
        image[...] = image.mean(-1, keepdims=True)
        image[4 * place[0] : 4 * place[0] + 4, 4 * place[1] : 4 * place[1] + 4] = (1, 0, 0.5)
    maps = patch_maps(_planted(100.0), media_of(images), 4)
    assert all(maps.name(int(np.argmax(ratios))) == f"row {place[0]}, column {place[1]}" for ratios in maps.ratios)
    assert maps.ratios.max() > 1000
    page = patch_page(maps)
    assert page.count("stroke-width='4'") == 4
    assert "<script" not in page
    none = patch_maps(_planted(0.0), media_of(images), 4)
    assert none.ratios.max() < 100
    assert "stroke-width='4'" not in patch_page(none)


def test_pictures_come_back_from_their_patches():
    images = _images()
    maps = patch_maps(_planted(0.0), media_of(images), 4)
    image = images[2]
    shown = (image - image.min()) / (image.max() - image.min()) * 255
    assert np.abs(maps.pictures[2] - shown).max() <= 1
    assert maps.own == 1
    assert maps.name(0) == "class token"


def test_only_models_of_images_have_maps():
    with pytest.raises(ModelError, match="reads text"):
        patch_maps(read(perturbed(SENSES["clip_text_model"])), media_of(_images()), 2)


def test_the_command_writes_a_page(tmp_path):
    perturbed(SENSES["dinov2_with_registers"]).save_pretrained(tmp_path / "model")
    out = tmp_path / "maps.html"
    result = CliRunner().invoke(main, ["patches", str(tmp_path / "model"), "--number", "2", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert result.output.count("image 1") == 3
    assert out.read_text("utf-8").count("<figure>") == 2
    refused = CliRunner().invoke(main, ["patches", str(tmp_path / "model"), "--out", "a.png"])
    assert "ends in '.png'" in refused.output

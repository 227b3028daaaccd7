"""Images and sound: the sample, folders, tables, and a survey of a model that reads images."""

import os
import wave
from pathlib import Path

import numpy as np
import pytest
from tiny_senses import SENSES

import armillary
from armillary.anatomy.read import read
from armillary.errors import TextError
from armillary.flow.media.corpus import media_corpus, suited
from armillary.flow.media.sample import sample_images, sample_sound
from armillary.flow.media.sources import from_folder, media_of, read_wave, resampled
from armillary.specimens.models.perturbed import perturbed


@pytest.fixture
def vit():
    return read(perturbed(SENSES["vit"]))


def test_the_sample_is_original_the_same_and_varied():
    images, again = list(sample_images().items), list(sample_images().items)
    assert len(images) == 48
    assert all(np.array_equal(a, b) for a, b in zip(images, again, strict=True))
    assert all(image.shape == (224, 224, 3) and image.min() >= 0 and image.max() <= 1 for image in images)
    means = np.array([image.mean((0, 1)) for image in images])
    assert len(np.unique(means.round(3), axis=0)) == 48
    assert min(image.std() for image in images) > 0.03
    clip = next(iter(sample_sound().items))
    assert clip.shape == (30 * 16_000,)
    assert 0.01 < clip.std() < 1


def test_patches_of_an_image_become_the_tokens_of_a_document(vit):
    images = [np.full((24, 24, 3), level, dtype=np.float32) for level in (0.0, 0.5, 1.0)]
    anatomy, corpus = media_corpus(vit, media_of(images), 10_000)
    assert corpus.documents == 3
    assert corpus.tokens == 3 * 37
    assert corpus.windows[0].ids[0] == 0
    assert corpus.windows[0].prefix == 1
    # 0 to 1 becomes −1 to 1.
    assert anatomy.signal.table.min() == -1
    assert anatomy.signal.table.max() == 1
    assert not anatomy.signal.table[36:72].any()
    shuffled = corpus.shuffled(0).windows[2]
    assert shuffled.ids[0] == 0
    assert sorted(shuffled.ids) == sorted(corpus.windows[2].ids)
    assert corpus.thinned(1, 2).windows[0].ids == corpus.windows[0].ids


def test_an_image_is_scaled_and_cut_in_the_middle(vit):
    wide = np.zeros((48, 96, 3), dtype=np.float32)
    wide[:, 24:72] = 1
    anatomy, _ = media_corpus(vit, media_of([wide]), 37)
    inner = anatomy.signal.table.reshape(36, 3, 4, 4)
    assert inner[8].min() > 0.9


def test_folders_of_images_and_sound(tmp_path):
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", np.full((8, 8), i * 60, dtype=np.uint8))
    means = [float(image.mean()) for image in from_folder(tmp_path, "images").items]
    assert means == pytest.approx([0, 60 / 255, 120 / 255], rel=1e-6)
    assert media_of(str(tmp_path)).sense == "images"
    with pytest.raises(TextError, match="holds no sound"):
        from_folder(tmp_path, "sound")
    with pytest.raises(TextError, match="no folder or file"):
        from_folder(tmp_path / "none", "images")
    assert media_of("a plain text") is None
    assert media_of(["a", "list of texts"]) is None


@pytest.mark.parametrize(("width", "channels"), [(1, 1), (2, 1), (2, 2), (3, 1), (4, 2)])
def test_waves_of_every_width_are_read(tmp_path, width, channels):
    samples = 0.5 * np.sin(np.arange(800) / 5)
    levels = np.round(samples * ((1 << (8 * width - 1)) - 1)).astype(np.int64) + (128 if width == 1 else 0)
    data = b"".join(int(v).to_bytes(width, "little", signed=width > 1) * channels for v in levels)
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((channels, width, 8000, 0, "NONE", ""))
        file.writeframes(data)
    read_back = read_wave(tmp_path / "a.wav")
    assert len(read_back) == 1600
    assert np.abs(read_back[::2] - samples).max() < 2 / (1 << (8 * width - 1)) + 1e-6


def test_resampling_keeps_the_pitch():
    tone = np.sin(2 * np.pi * 440 * np.arange(44_100) / 44_100).astype(np.float32)
    spectrum = np.abs(np.fft.rfft(resampled(tone, 44_100)))
    assert abs(int(spectrum.argmax()) - 440) <= 1


def test_a_column_of_images_is_found():
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"label": [1, 2]}).with_format("numpy")
    assert media_of(rows) is None
    images = [{"img": np.zeros((4, 4, 3)), "label": 1}] * 2
    import pandas as pd

    media = media_of(pd.DataFrame(images))
    assert media.sense == "images"
    assert media.notes == ("column 'img'",)
    assert len(list(media.items)) == 2


def test_a_model_of_images_refuses_text_and_takes_the_sample_otherwise(vit):
    from armillary.flow.documents import sample

    assert suited(vit, sample(), chosen=False).source == "built-in images"
    with pytest.raises(TextError, match=r"reads images, but text was given; use --images DIR"):
        suited(vit, sample(), chosen=True)


def test_a_survey_of_a_vision_model_in_one_call(vit):
    survey = armillary.survey(vit, claims="sphere.radius,words.travel,stability.drift,others.straight,attention.cosine",
                              quick=True, progress=False)  # fmt: skip
    assert survey["sphere.radius"].verdict == "supported"
    assert survey["attention.cosine"].why is None
    assert survey.text.source == "built-in images"
    assert survey.text.documents == 12
    for name in ("words.travel", "stability.drift", "others.straight"):
        assert survey[name].why.name == "NOT_APPLICABLE"


@pytest.mark.parametrize("name", ["vit", "convnext", "armillary_mixer", "whisper.encoder"])
def test_no_claim_fails_on_a_model_that_reads_no_text(name, monkeypatch):
    """Claims that experiment with lengths, positions and sublayers say that they do not apply, or run."""
    from armillary.probes.instruments import patterns

    # Images of the tiny models have fewer tokens than a text of patterns: shorten that, so that they would be cut.
    monkeypatch.setattr(patterns, "LENGTH", 16)
    monkeypatch.setattr(patterns.texts, "__defaults__", (16,))
    claims = "cycle.isotropy,stability.positions,others.massive,others.collapse,others.linear,heads.specialise"
    survey = armillary.survey(read(perturbed(SENSES[name])), claims=claims, quick=True, progress=False)
    assert [finding.id for finding in survey if finding.verdict == "failed"] == []


@pytest.mark.parametrize("name", ["a.png", "a.npy", "a.wav"])
@pytest.mark.parametrize("how", ["pipe", "device", "missing", "folder", "empty", "noise"])
def test_what_is_no_image_or_sound_is_said(tmp_path, name, how):
    """Nothing but regular files is opened: a pipe would wait for ever."""
    path = tmp_path / name
    make = {"pipe": os.mkfifo, "device": lambda p: p.symlink_to("/dev/zero"), "missing": lambda p: p.symlink_to("no"),
            "folder": Path.mkdir, "empty": Path.touch, "noise": lambda p: p.write_bytes(bytes(range(200)))}  # fmt: skip
    make[how](path)
    message = r"a\.\w+ is not (an image|a \.wav file|a regular file)|holds no (images|sound) that can be read"
    with pytest.raises(TextError, match=message):
        list(from_folder(tmp_path, "sound" if name == "a.wav" else "images").items)


def test_objects_in_an_array_are_not_loaded(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"x": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(TextError, match="not an image that can be read"):
        list(from_folder(tmp_path, "images").items)

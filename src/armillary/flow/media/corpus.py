"""How do images and clips become the tokens a model reads? Each is cut into the model's patches or frames, all patches
are the rows of one table, and a window names its rows."""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from armillary.anatomy import Anatomy
from armillary.anatomy.entries.signal import Signal, with_table
from armillary.errors import TextError
from armillary.flow.documents import Documents
from armillary.flow.media.sample import sample_images, sample_sound
from armillary.flow.media.sources import Array, Media, some
from armillary.flow.tokens import SPAN, Corpus, Window
from armillary.results.disk import schema as s
from armillary.results.disk.files import read_json

# What Hugging Face's processors take where a model says nothing: values from −1 to 1.
MEAN = STD = (0.5, 0.5, 0.5)
_COLOURS = s.listed(s.number())
_SPREADS = s.listed(s.number(1e-6))
_PREPARED = s.record(
    {},
    {
        "image_mean": s.optional(_COLOURS),
        "image_std": s.optional(_SPREADS),
        "do_normalize": s.optional(s.flag),
        **dict.fromkeys(("n_fft", "hop_length"), s.whole(1)),
    },
    closed=False,
)
WHAT = {"images": "--images DIR", "sound": "--audio DIR", "text": "--text PATH"}


def suited(anatomy: Anatomy, given: Documents | Media, chosen: bool) -> Documents | Media:
    """What the model can read: what was given, or the sample for it where nothing was `chosen`."""
    sense = given.sense if isinstance(given, Media) else "text"
    if sense == anatomy.reads:
        return given
    if chosen:
        raise TextError(f"{anatomy.name} reads {anatomy.reads}, but {sense} was given; use {WHAT[anatomy.reads]}.")
    return sample_images() if anatomy.reads == "images" else sample_sound()


def budget_of(anatomy: Anatomy, quick: bool) -> int:
    """How many tokens are read unless a number is asked for: as many images or clips as intervals need."""
    assert anatomy.signal is not None
    return (SPAN // 2 if quick else SPAN) * anatomy.signal.tokens


def media_corpus(anatomy: Anatomy, media: Media, tokens: int) -> tuple[Anatomy, Corpus]:
    """The model with the patches of these images or clips as its table, and the corpus that names them."""
    signal = anatomy.signal
    assert signal is not None
    number = max(1, tokens // signal.tokens)
    items = some(media, number)
    home, frames = home_of(anatomy), signal.grid[1] * signal.patch[1]
    prepare = _Images(signal, home) if signal.sense == "images" else _Sounds(signal.channels, frames, home)
    rows = torch.cat([signal.rows(prepare(item)[None]) for item in items])
    documents, count, width = rows.shape
    anatomy = with_table(anatomy, rows.reshape(-1, width))
    ids = signal.ids(torch.arange(documents * count).reshape(documents, count))
    windows = tuple(Window(i, tuple(row), signal.prefix) for i, row in enumerate(ids.tolist()))
    unit = "patches" if signal.sense == "images" else "frames"
    notes = (
        f"one document is one {'image' if signal.sense == 'images' else 'clip'} of {count} {unit}"
        + (f" behind {signal.prefix} tokens of the model's own" if signal.prefix else ""),
        *media.notes,
        *prepare.notes,
    )
    return anatomy, Corpus(windows, media.source, documents, documents * signal.tokens, notes, whole=True)


def spectrum(media: Media, like: Tensor, home: Path) -> Tensor:
    """The first clip as a spectrum shaped `like` [1, bands, frames]."""
    clip = next(iter(some(media, 1)))
    return _Sounds(like.shape[1], like.shape[2], home)(clip)[None, :, 0]


def home_of(anatomy: Anatomy) -> Path:
    """The folder of a model, where it came from one."""
    from armillary.anatomy.loading.load import split_part

    return Path(split_part(str(anatomy.provenance.get("source", "")))[0])


def _processor(home: Path) -> dict[str, Any]:
    """What a model's folder says about how its input is prepared."""
    path = home / "preprocessor_config.json"
    if not os.path.lexists(path):
        return {}
    try:
        settings: dict[str, Any] = read_json(path)
        _PREPARED(settings, "")
    except (OSError, ValueError) as error:
        raise TextError(f"{path} is damaged ({error}); fetch the model again.") from error
    return settings


class _Images:
    """Images in the model's size, with the mean and the spread of colours that it expects."""

    def __init__(self, signal: Signal, home: Path) -> None:
        self.size = (signal.grid[0] * signal.patch[0], signal.grid[1] * signal.patch[1])
        self.channels = signal.channels
        settings = _processor(home)
        mean, std = settings.get("image_mean") or MEAN, settings.get("image_std") or STD
        if settings.get("do_normalize") is False:
            mean, std = (0.0,) * 3, (1.0,) * 3
        if min(len(mean), len(std)) < self.channels:
            raise TextError(
                f"preprocessor_config.json in {home} has {min(len(mean), len(std))} colour channels, but the model has "
                f"{self.channels}; fetch the model again."
            )
        self.mean, self.std = (torch.tensor(v[: self.channels]).view(-1, 1, 1) for v in (mean, std))
        named = "as its preprocessor_config.json says" if settings else "by default: it names no other"
        self.notes = (f"scaled to {self.size[0]} × {self.size[1]}, cut in the middle; colours normalised {named}",)

    def __call__(self, image: Array) -> Tensor:
        pixels = torch.from_numpy(image).permute(2, 0, 1)
        if len(pixels) != self.channels:
            pixels = pixels.mean(0, keepdim=True).expand(self.channels, -1, -1)
        tall, wide = pixels.shape[1:]
        factor = max(self.size[0] / tall, self.size[1] / wide)
        scaled = (max(self.size[0], round(tall * factor)), max(self.size[1], round(wide * factor)))
        if scaled != (tall, wide):
            resized = functional.interpolate(pixels[None], scaled, mode="bilinear", antialias=True)
            pixels = resized[0]
        top, left = ((have - want) // 2 for have, want in zip(scaled, self.size, strict=True))
        return (pixels[:, top : top + self.size[0], left : left + self.size[1]] - self.mean) / self.std


class _Sounds:
    """Clips as logarithmic mel spectra, by Hugging Face's own extractor, as long as the model's context."""

    def __init__(self, bands: int, frames: int, home: Path) -> None:
        from transformers import WhisperFeatureExtractor

        self.frames = frames
        seconds = -(-self.frames // 100)
        settings = {name: value for name, value in _processor(home).items() if name in ("n_fft", "hop_length")}
        self.extract = WhisperFeatureExtractor(feature_size=bands, chunk_length=seconds, **settings)
        self.notes = (f"the first {self.frames / 100:g} s of each clip, with silence behind shorter ones",)

    def __call__(self, samples: Array) -> Tensor:
        spectra = self.extract(samples, sampling_rate=16_000, return_tensors="np")["input_features"][0]
        return torch.from_numpy(spectra[:, : self.frames])[:, None]

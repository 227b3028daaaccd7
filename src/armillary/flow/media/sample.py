"""Original images and clips, made by code: the same everywhere, and stored nowhere.

Images are shapes on grounds, textures and gradients, so that most patches of an image differ and some are plain. Clips
are tones, glides, beats, pulses and filtered noise, with silences between them.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from armillary.flow.media.sources import RATE, Array, Media

NUMBER = 48
SIDE = 224
SECONDS = 30
Plane = NDArray[np.float64]


def sample_images() -> Media:
    """Images of 224 by 224 pixels."""
    return Media("images", "built-in images", tuple(_image(i) for i in range(NUMBER)))


def sample_sound() -> Media:
    """Clips of half a minute."""
    return Media("sound", "built-in sound", tuple(_clip(i) for i in range(NUMBER // 2)))


def _image(number: int) -> Array:
    rng = np.random.default_rng([17, number])
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    turn = rng.uniform(0, 2 * np.pi)
    across = np.cos(turn) * x + np.sin(turn) * y
    image = _colour(rng) + (_colour(rng) - _colour(rng)) * across[..., None]
    image = image + 0.25 * TEXTURES[number % len(TEXTURES)](rng, x, y)[..., None] * _colour(rng)
    for _ in range(int(rng.integers(2, 7))):
        inside = SHAPES[int(rng.integers(len(SHAPES)))](rng, x, y)
        image = np.where(inside[..., None], _colour(rng) * rng.uniform(0.6, 1.1), image)
    return np.clip(image + 0.02 * rng.standard_normal(image.shape), 0, 1).astype(np.float32)


def _colour(rng: np.random.Generator) -> Plane:
    return rng.uniform(0, 1, 3)


def _stripes(rng: np.random.Generator, x: Plane, y: Plane) -> Plane:
    a, b = rng.uniform(-60, 60, 2)
    return np.sin(a * x + b * y)


def _checks(rng: np.random.Generator, x: Plane, y: Plane) -> Plane:
    n = rng.integers(4, 20)
    return np.sign(np.sin(n * np.pi * x) * np.sin(n * np.pi * y))


def _rings(rng: np.random.Generator, x: Plane, y: Plane) -> Plane:
    a, b = rng.uniform(0, 1, 2)
    return np.cos(rng.uniform(20, 80) * np.hypot(x - a, y - b))


def _clouds(rng: np.random.Generator, x: Plane, y: Plane) -> Plane:
    total = np.zeros_like(x)
    for octave in range(1, 6):
        a, b, phase = rng.uniform(-1, 1), rng.uniform(-1, 1), rng.uniform(0, 2 * np.pi)
        total += np.sin(2**octave * np.pi * (a * x + b * y) + phase + total) / octave
    return total / 2


def _grain(rng: np.random.Generator, x: Plane, y: Plane) -> Plane:
    cell = int(rng.integers(2, 12))
    coarse = rng.standard_normal((SIDE // cell + 1, SIDE // cell + 1))
    return np.kron(coarse, np.ones((cell, cell)))[:SIDE, :SIDE] / 2


def _disc(rng: np.random.Generator, x: Plane, y: Plane) -> NDArray[np.bool_]:
    a, b, r = rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9), rng.uniform(0.05, 0.25)
    return np.hypot(x - a, (y - b) * rng.uniform(0.6, 1.6)) < r


def _box(rng: np.random.Generator, x: Plane, y: Plane) -> NDArray[np.bool_]:
    a, b, turn = rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9), rng.uniform(0, np.pi)
    u, v = (x - a) * np.cos(turn) + (y - b) * np.sin(turn), (y - b) * np.cos(turn) - (x - a) * np.sin(turn)
    return (np.abs(u) < rng.uniform(0.04, 0.25)) & (np.abs(v) < rng.uniform(0.04, 0.25))


def _triangle(rng: np.random.Generator, x: Plane, y: Plane) -> NDArray[np.bool_]:
    a, b, size = rng.uniform(0.2, 0.8), rng.uniform(0.2, 0.8), rng.uniform(0.08, 0.3)
    inside = np.ones_like(x, dtype=bool)
    for turn in rng.uniform(0, 2 * np.pi) + np.arange(3) * 2 * np.pi / 3:
        inside &= (x - a) * np.cos(turn) + (y - b) * np.sin(turn) < size / 2
    return inside


TEXTURES: tuple[Callable[[np.random.Generator, Plane, Plane], Plane], ...] = (
    _stripes,
    _checks,
    _rings,
    _clouds,
    _grain,
)
SHAPES: tuple[Callable[[np.random.Generator, Plane, Plane], NDArray[np.bool_]], ...] = (_disc, _box, _triangle)


def _clip(number: int) -> Array:
    rng = np.random.default_rng([18, number])
    parts: list[Plane] = []
    while sum(map(len, parts)) < SECONDS * RATE:
        time = np.arange(int(rng.uniform(0.2, 1.5) * RATE)) / RATE
        sound = VOICES[int(rng.integers(len(VOICES)))](rng, time)
        envelope = np.minimum(1, 20 * np.minimum(time, time[-1] - time))
        parts += [rng.uniform(0.1, 0.5) * sound * envelope, np.zeros(int(rng.uniform(0, 0.4) * RATE))]
    return np.concatenate(parts)[: SECONDS * RATE].astype(np.float32)


def _tone(rng: np.random.Generator, time: Plane) -> Plane:
    pitch = rng.uniform(80, 900)
    return sum((np.sin(2 * np.pi * pitch * n * time) / n**1.3 for n in range(1, 9)), np.zeros_like(time)) / 2


def _glide(rng: np.random.Generator, time: Plane) -> Plane:
    start, end = rng.uniform(100, 2500, 2)
    return np.sin(2 * np.pi * np.cumsum(np.linspace(start, end, len(time))) / RATE)


def _beats(rng: np.random.Generator, time: Plane) -> Plane:
    pitch = rng.uniform(150, 1500)
    return (np.sin(2 * np.pi * pitch * time) + np.sin(2 * np.pi * (pitch + rng.uniform(2, 20)) * time)) / 2


def _pulses(rng: np.random.Generator, time: Plane) -> Plane:
    return np.exp(-40 * np.mod(time * rng.uniform(2, 12), 1)) * np.sin(2 * np.pi * rng.uniform(200, 3000) * time)


def _noise(rng: np.random.Generator, time: Plane) -> Plane:
    spectrum = np.fft.rfft(rng.standard_normal(len(time)))
    pitch = np.fft.rfftfreq(len(time), 1 / RATE)
    band = np.exp(-(((pitch - rng.uniform(300, 4000)) / rng.uniform(100, 1500)) ** 2))
    shaped = np.fft.irfft(spectrum * band, len(time))
    return shaped / max(1e-9, float(np.abs(shaped).max()))


VOICES: tuple[Callable[[np.random.Generator, Plane], Plane], ...] = (_tone, _glide, _beats, _pulses, _noise)

"""Where do images and clips come from? A folder, a column of a table, arrays, or the sample.

One image or clip is one document. Images are arrays [height, width, channels] from 0 to 1, clips are arrays of samples
from −1 to 1 at 16 kHz.
"""

import io
import warnings
import wave
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from armillary.errors import TextError
from armillary.flow.sources.columns import table_rows
from armillary.flow.sources.text_files import Lazy, files_in
from armillary.results.disk.files import in_kernel, read_bytes

Array = NDArray[np.float32]
IMAGES = (".png", ".jpg", ".jpeg", ".npy", ".webp", ".bmp")
SOUND = (".wav",)
RATE = 16_000
# Samples per second of a clip that somebody recorded; a header may say anything, and memory is taken by it.
RATES = (1_000, 1_000_000)
# What is opened, whatever a file's name says: for some others PIL starts another program.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
# How far a value may lie outside 0 to 1.
ROOM = 0.1


@dataclass(frozen=True)
class Media:
    """Images or clips with the name of where they came from."""

    sense: Literal["images", "sound"]
    source: str
    items: Iterable[Array]
    notes: tuple[str, ...] = ()


def from_folder(path: str | Path, sense: Literal["images", "sound"]) -> Media:
    """One document per file of a folder, in the order of their names; or one file."""
    path, endings = Path(path), IMAGES if sense == "images" else SOUND
    if not path.exists():
        raise TextError(f"there is no folder or file at {path}; pass a folder of {', '.join(endings)}.")
    files = files_in(path, endings) if path.is_dir() else [path]
    if not files or not all(file.suffix.lower() in endings for file in files):
        raise TextError(f"{path} holds no {sense} that can be read ({', '.join(endings)}).")
    read = read_image if sense == "images" else read_wave
    return Media(sense, str(path), Lazy(lambda: map(read, files)))


def from_table(table: Any, column: str, sense: Literal["images", "sound"]) -> Media:
    """One document per row of a `datasets` or pandas object."""
    named_rows = table_rows(table)
    if named_rows is None:
        raise TextError(f"{sense} must come as a folder, a list of arrays, or a datasets or pandas object.")
    rows, source = named_rows
    first = next(iter(rows()), None)
    if first is None:
        raise TextError(f"{source} has no rows; pass one that has.")
    usual = [column] if column else ["image", "img", "audio", "sound", *first]
    convert = image_of if sense == "images" else sound_of
    chosen = next((name for name in usual if name in first and convert(first[name]) is not None), None)
    if chosen is not None:
        return Media(sense, source, Lazy(lambda: _converted(rows, chosen, convert)), (f"column {chosen!r}",))
    named = f"column {column!r}" if column else "no column"
    raise TextError(f"{named} of {source} holds {sense}; its columns are {', '.join(map(repr, first))}.")


def from_arrays(arrays: Iterable[Any], sense: Literal["images", "sound"]) -> Media:
    """Images or clips that are already in memory."""
    convert = image_of if sense == "images" else sound_of
    items = [convert(array) for array in arrays]
    readable = [item for item in items if item is not None]
    if not readable or len(readable) < len(items):
        raise TextError(f"{len(items) - len(readable)} of {len(items)} arrays are no {sense}.")
    return Media(sense, f"{len(readable)} {'images' if sense == 'images' else 'clips'} given", tuple(readable))


def _converted(
    rows: Callable[[], Iterable[Mapping[str, Any]]], name: str, convert: Callable[[Any], Array | None]
) -> Iterator[Array]:
    for number, row in enumerate(rows(), 1):
        item = convert(row[name])
        if item is None:
            raise TextError(f"row {number} has nothing that can be read under {name!r}.")
        yield item


def image_of(value: Any) -> Array | None:
    """An image as [height, width, channels] from 0 to 1: from an array or a PIL image; None of anything else."""
    if type(value).__module__.partition(".")[0] == "PIL":
        value = _painted(value)
    if not isinstance(value, np.ndarray) or value.ndim not in (2, 3) or min(value.shape) < 1:
        return None
    image = value[..., None] if value.ndim == 2 else value
    if image.shape[-1] not in (1, 3, 4) and image.shape[0] in (1, 3, 4):
        image = image.transpose(1, 2, 0)
    if image.shape[-1] not in (1, 3, 4):
        return None
    return np.ascontiguousarray(_scaled(image)[..., :3], dtype=np.float32)


def _scaled(image: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """From 0 to 1. Of a wide integer or a large float nobody knows what white is."""
    if image.dtype in (np.uint8, np.uint16):
        return image / np.iinfo(image.dtype).max
    if not (np.issubdtype(image.dtype, np.floating) or image.dtype == np.bool_):
        raise TextError(f"an image has the dtype {image.dtype}; give uint8 or uint16, or floats from 0 to 1.")
    scaled = image.astype(np.float64)
    if not np.isfinite(scaled).all():
        raise TextError("an image contains NaN or infinity.")
    # Rounding and ringing may lead a little outside.
    if scaled.min() < -ROOM or scaled.max() > 1 + ROOM:
        raise TextError(f"an image has values from {scaled.min():g} to {scaled.max():g}; give floats from 0 to 1.")
    return scaled


def _painted(image: Any) -> "np.ndarray[Any, Any]":
    """A PIL image's colours; its own conversion makes everything white that has more than eight bits."""
    if image.mode.startswith(("I", "F")):
        deep = np.asarray(image)
        if image.mode == "F" or deep.min() < 0 or deep.max() > np.iinfo(np.uint16).max:
            raise TextError(f"an image has the mode {image.mode}, whose white level is unknown; save it with 8 bits.")
        return deep.astype(np.uint16)
    return np.asarray(image.convert("RGB"))


def sound_of(value: Any) -> Array | None:
    """A clip at 16 kHz: from samples at that rate, or from a row {'array', 'sampling_rate'}; None of anything else."""
    rate = RATE
    if isinstance(value, Mapping) and "array" in value:
        value, rate = np.asarray(value["array"]), int(value.get("sampling_rate", RATE))
    if not isinstance(value, np.ndarray) or value.ndim != 1 or not len(value):
        return None
    return resampled(value.astype(np.float32), rate)


def read_image(path: Path) -> Array:
    with _readable(path, "an image that can be read"):
        content = io.BytesIO(read_bytes(path))
        if path.suffix.lower() == ".npy":
            array = image_of(np.load(content, allow_pickle=False))
            if content.read(1):
                raise TextError(f"{path} holds more than one array; save each to a file of its own.")
            if array is None:
                raise TextError(f"{path} is not an image: give an array [height, width] or [height, width, 1, 3 or 4].")
            return array
        try:
            from PIL import Image
        except ImportError:
            raise TextError(
                f"{path} needs the pillow package: pip install 'armillary[images]'; .npy needs none."
            ) from None
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(content, formats=FORMATS) as image:
                if (frames := getattr(image, "n_frames", 1)) != 1:
                    raise TextError(f"{path} holds {frames} pictures; save the one that is meant to a file of its own.")
                painted = image_of(image)
        assert painted is not None
        return painted


def read_wave(path: Path) -> Array:
    """The samples of a .wav file, its channels averaged, at 16 kHz."""
    with _readable(path, "a .wav file that can be read; PCM of 8, 16, 24 or 32 bits is"):
        with wave.open(io.BytesIO(read_bytes(path)), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data, whole = file.readframes(file.getnframes()), file.getnframes() * width * channels
        if len(data) < whole or not whole:
            raise TextError(f"{path} is cut short or empty: {len(data):,} of {whole:,} bytes of sound are there.")
        if width == 3:  # 24 bits: the low byte of 32 is zero
            data = b"".join(b"\0" + data[i : i + 3] for i in range(0, len(data), 3))
            width = 4
        samples: Array = np.frombuffer(data, {1: "<u1", 2: "<i2", 4: "<i4"}[width]).astype(np.float32)
        middle = np.float32(128) if width == 1 else np.float32(0)
        samples = (samples - middle) / np.float32(1 << (8 * width - 1))
        return resampled(samples.reshape(-1, channels).mean(1), rate)


@contextmanager
def _readable(path: Path, wanted: str) -> Iterator[None]:
    """Whatever a reader of images or sound raises, as a sentence; only regular files are opened."""
    try:
        yield
    except (TextError, MemoryError):
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TextError(f"{path} is not {wanted} ({reason}).") from error


def resampled(samples: Array, rate: int) -> Array:
    """At 16 kHz, by linear interpolation."""
    if rate == RATE:
        return samples
    if not RATES[0] <= rate <= RATES[1]:
        raise TextError(
            f"a clip is said to have {rate:,} samples per second, and sound has {RATES[0]:,} to {RATES[1]:,}; save it "
            "with its true rate."
        )
    places = np.arange(0, len(samples) / rate, 1 / RATE) * rate
    return np.interp(places, np.arange(len(samples)), samples).astype(np.float32)


def some(media: Media, number: int) -> list[Array]:
    """The first few."""
    items = list(islice(media.items, number))
    if not items:
        raise TextError(f"{media.source} is empty.")
    return items


def media_of(given: Any, column: str = "") -> Media | None:
    """Images or sound, where that is what was given; None of text, and of what is neither."""
    if isinstance(given, Media):
        return given
    if isinstance(given, str | Path):
        return _path_of(str(given))
    if isinstance(given, list | tuple) and given and not isinstance(given[0], str):
        for sense, convert in CONVERTERS.items():
            if convert(given[0]) is not None:
                return from_arrays(given, sense)
    if (table := table_rows(given)) is not None:
        first = next(iter(table[0]()), {})
        values = [first.get(column)] if column else list(first.values())
        for sense, convert in CONVERTERS.items():
            if any(convert(value) is not None for value in values):
                return from_table(given, column, sense)
    return None


CONVERTERS: dict[Literal["images", "sound"], Callable[[Any], Array | None]] = {"images": image_of, "sound": sound_of}


def _path_of(given: str) -> Media | None:
    """A file or folder of images or sound alone."""
    path = Path(given) if "\n" not in given and len(given) < 4096 else Path()
    if not given or not path.exists() or given == "-":
        return None
    if in_kernel(path):
        return None
    endings = {file.suffix.lower() for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()}
    if endings & {*IMAGES} and not endings - {*IMAGES}:
        return from_folder(path, "images")
    return from_folder(path, "sound") if endings == {*SOUND} else None

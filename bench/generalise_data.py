"""What the models of bench/generalise.py are trained on: images of CIFAR-10 and books, packed small enough to carry.

CIFAR-10 (Krizhevsky 2009) is never stored in the repository. Colours have half the resolution of brightness, and both
have 64 levels.
"""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

TRAIN, TEST, STEP = 18_000, 2_000, 4
TOKENS, HELDOUT = 4_000_000, 200_000
# The tokenizer's 8192 tokens, and one more that no text holds: what BERT reads in place of a masked token.
VOCABULARY = MASK = 8192
MASKED = 0.15


def prepare(cifar: Path, books: Path, data: Path) -> None:
    """Images and tokens, packed into one folder."""
    from PIL import Image

    from armillary.anatomy.loading.catalogue import shipped, tokenizer_home
    from armillary.lab.data import lines

    Image.MAX_IMAGE_PIXELS = None
    data.mkdir(parents=True, exist_ok=True)
    for part, files, names, number in (
        ("train", ("data_batch_1.png", "data_batch_2.png"), "train_lables.json", TRAIN),
        ("test", ("test_batch.png",), "test_lables.json", TEST),
    ):
        images = np.concatenate([np.asarray(Image.open(cifar / file)) for file in files])[:number]
        labels = np.array(json.loads((cifar / names).read_text())[:number], dtype=np.uint8)
        brightness, colours = packed(images.reshape(-1, 32, 32, 3))
        content = labels.tobytes() + brightness.tobytes() + colours.tobytes()
        (data / f"{part}.xz").write_bytes(lzma.compress(content))
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_home(shipped()["gpt"]) / "tokenizer.json"))
    ids: list[int] = []
    for line in lines(books):
        ids += tokenizer.encode(line).ids
        if len(ids) >= TOKENS + HELDOUT:
            break
    (data / "tokens.xz").write_bytes(lzma.compress(np.array(ids[: TOKENS + HELDOUT], dtype=np.uint16).tobytes()))


def packed(images: Any) -> tuple[Any, Any]:
    """Brightness [n, 32, 32] and two colours [n, 2, 16, 16], in 64 levels, as differences along rows."""
    x = images.astype(np.float32)
    y = x @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    colours = np.stack(((x[..., 2] - y) * 0.564 + 128, (x[..., 0] - y) * 0.713 + 128), 1)
    colours = colours.reshape(-1, 2, 16, 2, 16, 2).mean((3, 5))
    return tuple(
        np.diff(np.clip(np.round(part / STEP), 0, 63).astype(np.int16), axis=-1, prepend=0).astype(np.uint8)
        for part in (y, colours)
    )


def unpacked(content: bytes, number: int) -> tuple[Any, Any]:
    """Images [n, 3, 32, 32] from 0 to 255 and their labels."""
    whole = np.frombuffer(content, dtype=np.uint8)
    labels, whole = whole[:number], whole[number:]
    levels = [
        np.cumsum(part.astype(np.int8), axis=-1, dtype=np.int64).astype(np.float32) * STEP
        for part in (whole[: number * 1024].reshape(-1, 32, 32), whole[number * 1024 :].reshape(-1, 2, 16, 16))
    ]
    y, (blue, red) = levels[0], (levels[1].repeat(2, 2).repeat(2, 3) - 128).transpose(1, 0, 2, 3)
    r, b = y + red / 0.713, y + blue / 0.564
    g = (y - 0.299 * r - 0.114 * b) / 0.587
    return np.clip(np.stack((r, g, b), 1), 0, 255), labels.astype(np.int64)


def test_images(data: Path, number: int) -> list[Any]:
    """The first test images as arrays [32, 32, 3] of bytes, as a survey takes them."""
    images, _ = unpacked(lzma.decompress((data / "test.xz").read_bytes()), TEST)
    return [np.round(image).astype(np.uint8).transpose(1, 2, 0) for image in images[:number]]


class Pictures:
    """CIFAR-10 with random shifts and mirrors."""

    def __init__(self, data: Path, device: str) -> None:
        import torch

        self.parts = {}
        for part, number in (("train", TRAIN), ("test", TEST)):
            images, labels = unpacked(lzma.decompress((data / f"{part}.xz").read_bytes()), number)
            pixels = (torch.from_numpy(images).float() / 255 - 0.5) / 0.5
            self.parts[part] = (pixels.to(device), torch.from_numpy(labels).to(device))

    def loss(self, model: Any, generator: Any) -> Any:
        import torch

        pixels, labels = self.parts["train"]
        chosen = torch.randint(len(pixels), (256,), generator=generator, device=pixels.device)
        batch = torch.nn.functional.pad(pixels[chosen], (4, 4, 4, 4), mode="reflect")
        top, left = torch.randint(9, (2,), generator=generator, device=pixels.device).tolist()
        batch = batch[:, :, top : top + 32, left : left + 32]
        mirrored = torch.rand(len(batch), 1, 1, 1, generator=generator, device=pixels.device) < 0.5
        batch = torch.where(mirrored, batch.flip(3), batch)
        logits = model(pixel_values=batch).logits
        return torch.nn.functional.cross_entropy(logits.float(), labels[chosen], label_smoothing=0.1)

    def score(self, model: Any) -> dict[str, float]:
        import torch

        pixels, labels = self.parts["test"]
        guesses = torch.cat([model(pixel_values=part).logits.argmax(-1) for part in pixels.split(500)])
        return {"accuracy": float((guesses == labels).float().mean())}


class Books:
    """Windows of a text, whose last tokens are held out. The next token is predicted, or masked ones are."""

    def __init__(self, data: Path, device: str, rows: int, context: int, masked: bool) -> None:
        import torch

        ids = np.frombuffer(lzma.decompress((data / "tokens.xz").read_bytes()), dtype=np.uint16)
        whole = torch.from_numpy(ids.astype(np.int64)).to(device)
        self.train, self.heldout = whole[:-HELDOUT], whole[-HELDOUT:]
        self.rows, self.context, self.masked = rows, context, masked

    def loss(self, model: Any, generator: Any) -> Any:
        import torch

        last = len(self.train) - self.context - 1
        starts = torch.randint(last, (self.rows, 1), generator=generator, device=self.train.device)
        return self._loss(model, self.train[starts + torch.arange(self.context + 1, device=starts.device)], generator)

    def _loss(self, model: Any, rows: Any, generator: Any) -> Any:
        import torch

        if not self.masked:
            logits = model(input_ids=rows[:, :-1]).logits.float()
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        # As Devlin et al. (2019): of the chosen tokens 80 % are hidden, 10 % are others, 10 % stay.
        draws = torch.rand(3, *rows.shape, generator=generator, device=rows.device)
        chosen, others = draws[0] < MASKED, (draws[2] * VOCABULARY).long()
        read = torch.where(draws[1] < 0.8, MASK, torch.where(draws[1] < 0.9, others, rows))
        logits = model(input_ids=torch.where(chosen, read, rows)).logits.float()
        return torch.nn.functional.cross_entropy(logits[chosen], rows[chosen])

    def score(self, model: Any) -> dict[str, float]:
        import torch

        count = 65536 // (self.context + 1)
        rows = self.heldout[: count * (self.context + 1)].reshape(count, -1)
        generator = torch.Generator(device=rows.device).manual_seed(0)
        losses = [float(self._loss(model, part, generator)) for part in rows.split(32)]
        return {"heldout_nats": sum(losses) / len(losses)}

"""What the models of bench/generalise.py are trained on: images of CIFAR-10 and books, packed small enough to carry.

CIFAR-10 (Krizhevsky 2009) is never stored in the repository. Colours have half the resolution of brightness, and both
are rounded as cosine waves of 8 × 8 pixels: by 3.2 and 2.5 of 256 levels (root of the mean square), 390 bytes an image.
"""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

TRAIN, TEST, STEP = 20_000, 2_000, 12
# So many tokens of the books, in stretches from all of them; of other books all tokens up to so many are held out.
TOKENS, HELDOUT, STRETCH = 5_000_000, 500_000, 200
# The tokenizer's 8192 tokens, and one more that no text holds: what BERT reads in place of a masked token.
VOCABULARY = MASK = 8192
# More than the usual 15 %: a short training learns more from it (Wettig et al. 2022, arXiv:2202.08005).
MASKED = 0.3
# Neighbours of one wave, and neighbouring bytes alone, predict each other.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 4, "lp": 0, "pb": 0}]


def prepare(cifar: Path, books: Path, others: Path, data: Path) -> None:
    """Images, tokens of books and tokens of other books, packed into one folder."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    data.mkdir(parents=True, exist_ok=True)
    for part, files, names, number in (
        ("train", ("data_batch_1.png", "data_batch_2.png"), "train_lables.json", TRAIN),
        ("test", ("test_batch.png",), "test_lables.json", TEST),
    ):
        images = np.concatenate([np.asarray(Image.open(cifar / file)) for file in files])[:number]
        labels = np.array(json.loads((cifar / names).read_text())[:number], dtype=np.uint8)
        content = labels.tobytes() + b"".join(waves.tobytes() for waves in packed(images.reshape(-1, 32, 32, 3)))
        (data / f"{part}.xz").write_bytes(lzma.compress(content, filters=FILTERS))
    for part, source, number in (("tokens", books, TOKENS), ("heldout", others, HELDOUT)):
        (data / f"{part}.xz").write_bytes(lzma.compress(tokens_of(source, number).tobytes()))


def tokens_of(source: Path, number: int) -> Any:
    """So many tokens: stretches of lines at equal distances, from the first line to the last."""
    from tokenizers import Tokenizer

    from armillary.anatomy.loading.catalogue import shipped, tokenizer_home
    from armillary.lab.data import lines

    tokenizer = Tokenizer.from_file(str(tokenizer_home(shipped()["gpt"]) / "tokenizer.json"))
    text = list(lines(source))
    stretches = ["".join(text[at : at + STRETCH]) for at in range(0, len(text), STRETCH)]
    # About four characters a token; a few stretches more than needed.
    every = max(1, int(sum(map(len, stretches)) / (4.4 * number)))
    ids = [i for stretch in stretches[::every] for i in tokenizer.encode(stretch).ids]
    return np.array(ids[:number], dtype=np.uint16)


def waves() -> Any:
    """The cosines of eight pixels, an orthonormal basis [wave, pixel]."""
    cosines = np.cos(np.pi * (np.arange(8)[None] + 0.5) * np.arange(8)[:, None] / 8) / 2
    cosines[0] /= np.sqrt(2)
    return cosines.astype(np.float32)


def packed(images: Any) -> tuple[Any, Any]:
    """Waves of brightness [8, 8, n, 4, 4] and of two colours [8, 8, 2 n, 2, 2] in steps."""
    x = images.astype(np.float32)
    y = x @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    colours = np.stack(((x[..., 2] - y) * 0.564 + 128, (x[..., 0] - y) * 0.713 + 128), 1)
    colours = colours.reshape(-1, 2, 16, 2, 16, 2).mean((3, 5))
    return rounded(y), rounded(colours)


def rounded(part: Any) -> Any:
    blocks = part.reshape(-1, part.shape[-1] // 8, 8, part.shape[-1] // 8, 8).transpose(0, 1, 3, 2, 4) - 128
    # The largest possible wave, 1024, is 85 steps.
    steps = np.round(waves() @ blocks @ waves().T / STEP).astype(np.int8)
    return np.ascontiguousarray(steps.transpose(3, 4, 0, 1, 2))


def pixels_of(content: Any, size: int) -> Any:
    """Pixels [n, size, size] from their waves."""
    steps = content.view(np.int8).reshape(8, 8, -1, size // 8, size // 8).transpose(2, 3, 4, 0, 1)
    blocks = waves().T @ (steps.astype(np.float32) * STEP) @ waves() + 128
    return blocks.transpose(0, 1, 3, 2, 4).reshape(-1, size, size)


def unpacked(content: bytes, number: int) -> tuple[Any, Any]:
    """Images [n, 3, 32, 32] from 0 to 255 and their labels."""
    whole = np.frombuffer(content, dtype=np.uint8)
    labels, whole = whole[:number], whole[number:]
    y = pixels_of(whole[: number * 1024], 32)
    colours = pixels_of(whole[number * 1024 :], 16).reshape(-1, 2, 16, 16).repeat(2, 2).repeat(2, 3)
    blue, red = (colours - 128).transpose(1, 0, 2, 3)
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
        # Places stay on the device: a number that the host waits for would stop it at every step.
        top, left = torch.randint(9, (2, 1), generator=generator, device=pixels.device)
        side = torch.arange(32, device=pixels.device)
        batch = batch.index_select(2, top + side).index_select(3, left + side)
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
    """Windows of books, and other books to judge by. The next token is predicted, or masked ones are."""

    def __init__(self, data: Path, device: str, rows: int, context: int, masked: bool) -> None:
        import torch

        self.train, self.heldout = (
            torch.from_numpy(np.frombuffer(lzma.decompress(path.read_bytes()), np.uint16).astype(np.int64)).to(device)
            for path in (data / "tokens.xz", data / "heldout.xz")
        )
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
        # -100 is not counted; choosing rows of logits would make the host wait for their number.
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows.where(chosen, -100).flatten())

    def score(self, model: Any) -> dict[str, float]:
        import torch

        # All of it, in whole windows and batches of one size, so that the mean of batches is the mean of tokens.
        rows = self.heldout.unfold(0, self.context + 1, self.context + 1)
        batches = rows[: len(rows) // 32 * 32].split(32)
        generator = torch.Generator(device=rows.device).manual_seed(0)
        losses = [float(self._loss(model, part, generator)) for part in batches]
        return {"heldout_nats": sum(losses) / len(losses), "heldout_tokens": len(losses) * batches[0].numel()}

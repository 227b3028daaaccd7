"""Largest activations drawn on the images: patches tinted by how far their largest coordinate exceeds the median."""

import base64
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from armillary.results.sheets.patch_maps import PatchMaps
from armillary.results.store import write_whole
from armillary.views.figures.marks import DARK, FONT, LIGHT
from armillary.views.text.quoting import html_text

SIDE = 260
MASSIVE, OUTLIER = 1000.0, 100.0
_STYLE = f"""
:root {{ --ground: {LIGHT.ground}; --ink: {LIGHT.ink}; --soft: {LIGHT.soft}; --accent: {LIGHT.accent}; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ground: {DARK.ground}; --ink: {DARK.ink}; --soft: {DARK.soft}; --accent: {DARK.accent}; }} }}
html {{ background: var(--ground); color: var(--ink); font: 15px/1.5 {FONT}; }}
main {{ max-width: 1180px; margin: 0 auto; padding: 24px; }}
.images {{ display: flex; flex-wrap: wrap; gap: 20px; }}
figure {{ margin: 0; width: {SIDE}px; }}
figcaption, p {{ color: var(--soft); }}
svg {{ display: block; }}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def save_patch_maps(maps: PatchMaps, path: Path) -> Path:
    write_whole({path: patch_page(maps)})
    return path


def patch_page(maps: PatchMaps) -> str:
    """One page without script: each image with its patches tinted, and the model's own tokens in words."""
    states = ", ".join(f"{name} {ratio:.1f}" for name, ratio in maps.by_state.items())
    figures = "".join(_figure(maps, i) for i in range(len(maps.ratios)))
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Largest activations</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>Largest activations of {html_text(maps.model)}</h1>"
        f"<p>{html_text(maps.source)}. The largest coordinate of every token at {html_text(maps.state)}, as a multiple "
        f"of the median magnitude: a patch is redder the further it exceeds the image's median patch; "
        f"a frame marks {OUTLIER:g} and more, a heavy one {MASSIVE:g} and more (massive, after Sun et al. 2024).</p>"
        f"<div class='images'>{figures}</div>"
        f"<p>The median image's largest ratio by state: {html_text(states)}.</p></main></body></html>\n"
    )


def _figure(maps: PatchMaps, image: int) -> str:
    picture, ratios = maps.pictures[image], maps.ratios[image]
    (rows, columns), height = maps.grid, round(SIDE * picture.shape[0] / picture.shape[1])
    tall, wide = height / rows, SIDE / columns
    squares, middle = [], max(1.0, float(np.median(ratios[maps.own :])))
    for place, ratio in enumerate(ratios[maps.own :]):
        row, column = divmod(place, columns)
        share = min(1.0, max(0.0, math.log(max(ratio / middle, 1.0)) / math.log(max(MASSIVE / middle, 2.0))))
        frame = 4 if ratio >= MASSIVE else 2 if ratio >= OUTLIER else 0
        squares.append(
            f"<rect x='{column * wide:.1f}' y='{row * tall:.1f}' width='{wide:.1f}' height='{tall:.1f}' "
            f"fill='#C2452D' fill-opacity='{0.85 * share:.2f}' stroke='#C2452D' stroke-width='{frame}'>"
            f"<title>{html_text(maps.name(place + maps.own))}: {ratio:.1f}</title></rect>"
        )
    own = ", ".join(f"{maps.name(place)} {ratios[place]:.1f}" for place in range(maps.own))
    largest = int(np.argmax(ratios))
    label = html_text(f"largest: {ratios[largest]:.1f} at {maps.name(largest)}")
    return (
        f"<figure><svg width='{SIDE}' height='{height}' role='img' aria-label='{label}'>"
        f"<image href='{_png(picture)}' width='{SIDE}' height='{height}' style='image-rendering:pixelated'/>"
        f"{''.join(squares)}</svg><figcaption>{label}{f'; {html_text(own)}' if own else ''}</figcaption></figure>"
    )


def _png(picture: NDArray[np.uint8]) -> str:
    """An image as a data address: PNG needs no more than zlib."""
    height, width, _ = picture.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    lines = b"".join(b"\0" + row.tobytes() for row in picture)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(png).decode()

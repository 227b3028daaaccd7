"""The command that draws a vision model's largest activations on images: `armillary patches`."""

import sys
from pathlib import Path
from typing import Any

import click

from armillary.cli.terminal.failures import friendly, say
from armillary.cli.terminal.options import PATH, complete_models, loading
from armillary.errors import ArmillaryError, ending


@click.command()
@click.argument("model", shell_complete=complete_models)
@click.option("--images", metavar="DIR", help="A folder of .png, .jpg or .npy files. [default: the built-in images]")
@click.option("--number", type=int, default=6, show_default=True, metavar="N", help="How many images.")
@click.option("--out", type=PATH, metavar="FILE", help="A page (.html) with the images.")
@loading
@friendly
def patches(model: str, images: str | None, number: int, out: Path | None, **how: Any) -> None:
    """Find the largest activations of a vision MODEL, and draw them on images.

    \b
    armillary patches ./vit --images photos/ --out patches.html
    """
    if out is not None and out.suffix.lower() != ".html":
        raise ArmillaryError(f"{out} {ending(out)}; give a file that ends in .html.")
    if number < 1:
        raise ArmillaryError(f"--number {number} leaves nothing to draw; give at least 1.")
    from armillary import run
    from armillary.flow.media.sample import sample_images
    from armillary.flow.media.sources import from_folder
    from armillary.readouts.patch_maps import patch_maps
    from armillary.views.figures.patch_maps import save_patch_maps
    from armillary.views.text.quoting import show_text

    media = sample_images() if images is None else from_folder(images, "images")
    maps = patch_maps(run.load(model, progress=False, **how), media, min(number, sys.maxsize))
    say(f"{show_text(maps.model)}: largest coordinate over the median magnitude, at {maps.state} of the stream")
    for image, token, ratio in maps.table(3).rows:
        say(f"  image {image}  {ratio:9.1f}  {token}")
    if out is not None:
        say(f"{save_patch_maps(maps, out)} has {len(maps.ratios)} images")

"""Writes emergence.json of a built-in model: roles and shares of the gradient at the checkpoints of its training.

    armillary lab train --preset builtin --architecture gpt --text BOOKS --heldout MORE --out RUN    (a GPU, minutes)
    python bench/emergence.py gpt RUN

RUN is a training by the model's own recipe, or its checkpoints alone; where the last one is missing, the built-in model
itself is the last. The table says how it came about; `heads.emerge` reads it where a built-in model is surveyed.
"""

import hashlib
import json
import platform
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
import numpy
import torch
import transformers

import armillary
from armillary.anatomy.loading.catalogue import shipped
from armillary.anatomy.loading.load import load_model, pick_device
from armillary.anatomy.loading.steps import Checkpoint, find_checkpoints
from armillary.flow.documents import sample
from armillary.flow.tokens import encode
from armillary.lab.checkpoint import RECIPE
from armillary.probes.grid.checkpoints.emergence import NAME, emergence_json, measure_emergence
from armillary.results.store import write_whole


@click.command()
@click.argument("name", type=click.Choice(sorted(shipped())))
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--tokens", default=10_000, show_default=True, help="How much of the built-in sample to read.")
@click.option("--device", help="cpu or cuda. [default: cuda if there is one]")
@click.option("--out", type=click.Path(path_type=Path), help="Another file than the package's.")
def main(name: str, run: Path, tokens: int, device: str | None, out: Path | None) -> None:
    recipe = json.loads((shipped()[name] / RECIPE).read_text("utf-8"))
    if (run / RECIPE).exists():
        theirs = json.loads((run / RECIPE).read_text("utf-8"))
        assert theirs == recipe, f"{run} was trained by another recipe, or on another text or device"
    checkpoints, last = find_checkpoints(run), int(recipe["recipe"]["steps"])
    ends = "the last checkpoint of the training"
    if checkpoints.each[-1].step != last:
        end, ends = Checkpoint(last, shipped()[name]), "the built-in model itself"
        checkpoints = replace(checkpoints, each=(*checkpoints.each, end))
    anatomy = load_model(checkpoints.last, device=device)
    corpus = encode(sample(), anatomy.tokenizer, anatomy.context, tokens)
    began = time.perf_counter()
    anatomy = replace(anatomy, checkpoints=checkpoints)
    table = measure_emergence(anatomy, corpus, 0, say=lambda step: click.echo(f"step {step}", err=True))
    read = "\n".join(sample().texts)
    making = {
        "date": datetime.now(UTC).date().isoformat(),
        **recipe,
        "last": ends,
        "fingerprint": anatomy.provenance["fingerprint"],
        "measured_on": {
            "text": f"{corpus.source}, {corpus.documents} documents, {corpus.tokens} tokens",
            "sha256": hashlib.sha256(read.encode()).hexdigest(),
            "seed": 0,
            "device": pick_device(device),
            "seconds": round(time.perf_counter() - began, 1),
        },
        "versions": {
            "armillary": armillary.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": numpy.__version__,
        },
    }
    target = out or shipped()[name] / NAME
    write_whole({target: emergence_json(replace(table, making=making))})
    click.echo(f"{target}: {len(table.steps)} checkpoints, {dict(table.counts)} marked tokens")


if __name__ == "__main__":
    main()

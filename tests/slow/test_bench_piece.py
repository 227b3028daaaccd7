"""A piece of GPU time, here on a CPU: the same runs from packed tokens as from the text, and seeds by arm."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from armillary.laboratory import SAMPLE

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def piece(out, *args):
    asked = ["--out", out, "--known", ROOT / "docs" / "lab", "--size", "smoke", "--device", "cpu", "--jobs", 1, *args]
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "piece.py", *map(str, asked), "--seeds", "1", "gate:layernorm@2"],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (out / "gate-smoke" / "runs.jsonl").read_text().splitlines()]
    return {row["key"]: row["loss"] for row in rows}


def test_packed_tokens_give_the_runs_of_their_text(tmp_path):
    from_text = piece(tmp_path / "text", "--text", SAMPLE, "--heldout", SAMPLE)
    assert sum("/paired/" in key for key in from_text) == 2, "two seeds were asked for"
    with tarfile.open(tmp_path / "tokens.tar.xz", "w:xz") as packed:
        packed.add(tmp_path / "text" / "tokens", "tokens")
    assert piece(tmp_path / "packed", "--tokens", tmp_path / "tokens.tar.xz") == from_text

"""The table of model types: which open whole, in part or not at all, the laws' errors, and how far patterns differ.

    python bench/families.py [TYPE…]
    python bench/families.py > docs/families.md

Every type is a tiny perturbed model (tests/tiny.py, tests/tiny_kinds.py) that is written to a folder in the hub's
layout and read back as a user would. Patterns are compared with Hugging Face's own at 60 tokens, more than any window.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import torch

from armillary.anatomy import Anatomy, Attention
from armillary.anatomy.entries.signal import random_ids
from armillary.anatomy.families import FAMILIES, MISSING, family_of
from armillary.anatomy.loading.load import load_model
from armillary.errors import ArmillaryError
from armillary.flow.attention import attend, cross_attend, rotation
from armillary.flow.capture import run, still, watching
from armillary.flow.laws import check
from armillary.specimens.models.perturbed import perturbed

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from tiny import MAKERS
from tiny_kinds import KINDS
from tiny_senses import SENSES, WHOLE

TOKENS = 60
HEAD = """# Which architectures are read

Every row is a tiny model of that type, moved off its initialisation, written to a folder and read back as a user would
(`python bench/families.py`; variants are named behind a dash). *Worst law*: the largest relative error of the [laws
that every load checks](how-we-know.md); rounding explains 8e-06. *Windows*: the law of windows, in a text that is
longer than they are. *Patterns*: the largest difference between attention patterns from the canonical weights and
Hugging Face's own at 60 tokens; 0 where both take the same steps in the same order. *In part*: claims that need what is
named do not apply, all others run.
"""
EVERY = {**MAKERS, **KINDS, **SENSES}


def pattern_difference(anatomy: Anatomy) -> float | None:
    """The largest difference between our patterns and the model's own; None without heads."""
    layers = [i for i, block in enumerate(anatomy.blocks) if isinstance(block.mixer, Attention)]
    seen: dict[str, torch.Tensor] = {}

    def reads(i: int) -> str:
        return f"L{i}.ln1" if f"L{i}.ln1" in anatomy.sites and anatomy.order == "pre" else f"L{i}.resid_pre"

    sites = [site for i in layers for site in (reads(i), f"L{i}.pattern")]
    if anatomy.encoder is not None:
        sites += [site for i in layers for site in (_asked(anatomy, i), f"L{i}.cross_pattern")]
    ids = random_ids(anatomy, 1, TOKENS, seed=5)
    states = None if anatomy.encoder is None else anatomy.encoder.states(ids)[0]
    with still(anatomy.model):
        with watching(anatomy, {s: lambda given, y, s=s: seen.update({s: y.clone()}) for s in sites}):
            run(anatomy, ids)
        crossed = [
            float(
                (cross_attend(block.cross, seen[_asked(anatomy, i)], states)[0] - seen[f"L{i}.cross_pattern"])
                .abs()
                .max()
            )
            for i, block in enumerate(anatomy.blocks)
            if block.cross is not None
        ]
        own = max(
            (
                float(
                    (
                        attend(part, seen[reads(i)], rotation(anatomy, i, ids.shape[1]), anatomy.causal)[0]
                        - seen[f"L{i}.pattern"]
                    )
                    .abs()
                    .max()
                )
                for i in layers
                for part in (anatomy.blocks[i].attention,)
            ),
            default=None,
        )
        return max([*crossed, own]) if own is not None else None


def _asked(anatomy: Anatomy, layer: int) -> str:
    """Where the queries of a layer's cross attention are read."""
    return f"L{layer}.{'ln_cross' if anatomy.order == 'pre' else 'ln1'}"


def row(name: str) -> tuple[str, str, str, str, str]:
    """Type, how it opens, the worst law and its error, the windows' law, the patterns' difference."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            perturbed(WHOLE.get(name, EVERY[name])).save_pretrained(folder)
            anatomy = load_model(folder, part="decoder" if "decoder" in name and name in SENSES else "")
        laws = check(anatomy)
    except ArmillaryError as error:
        return name, "refused", str(error)[:160], "", ""
    worst, apart = max(laws, key=lambda law: law.error), pattern_difference(anatomy)
    windows = next(law for law in laws if law.name == "windows")
    how = (
        "in part: " + "; ".join(f"{part} ({what})" for part, what in anatomy.opaque.items())
        if anatomy.opaque
        else "whole"
    )
    shown = "" if windows.where == "not applicable" else f"{windows.error:.0e}"
    return name, how, f"{worst.error:.0e} {worst.name}", shown, "" if apart is None else f"{apart:.0e}"


def main(asked: list[str]) -> None:
    warnings.filterwarnings("ignore")
    if not asked:
        print(HEAD)
    rows = [row(name) for name in asked or EVERY]
    for known in () if asked else sorted(MISSING):
        try:
            family_of(known)
        except ArmillaryError:
            rows.append((known, "refused", f"needs {MISSING[known]}", "", ""))
    print("| type | opens | worst law | windows | patterns |\n|---|---|---|---|---|")
    print("\n".join(f"| {' | '.join(cells)} |" for cells in rows))
    how = {kind: sum(cells[1].startswith(kind) for cells in rows) for kind in ("whole", "in part", "refused")}
    own = sum(family.model_type.startswith("armillary_") for family in FAMILIES)
    print(
        f"\n{len(FAMILIES)} tables, {own} of them for models of the laboratory; of {len(rows)} models "
        + ", ".join(f"{n} {kind}" for kind, n in how.items())
    )


if __name__ == "__main__":
    main(sys.argv[1:])

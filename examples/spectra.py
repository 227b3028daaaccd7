"""Are spectral exponents universal: the same over seeds, sizes and architectures?

The covariance of the stream behind the last block has eigenvalues that fall about like a power of their rank. The
exponent is the slope of log λ against log rank, from rank 4 to rank 32. Measured in the two built-in models, and in
untrained ones with several seeds and widths. The control reads Gaussian vectors, whose eigenvalues differ by chance.

python examples/spectra.py
"""

import numpy as np
import torch

import armillary
from armillary.anatomy.read import read
from armillary.flow.passages import passages, watched
from armillary.lab.model import build
from armillary.lab.recipe import recipe

RANKS = np.arange(4, 33)


def exponent(rows: torch.Tensor) -> float:
    """−slope of log eigenvalue over log rank of the rows' covariance."""
    values = torch.linalg.eigvalsh(torch.cov(rows.double().T)).flip(0).numpy()
    return -float(np.polyfit(np.log(RANKS), np.log(values[RANKS - 1]), 1)[0])


def measured(model, ids) -> str:
    """The exponent on all documents, and on either half of them."""
    site = f"L{model.layers - 1}.resid_post"
    states = watched(model, ids, site)[site][:, 1:]
    whole, even, odd = (exponent(part.flatten(0, 1)) for part in (states, states[::2], states[1::2]))
    return f"{whole:.2f} ({even:.2f}, {odd:.2f})"


def untrained(architecture: str, width: int, seed: int):
    sizes = {"width": width, "feed_forward": 4 * width, "dropout": 0.0, "seed": seed}
    # `read` is `armillary.load` without the checks: these models are made here.
    return read(build(recipe("builtin", architecture, **sizes)).eval(), "untrained")


print("exponent (on either half of the documents); untrained: three seeds")
for architecture in ("gpt", "llama"):
    trained = armillary.load(f"builtin:{architecture}", progress=False)
    ids = passages(trained, documents=16)
    print(f"builtin:{architecture:5} width {trained.d}, trained    {measured(trained, ids)}")
    for width in (64, 128, 256):
        shown = [measured(untrained(architecture, width, seed), ids) for seed in (1, 2, 3)]
        print(f"{'':13} width {width:3}, untrained  {'  '.join(shown)}")
noise = torch.randn(16 * 63, 256, generator=torch.Generator().manual_seed(0))
print(f"Gaussian vectors, width 256            {exponent(noise):.2f}")

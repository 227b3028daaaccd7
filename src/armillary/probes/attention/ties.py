"""Which singular vectors are one choice of many, because their singular values nearly tie?"""

from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.weights import heads
from armillary.probes.machinery.evidence import Evidence
from armillary.results import Column

if TYPE_CHECKING:
    from armillary.geometry.factored import SVD

# Weights of 16 or 8 bits leave a matrix known to about 1e-3 of σ1, and an error E turns a singular vector by |E|/gap: nearer
# than this, in units of σ1, vectors are loose by a fifth of a radian or more, and only their span means something.
TIE = 0.005
TIE_COLUMN = Column("tie", "directions whose singular values nearly tie with it: only their span means something")


def ties(svd: "SVD") -> list[list[str]]:
    """For each head's singular values the run of near ties it stands in, or nothing.

    >>> import torch
    >>> from armillary.geometry.factored import Factored
    >>> diagonal = torch.diag(torch.tensor([3.0, 2.0, 1.999, 1.0]))[None]
    >>> ties(Factored(torch.eye(4)[None], diagonal).svd())
    [['', '2–3', '2–3', '']]
    """
    made = []
    for groups in svd.clusters(TIE).cpu().numpy():
        runs = np.split(np.arange(len(groups)), np.flatnonzero(np.diff(groups)) + 1)
        made.append([f"{run[0] + 1}–{run[-1] + 1}" if len(run) > 1 else "" for run in runs for _ in run])
    return made


def all_ties(evidence: Evidence) -> list[list[str]]:
    """Those of W_VO for every head, in the order of `head_names`; worked out once a survey."""
    key = "ties of W_VO"
    if key not in evidence.kept:
        evidence.kept[key] = [one for layer in heads(evidence) for one in ties(layer.vo)]
    return list(evidence.kept[key])


def caveat(evidence: Evidence, directions: int | None = None) -> str:
    """How many of the heads' (first so many) directions are loose, in a sentence."""
    runs = [one[:directions] for one in all_ties(evidence)]
    loose, total = sum(bool(run) for one in runs for run in one), sum(map(len, runs))
    firsts = sum(bool(one[0]) for one in runs)
    return (
        f"{loose} of {total} directions, {firsts} of {len(runs)} heads' first ones among them, have singular values that nearly tie "
        f"with a neighbour's (nearer than {TIE:.1%} of the largest): they are known up to a turn among those under 'tie', and "
        "their tokens are one choice of many."
    )

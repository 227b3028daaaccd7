"""Components that the papers only propose, as torch modules that can replace a model's own."""

from armillary.lab.parts.activations import ACTIVATIONS, LOSSY, Activation
from armillary.lab.parts.heads import MembershipAttention
from armillary.lab.parts.membership import MEMBERSHIPS, Membership, block, membership
from armillary.lab.parts.norms import (
    NORMS,
    ConstantNorm,
    Derf,
    DyT,
    LayerNorm,
    PerHeadNorm,
    RMSNorm,
    SphereNorm,
    SubsetNorm,
    new_norm,
)
from armillary.lab.parts.scores import SCORES, ScoredAttention
from armillary.lab.parts.symmetriser import MESSAGES, Symmetriser

__all__ = ["ACTIVATIONS", "LOSSY", "MEMBERSHIPS", "MESSAGES", "NORMS", "SCORES", "Activation", "ConstantNorm", "Derf"]
__all__ += ["DyT", "LayerNorm", "Membership", "MembershipAttention", "PerHeadNorm", "RMSNorm", "ScoredAttention"]
__all__ += ["SphereNorm", "SubsetNorm", "Symmetriser", "block", "membership", "new_norm"]

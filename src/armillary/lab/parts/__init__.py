"""Components that the papers only propose, as torch modules that can replace a model's own."""

from armillary.lab.parts.heads import MembershipAttention
from armillary.lab.parts.membership import MEMBERSHIPS, Membership, block, membership
from armillary.lab.parts.norms import (
    NORMS,
    Derf,
    DyT,
    LayerNorm,
    PerHeadNorm,
    RMSNorm,
    SphereNorm,
    SubsetNorm,
    new_norm,
)
from armillary.lab.parts.symmetriser import MESSAGES, Symmetriser

__all__ = ["MEMBERSHIPS", "MESSAGES", "NORMS", "Derf", "DyT", "LayerNorm", "Membership", "MembershipAttention"]
__all__ += ["PerHeadNorm", "RMSNorm", "SphereNorm", "SubsetNorm", "Symmetriser", "block", "membership", "new_norm"]

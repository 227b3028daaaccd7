"""Components that the papers only propose, as torch modules that can replace a model's own."""

from armillary.lab.parts.activations import ACTIVATIONS, LOSSY, Activation
from armillary.lab.parts.attention.member_heads import MembershipAttention
from armillary.lab.parts.attention.membership import MEMBERSHIPS, Membership, block, membership
from armillary.lab.parts.attention.scores import SCORES, ScoredAttention
from armillary.lab.parts.attention.supervised_heads import SupervisedAttention
from armillary.lab.parts.attention.width import Projection, WideAttention, matched_feed_forward
from armillary.lab.parts.gated_layers import GatedFeedForward, matched_gate
from armillary.lab.parts.norms import (
    NORMS,
    ConstantNorm,
    Derf,
    DyT,
    LayerNorm,
    PerHeadNorm,
    RemovingNorm,
    RMSNorm,
    SphereNorm,
    SubsetNorm,
    new_norm,
)
from armillary.lab.parts.reordered_blocks import NGPTBlock, PostNormBlock
from armillary.lab.parts.symmetriser import MESSAGES, Symmetriser

__all__ = ["ACTIVATIONS", "LOSSY", "MEMBERSHIPS", "MESSAGES", "NORMS", "SCORES", "Activation", "ConstantNorm", "Derf"]
__all__ += ["DyT", "LayerNorm", "Membership", "MembershipAttention", "PerHeadNorm", "Projection", "RMSNorm"]
__all__ += ["RemovingNorm", "ScoredAttention", "SphereNorm", "SubsetNorm", "Symmetriser", "WideAttention", "block"]
__all__ += ["GatedFeedForward", "NGPTBlock", "PostNormBlock", "matched_feed_forward", "matched_gate", "membership"]
__all__ += ["SupervisedAttention", "new_norm"]

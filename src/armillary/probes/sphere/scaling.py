"""The old name of `spread_layers`."""

from armillary.probes.machinery.depth import spread_layers as layers_of

__all__ = ["layers_of"]

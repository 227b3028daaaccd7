"""Moved: the names of heads are in `verdicts`."""

from armillary.probes.machinery.verdicts import name_heads as name_heads

"""Which numbers decide a finding? All rules' comparisons in one table, and the one that decided."""

from armillary.probes.machinery.limits.decisive_limits import with_limits

__all__ = ["with_limits"]

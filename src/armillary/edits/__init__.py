"""What we change in a running model, always undone on exit."""

from armillary.edits.scale import scaled

__all__ = ["scaled"]

"""A survey as one page."""

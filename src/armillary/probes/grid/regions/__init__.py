"""Regions of the sphere, and what heads do in them."""

"""Quantities as plotly figures, and what all figures share."""

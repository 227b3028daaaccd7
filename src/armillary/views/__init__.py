"""Results as text, figures and pages: never compute, never import torch."""

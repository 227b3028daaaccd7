"""How do instruments evaluate many layers at once? For GPUs, where many small kernels would cost more."""

"""The laboratory's studies, and geometry during training, as figures."""

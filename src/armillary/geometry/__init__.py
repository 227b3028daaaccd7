"""What is the mathematics, apart from any model? A leaf: no module here imports anything else of ours.

Nothing is re-exported, so that `geometry.resample` (NumPy only) can be imported without loading torch.
"""

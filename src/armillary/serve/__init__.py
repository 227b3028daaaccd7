"""The page: `armillary explore` serves the rooms of one or more models to a browser on this machine.

from armillary.serve.start import explore
explore("builtin:gpt")
"""

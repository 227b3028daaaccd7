"""On which device does a sum live?"""

import torch


def home(device: torch.device) -> torch.device:
    """Where float64 sums of a device's rows are kept: there, but for Apple's devices, which have no float64."""
    return torch.device("cpu") if device.type == "mps" else device

"""What holds for every test: shapes in geometry and measures are checked at run time, in tests only."""

import torch
from jaxtyping import install_import_hook

install_import_hook(["armillary.geometry", "armillary.measures"], "beartype.beartype")

# Tests are small and run beside others; two threads of torch on a busy machine wait for each other at every
# operation (measured: 14 s for a test that takes 0.2).
torch.set_num_threads(1)

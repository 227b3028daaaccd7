"""How many processes decide a survey's claims?"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from armillary.probes.machinery.probe import AnyProbe
from armillary.probes.machinery.processes.workers import prepare

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

# Largest model, in parameters, of which every process gets a copy without being asked.
COPIED = 200e6
# A process takes seconds to begin, and this memory besides the model and what the instruments keep; each should decide
# several claims. With more processes than JOBS, the longest claim decides how long a survey takes.
CLAIMS_EACH, PROCESS_BYTES, JOBS = 8, 1 << 29, 4
# What every survey imports, and most of what any model does.
MODULES = ("armillary.run", "transformers.modeling_utils", "scipy.stats")


def jobs_for(anatomy: "Anatomy", probes: Sequence[AnyProbe]) -> int:
    """No more than torch has threads, than have enough to do, and than memory holds copies of a small model."""
    from armillary.anatomy.loading import weights
    from armillary.flow.controls import twins_for

    parameters = list(anatomy.model.parameters())
    if anatomy.device.type != "cpu" or sum(p.numel() for p in parameters) > COPIED:
        return 1
    instruments = {instrument for probe in probes for instrument in probe.instruments}
    size = sum(p.numel() * p.element_size() for p in parameters)
    each = PROCESS_BYTES + (1 + twins_for(anatomy)) * size + sum(i.bytes(anatomy) for i in instruments)
    return max(1, min(_at_most(probes), weights.free_memory("cpu") // (2 * each)))


def prepare_jobs(jobs: int | None, device: str | None, probes: Sequence[AnyProbe]) -> None:
    """Let workers import while this process does: they will probably be needed."""
    if (jobs or _at_most(probes)) > 1 and (device or "cpu") == "cpu":
        prepare(MODULES)


def _at_most(probes: Sequence[AnyProbe]) -> int:
    return min(_threads(), JOBS, len(probes) // CLAIMS_EACH)


def _threads() -> int:
    """How many torch has, or will have once it is imported."""
    if "torch" in sys.modules:
        import torch

        return torch.get_num_threads()
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    # Like torch, which ignores a value that is not a number.
    return int(asked) if asked.isdecimal() and int(asked) > 0 else cores()


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

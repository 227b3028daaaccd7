"""Probes that behave in one way in a worker process and in another in the first one."""

import multiprocessing
import os

from armillary.probes.instruments.lengths import LENGTHS
from armillary.probes.machinery.tables import site_table
from armillary.results import Claim, Finding, Statistic


def in_worker() -> bool:
    return multiprocessing.parent_process() is not None


class Where:
    """Says in which process it was decided."""

    instruments = (LENGTHS,)

    def __init__(self, name: str) -> None:
        self.claim = Claim(f"jobs.{name}", "H", "statement", "source", "definition", "control", "rule")

    def conclude(self, evidence, result=None):
        statistic = Statistic("process", float(os.getpid()), 0.0, 0.0)
        return Finding(self.claim, "supported", statistic, 1, (), "r.", "h", site_table(["L0.ln1"]))


class Dies(Where):
    """Ends its process, if that is a worker."""

    def conclude(self, evidence, result=None):
        if in_worker():
            os._exit(1)
        return super().conclude(evidence)


class Raises(Where):
    def conclude(self, evidence, result=None):
        raise ZeroDivisionError("by mistake")


class Changes(Where):
    """Leaves the model other than it was."""

    def passes(self, anatomy):
        return 1.0

    def experiment(self, bench):
        bench.anatomy.ln_final.gain.add_(1.0)

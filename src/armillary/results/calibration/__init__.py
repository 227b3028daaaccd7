"""How often is a verdict wrong? What a calibration consists of, what its runs gave, and the rates that follow."""

from armillary.results.calibration.counts import Calibration, Counts, Reading, commonest, in_words, summed
from armillary.results.calibration.run_list import PARTS, SAMPLE, STRENGTHS, Planted, Study, Task
from armillary.results.calibration.runs import Outcome, Run, RunsFile
from armillary.results.calibration.wilson import wilson

__all__ = [
    "PARTS",
    "SAMPLE",
    "STRENGTHS",
    "Calibration",
    "Counts",
    "Outcome",
    "Planted",
    "Reading",
    "Run",
    "RunsFile",
    "Study",
    "Task",
    "commonest",
    "in_words",
    "summed",
    "wilson",
]

"""How often is a verdict wrong? What a calibration consists of, what its runs gave, and the rates that follow."""

from armillary.results.calibration.counts import Calibration, Counts, UntrainedReading, commonest, in_words, summed
from armillary.results.calibration.run_list import PARTS, SAMPLE, STRENGTHS, CalibrationStudy, Planted, Task
from armillary.results.calibration.runs import CalibrationRun, Outcome, RunsFile
from armillary.results.calibration.wilson import wilson

__all__ = [
    "PARTS",
    "SAMPLE",
    "STRENGTHS",
    "Calibration",
    "CalibrationRun",
    "CalibrationStudy",
    "Counts",
    "Outcome",
    "Planted",
    "RunsFile",
    "Task",
    "UntrainedReading",
    "commonest",
    "in_words",
    "summed",
    "wilson",
]

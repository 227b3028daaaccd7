"""What a measurement leaves behind: NumPy only, a leaf, quick to import."""

from armillary.results.claim import (
    CHAPTERS,
    SOURCES,
    VERDICTS,
    Claim,
    Control,
    Finding,
    RuleChange,
    Statistic,
    Verdict,
    Why,
)
from armillary.results.quantity import Quantity
from armillary.results.survey import Ledger, Survey
from armillary.results.table import Column, Table

__all__ = [
    "CHAPTERS",
    "SOURCES",
    "VERDICTS",
    "Claim",
    "Column",
    "Control",
    "Finding",
    "Ledger",
    "Quantity",
    "RuleChange",
    "Statistic",
    "Survey",
    "Table",
    "Verdict",
    "Why",
]

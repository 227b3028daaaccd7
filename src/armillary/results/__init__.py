"""Results of measurements. A leaf that needs NumPy alone, so that it is quick to import."""

from armillary.results.claim import (
    CHAPTERS,
    KINDS,
    SOURCES,
    VERDICTS,
    Claim,
    Finding,
    Kind,
    Part,
    Rewording,
    RuleChange,
    Verdict,
    Why,
)
from armillary.results.limit import Limit, Prediction
from armillary.results.numbers import say
from armillary.results.quantity import Quantity
from armillary.results.statistic import Control, Statistic
from armillary.results.survey import Ledger, Survey
from armillary.results.survey_facts import LawCheck, ModelFacts, Plan, Provenance, TextFacts, TextLoss, Times
from armillary.results.table import Column, Table

__all__ = [
    "CHAPTERS",
    "KINDS",
    "SOURCES",
    "VERDICTS",
    "Claim",
    "Column",
    "Control",
    "Finding",
    "Kind",
    "LawCheck",
    "Ledger",
    "Limit",
    "ModelFacts",
    "Part",
    "Plan",
    "Prediction",
    "Provenance",
    "Quantity",
    "Rewording",
    "RuleChange",
    "Statistic",
    "Survey",
    "Table",
    "TextFacts",
    "TextLoss",
    "Times",
    "Verdict",
    "Why",
    "say",
]

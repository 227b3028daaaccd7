"""Models in which a claim holds, or does not, by construction: a table of cases per chapter."""

from armillary.specimens.planted import (
    attention_cases,
    filter_cases,
    grid_cases,
    head_cases,
    others_cases,
    sphere_cases,
    stability_cases,
    word_cases,
    word_head_cases,
)
from armillary.specimens.planted.case import Case

CASES: tuple[Case, ...] = (
    *sphere_cases.CASES,
    *attention_cases.CASES,
    *word_head_cases.CASES,
    *word_cases.CASES,
    *stability_cases.CASES,
    *filter_cases.CASES,
    *grid_cases.CASES,
    *head_cases.CASES,
    *others_cases.CASES,
)

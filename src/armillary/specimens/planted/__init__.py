"""Models in which a claim holds, or does not, by construction: a table of cases per chapter."""

from armillary.specimens.planted import attention, filter, grid, heads, others, sphere, stability, word_heads, words
from armillary.specimens.planted.case import Case

CASES: tuple[Case, ...] = (
    *sphere.CASES,
    *attention.CASES,
    *word_heads.CASES,
    *words.CASES,
    *stability.CASES,
    *filter.CASES,
    *grid.CASES,
    *heads.CASES,
    *others.CASES,
)

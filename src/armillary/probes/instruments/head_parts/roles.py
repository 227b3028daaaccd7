"""What is a head called? After the kind of token that takes most of its attention, by two thresholds."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from armillary.probes.machinery import Floats, T

MIXED = "mixed"
ROLES = {
    "previous": ("P", "the token before"),
    "next": ("N", "the token after"),
    "first": ("F", "the first token"),
    "self": ("S", "itself"),
    "same": ("W", "the same word earlier"),
    "induction": ("I", "what came after it then"),
    "content": ("C", "words wherever they stand"),
}
"""Each kind with its letter and in words."""

KINDS = tuple(kind for kind in ROLES if kind != "content")
"""Kinds of token; that a pattern depends on what the words are is no kind of token."""

SPECIALITIES = tuple(kind for kind in KINDS if kind != "first")
"""Kinds that can be a speciality. Heads that have nothing to do rest on the first token."""

MEANINGS = {
    "previous": "attention to the token before",
    "next": "attention to the token after; empty where heads see none",
    "first": "attention to the first token",
    "self": "attention to the token itself",
    "same": "attention to the same word elsewhere, where it has stood",
    "induction": "attention to what followed the same token, on random tokens repeated once",
    "content": "share of attention that depends on the words: total variation from the mean pattern of other texts",
}


def name_roles(scores: Mapping[str, Floats]) -> NDArray[np.str_]:
    """[layer, head]: the kind that takes half of a head's attention or more; 'content' only where no kind of token
    does, since a head that looks for a word depends on words too; 'mixed' where nothing reaches half.

    >>> name_roles({"first": np.array([[0.7, 0.1]]), "content": np.array([[0.6, 0.5]])}).tolist()
    [['first', 'content']]
    """
    best, names = _strongest(scores, T.role_share)
    return np.where(best >= T.role_share, names, MIXED)


def letters(scores: Mapping[str, Floats]) -> list[str]:
    """A string a layer: a capital for a role, a small letter where a head leans to a kind, a dot elsewhere.

    >>> letters({"first": np.array([[0.7, 0.3, 0.1]])})
    ['Ff·']
    """
    roles = name_roles(scores)
    best, names = _strongest(scores, T.role_leaning)
    marks = {name: mark for name, (mark, _) in ROLES.items()}
    small = np.where(best >= T.role_leaning, _each(names, {name: mark.lower() for name, mark in marks.items()}), "·")
    return ["".join(row) for row in np.where(roles == MIXED, small, _each(roles, {**marks, MIXED: ""}))]


def _each(names: NDArray[np.str_], meanings: Mapping[str, str]) -> NDArray[np.str_]:
    return np.array([meanings[str(name)] for name in names.ravel()]).reshape(names.shape)


def _strongest(scores: Mapping[str, Floats], least: float) -> tuple[Floats, NDArray[np.str_]]:
    """The largest score and its kind; that of content where no other reaches `least`."""
    kinds = [kind for kind in KINDS if kind in scores]
    stacked = np.stack([np.nan_to_num(scores[kind]) for kind in kinds])
    best, names = stacked.max(0), np.array(kinds, dtype="<U9")[stacked.argmax(0)]
    if "content" not in scores:
        return best, names
    content = np.nan_to_num(scores["content"])
    fallback = (best < least) & (content >= least)
    return np.where(fallback, content, best), np.where(fallback, "content", names)

"""The top keys of nouns as tables: how clear each head is, and which tokens every noun finds."""

import numpy as np

from armillary.probes.attention.lexicon.keys.top_keys import KINDS, TOP, TopKeys
from armillary.probes.attention.lexicon.known_words import token_cells, vocabulary
from armillary.probes.machinery import Evidence, Flags, Floats, cells, head_table, table
from armillary.results import Table


def clarity_table(evidence: Evidence, keys: TopKeys, p: Floats, clear: Flags) -> Table:
    """One row per head."""
    itself, form, relative = np.moveaxis(keys.kinds.mean(2), -1, 0)
    return head_table(
        evidence.anatomy,
        cells(
            "clarity", f"share of nouns with itself, a form or a related noun among the top {TOP} keys", keys.clarity
        ),
        cells("chance", "the same with every noun's keys assigned to other, unrelated nouns", keys.chance),
        cells("excess", "clarity minus chance", keys.excess.mean(0)),
        cells("itself", "share of nouns with the same token among the top keys", itself),
        cells("form", "share with another form: plural, -ed, -ing, other case or space", form),
        cells("relative", "share with a related noun of the list, or a form of it", relative),
        cells(
            "clarity_biased", "clarity with the query's bias included, as in the running model", keys.biased.mean(-1)
        ),
        cells("p_value", "share of permuted queries that reach this clarity", p),
        cells("clear", "is it significant after correcting for all heads, and excess large enough?", clear),
    )


def key_table(evidence: Evidence, keys: TopKeys, nouns: dict[str, int], layer: int) -> Table:
    """The top keys of every noun in every head of a layer."""
    heads = [f"L{layer}H{head}" for head in range(keys.keys.shape[1])]
    texts = [vocabulary(evidence).texts[token] for token in nouns.values()]
    # Nouns first, then heads.
    best, kinds = (array[layer].swapaxes(0, 1).reshape(-1, array.shape[-1]) for array in (keys.keys, keys.kinds))
    return table(
        cells("noun", "the query", np.repeat(texts, len(heads))),
        cells("head", "attention head", heads * len(texts)),
        token_cells(evidence, "key", "token whose key scores highest by z W_QK zᵀ without biases", best),
        cells(
            "found",
            "what is among them: itself, form, relative, or none",
            [", ".join(np.array(KINDS)[flags]) or "none" for flags in kinds],
        ),
    )

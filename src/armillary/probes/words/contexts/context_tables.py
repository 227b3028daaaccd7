"""How are contextual states shown? Tables by site and by word, and lines over the depth."""

import numpy as np

from armillary.probes.machinery import MODEL, RANDOM, SHUFFLED, Floats, T, cells, interval_cells, line, table
from armillary.probes.words.contexts.context_measures import ContextMeasures
from armillary.probes.words.senses.clusters import NEAR, OFF
from armillary.probes.words.senses.homographs import listed
from armillary.results import Quantity, Table

SENSE = "share of comparisons in which the sentence with the same sense is nearer"


def context_notes(measures: ContextMeasures) -> tuple[str, ...]:
    senses = measures.passes.senses
    words = len({row.word for row in listed()})
    return (
        f"{len(senses.words)} of {words} listed words were used, in {senses.sentences} of {len(listed())} sentences: "
        "the word is one token, and no token is unknown.",
        f"{measures.partners} sampled tokens meet their own word in another document.",
        "Attention off is measured on the evaluation text, the other arms on the whole text.",
    )


def context_table(measures: ContextMeasures) -> Table:
    same, other = measures.cosines().T
    scores = measures.passes.senses.arms.get(MODEL)
    return table(
        cells("site", "norm site", measures.sites),
        interval_cells(
            "own_share",
            "(same_word − different_words)/(1 − different_words): what a word's states share beyond all words",
            measures.own_by_site(),
        ),
        cells("same_word", "mean cosine of z between two occurrences of one word in different documents", same),
        cells("different_words", "the same of different words", other),
        cells("off", "own share with attention off", measures.own_by_site(OFF)[:, 0]),
        cells(
            "neighbours",
            "share of the variance within words that neighbours predict",
            measures.neighbours_by_site(MODEL)[:, 0],
        ),
        cells("sense", f"{SENSE}, mean over words", np.full(len(same), np.nan) if scores is None else scores.mean(0)),
    )


def sense_table(measures: ContextMeasures) -> Table:
    arms = measures.passes.senses.arms
    columns = {
        MODEL: ("sense", SENSE),
        OFF: ("off", "the same with attention off"),
        SHUFFLED: ("shuffled", "the same with the words before it shuffled"),
        NEAR: ("near", "the same with the two words before it alone"),
    }
    twins = [arms[arm][:, measures.later].mean(1) for arm in measures.sense_arms]
    untrained = [cells("untrained", "the same in untrained models, mean", np.mean(twins, axis=0))] if twins else []
    return table(
        cells("word", "a word with two senses", measures.passes.senses.words),
        *(cells(*column, arms[arm][:, measures.later].mean(1)) for arm, column in columns.items()),
        *untrained,
    )


def context_quantities(measures: ContextMeasures) -> tuple[Quantity, ...]:
    sites = list(measures.sites)
    twins = [measures.neighbours_by_site(arm)[:, 0] for arm in measures.evidence.twins]
    own = line(
        "own share of a word's state",
        "similarity of two occurrences of a word beyond that of two words; 1: the word alone",
        "share",
        "depth",
        sites,
        measures.own_by_site(),
        {
            RANDOM: measures.own_twins(),
            SHUFFLED: measures.own_by_site(SHUFFLED)[:, 0],
            OFF: measures.own_by_site(OFF)[:, 0],
        },
        _limit(T.context_own, len(sites)),
    )
    beside = line(
        "what neighbours predict of a word's state",
        "share of the variance within words that the embeddings of neighbouring words predict",
        "share",
        "depth",
        sites,
        measures.neighbours_by_site(MODEL),
        {RANDOM: np.mean(twins, axis=0), SHUFFLED: measures.neighbours_by_site(SHUFFLED)[:, 0]},
        _limit(T.context_neighbours, len(sites)),
    )
    return (*_sense_line(measures, sites), own, beside)


def _limit(value: float, count: int) -> dict[str, Floats]:
    return {f"the limit: {value}": np.full(count, value)}


def _sense_line(measures: ContextMeasures, sites: list[str]) -> tuple[Quantity, ...]:
    arms = measures.passes.senses.arms
    if MODEL not in arms:
        return ()
    controls = {"the sentence shuffled": arms[SHUFFLED].mean(0), NEAR: arms[NEAR].mean(0), OFF: arms[OFF].mean(0)}
    if measures.sense_arms:
        controls = {RANDOM: np.mean([arms[arm].mean(0) for arm in measures.sense_arms], axis=0), **controls}
    return (
        line(
            "how often the same sense is nearer",
            f"words with two senses: {SENSE}, mean over words",
            "share of comparisons",
            "depth",
            sites,
            measures.sense_by_site(),
            controls,
            {"chance: ½": np.full(len(sites), 0.5), **_limit(T.context_sense, len(sites))},
        ),
    )

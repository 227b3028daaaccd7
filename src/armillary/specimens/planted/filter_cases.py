"""Chapter E: which feed-forwards discard, compress, and select by context?"""

from armillary.anatomy import Anatomy
from armillary.specimens.models.texts import chained, corpus
from armillary.specimens.models.units.filter_units import filtering, plain, selector, skewed, steady, whisperer
from armillary.specimens.models.units.unit_writes import (
    copying,
    dense,
    detectors,
    gated,
    misread,
    silencing,
    summarising,
    two_units,
    writer,
)
from armillary.specimens.planted.case import Case, Specimen, certain, sized


def on_chain(anatomy: Anatomy, seed: int) -> Specimen:
    return anatomy, chained(24, 40, seed=seed)


def on_text(anatomy: Anatomy, seed: int) -> Specimen:
    return anatomy, corpus(24, 40, seed=seed)


CASES: tuple[Case, ...] = (
    sized(
        "discard, one unit a word",
        "ffn.discard",
        "supported",
        "share of units that detect a word; the others are random",
        lambda share, seed: on_chain(selector(share=share, seed=seed), seed),
        matters=0.5,
    ),
    certain(
        "discard, one unit a word, GELU",
        "ffn.discard",
        "supported",
        lambda seed: on_chain(selector("gelu_new", seed=seed), seed),
    ),
    certain("discard, a centred stream", "ffn.discard", "refuted", lambda seed: on_text(plain(seed=seed), seed)),
    certain("discard, mostly above zero", "ffn.discard", "refuted", lambda seed: on_text(skewed(-1, seed=seed), seed)),
    certain(
        "discard, below zero but not gone",
        "ffn.discard",
        "refuted",
        lambda seed: on_text(plain("gelu_new", -1.0, seed=seed), seed),
    ),
    sized(
        "compress, rare and far above",
        "ffn.compress",
        "supported",
        "share of such coordinates; the others are Gaussian around zero",
        lambda share, seed: on_text(skewed(1, share=share, seed=seed), seed),
        (0.1, 0.25, 0.5, 1.0),
        matters=0.5,
    ),
    certain("compress, random directions", "ffn.compress", "refuted", lambda seed: on_text(plain(seed=seed), seed)),
    certain(
        "compress, untrained but large",
        "ffn.compress",
        "refuted",
        lambda seed: on_text(plain("gelu_new", size=5.0, seed=seed), seed),
    ),
    certain(
        "compress, random directions shifted down",
        "ffn.compress",
        "refuted",
        lambda seed: on_text(plain(shift=-1.0, seed=seed), seed),
    ),
    certain(
        "compress, less than random directions",
        "ffn.compress",
        "refuted",
        lambda seed: on_text(skewed(-1, -1.0, seed=seed), seed),
    ),
    certain(
        "compress, nothing is cut",
        "ffn.compress",
        "refuted",
        lambda seed: on_text(plain("gelu_new", 8.0, seed=seed), seed),
    ),
    sized(
        "select, places are discarded",
        "ffn.select",
        "supported",
        "share of discarded units that say nothing of the word",
        lambda share, seed: on_chain(filtering(share=share, seed=seed), seed),
        (0.5, 0.75, 1.0),
        matters=0.75,
    ),
    certain(
        "select, places are discarded, GELU",
        "ffn.select",
        "supported",
        lambda seed: on_chain(filtering("gelu_new", seed=seed), seed),
    ),
    certain("select, the same units always", "ffn.select", "refuted", lambda seed: on_chain(steady(seed), seed)),
    certain("select, said from below zero", "ffn.select", "refuted", lambda seed: on_chain(whisperer(seed), seed)),
    certain("forward store, one unit a word", "ffn.store", "supported", lambda seed: on_chain(detectors(seed), seed)),
    certain("forward store, random units", "ffn.store", "supported", lambda seed: on_text(dense(seed=seed), seed)),
    certain(
        "forward store, an axis that all words share",
        "ffn.store",
        "supported",
        lambda seed: on_text(dense(8, seed), seed),
    ),
    certain(
        "forward store, gated, one unit a word",
        "ffn.store",
        "supported",
        lambda seed: on_chain(gated(True, seed), seed),
    ),
    certain(
        "forward store, gated, random units",
        "ffn.store",
        "supported",
        lambda seed: on_text(gated(False, seed), seed),
    ),
    sized(
        "forward store, a gain misread",
        "ffn.store",
        "refuted",
        "how far a gain is read as 1",
        lambda share, seed: on_text(misread(dense(seed=seed), share), seed),
        (0.1, 1.0),
        matters=0.1,
    ),
    sized(
        "write, few directions",
        "ffn.write",
        "supported",
        "share of W_out that writes along two directions; the rest writes along all",
        lambda share, seed: on_text(writer(*[summarising(share, seed=seed)] * 2, seed=seed), seed),
        matters=0.75,
    ),
    certain(
        "write, few units above zero",
        "ffn.write",
        "supported",
        lambda seed: on_text(writer(*[silencing(seed=seed)] * 2, seed=seed), seed),
    ),
    certain(
        "write, a copy of the input",
        "ffn.write",
        "refuted",
        lambda seed: on_text(writer(copying(), copying(), seed=seed), seed),
    ),
    certain(
        "write, simple before training",
        "ffn.write",
        "refuted",
        lambda seed: on_text(writer(*[two_units(seed)] * 2, seed=seed), seed),
    ),
    certain(
        "write, one layer of two",
        "ffn.write",
        "qualified",
        lambda seed: on_text(writer(copying(), summarising(seed=seed), seed=seed), seed),
    ),
)

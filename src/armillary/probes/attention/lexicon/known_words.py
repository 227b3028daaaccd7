"""Which words of our lists does a model know whole, and when is a token a form of a word?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from armillary.probes.attention.weights import head_names, heads
from armillary.probes.machinery.evidence import MODEL, RANDOM, Evidence, Flags, Floats, Ints
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.results import Claim, Column, Finding, Quantity, Statistic, Table

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy.folded import Folded
    from armillary.anatomy.space import Vectors
    from armillary.anatomy.vocabulary import Vocabulary

_PLURALS = {"man": "men", "woman": "women", "child": "children", "foot": "feet", "tooth": "teeth", "mouse": "mice"}


def forms(noun: str) -> frozenset[str]:
    """A noun and its inflections by spelling, in lower case: plural or singular, and -ed, -ing as of a verb.

    Rules of spelling, not a dictionary: 'houseed' is a form too, and harms nobody because no token is spelt so.

    >>> sorted(forms("story"))[:3], "places" in forms("place"), "placing" in forms("place"), "men" in forms("man")
    (['storied', 'stories', 'story'], True, True, True)
    """
    base = noun.casefold()
    made = {base, base + "s", base + "es", base + "ed", base + "ing", base + base[-1] + "ed", base + base[-1] + "ing"}
    if base.endswith("y"):
        made |= {base[:-1] + "ies", base[:-1] + "ied"}
    if base.endswith("e"):
        made |= {base + "d", base[:-1] + "ing"}
    if base.endswith(("f", "fe")):
        made.add(base.removesuffix("e").removesuffix("f") + "ves")
    if base.endswith("s"):
        made.add(base[:-1])
    return frozenset(made | {_PLURALS.get(base, base)})


def vocabulary(evidence: Evidence, arm: str = MODEL) -> "Vocabulary":
    """The model's tokens; the twin, which has no tokenizer of its own, is read with the same ones."""
    from armillary.anatomy.vocabulary import Vocabulary

    key = ("vocabulary", arm == RANDOM)
    if key not in evidence.kept:
        if arm == RANDOM:
            assert evidence.twin is not None
            evidence.kept[key] = replace(vocabulary(evidence), anatomy=evidence.twin)
        else:
            evidence.kept[key] = Vocabulary.of(evidence.anatomy)
    return evidence.kept[key]


def whole(evidence: Evidence, words: Sequence[str], spaced: bool = True) -> dict[str, int]:
    """Those of the words that are one token here, with its id: after a space if the vocabulary has it so, else bare
    (`spaced=False`: the other way round), else in lower case where a vocabulary knows no capitals."""
    known = vocabulary(evidence)
    index: dict[str, int] = {}
    for i in np.flatnonzero(known.shown):
        index.setdefault(known.texts[i], int(i))
    found = {}
    for word in dict.fromkeys(words):
        order = (f" {word}", word) if spaced else (word, f" {word}")
        for text in (*order, word.lower()):
            if text in index:
                found[word] = index[text]
                break
    return found


def spelling(evidence: Evidence, ids: Mapping[str, int]) -> str:
    """How many of the words are tokens that begin with a space, for a sentence."""
    led = sum(vocabulary(evidence).texts[i].startswith(" ") for i in ids.values())
    if led == len(ids):
        return "as tokens with a leading space"
    return "as bare tokens" if not led else f"{led} as tokens with a leading space, {len(ids) - led} bare"


def marks(evidence: Evidence, nouns: Sequence[Sequence[str]]) -> Flags:
    """[noun, token]: which tokens are spelt as a form of any of each entry's words, whatever their case and space."""
    texts = [text.strip().casefold() for text in vocabulary(evidence).texts]
    spelt: dict[str, list[int]] = {}
    for i in np.flatnonzero(vocabulary(evidence).shown):
        spelt.setdefault(texts[i], []).append(int(i))
    made = np.zeros((len(nouns), len(texts)), dtype=bool)
    for row, words in enumerate(nouns):
        for form in {form for word in words for form in forms(word)}:
            made[row, spelt.get(form, [])] = True
    return made


def folded(evidence: Evidence, arm: str, layer: int) -> "Folded":
    """A layer's heads on directions. The twin's are not kept: nothing else asks for them."""
    from armillary.anatomy.folded import fold

    if arm == RANDOM:
        assert evidence.twin is not None
        return fold(evidence.twin, layer)
    return heads(evidence)[layer].folded


def spheres(evidence: Evidence, arm: str, layers: Sequence[int], ids: Ints) -> Iterator["Vectors"]:
    """For each layer the tokens' directions at the norm it reads, float32.

    A direction depends on a norm's kind and ε alone, and most models have one of each: worked out again where it differs.
    """
    import torch

    from armillary.anatomy.folded import reading_norm
    from armillary.anatomy.space import RAW, Space, Vectors

    tokens = vocabulary(evidence, arm)
    rows = torch.from_numpy(ids).to(tokens.anatomy.device)
    kept: tuple[object, Tensor] | None = None
    for layer in layers:
        site, norm = reading_norm(tokens.anatomy, layer)
        alike = (norm.kind, norm.eps) if norm is not None else ()
        if kept is None or kept[0] != alike:
            kept = (alike, tokens.directions(layer, rows).values.float())
        yield Vectors(kept[1], RAW if norm is None else Space("direction", site))


def queries(layer: "Folded", z: "Vectors", biased: bool = False) -> "Tensor":
    """[h, n, k] in the dtype of z, turned by Δ = 0 and scaled: with `keys` their product is z W_QK zᵀ, or `biased` with the
    query's bias, which gives every key a term of its own. q/k-norms divide by each token's own length."""
    query = z.of(layer.reads, "a query") @ layer.A_Q.to(z.values)
    if biased:
        query = query + layer.a_Q.to(query)[:, None]
    if layer.attention.q_norm is not None:
        query = layer.attention.q_norm(query)
    return query @ layer.turn(0).to(query) * layer.attention.scale


def keys(layer: "Folded", z: "Vectors", head: int | None = None) -> "Tensor":
    """[h, n, k], or of one head [n, k]; without the keys' bias, which adds the same to all keys of a query."""
    matrices = layer.A_K if head is None else layer.A_K[head]
    key = z.of(layer.reads, "a key") @ matrices.to(z.values)
    return key if layer.attention.k_norm is None else layer.attention.k_norm(key)


def thirds(layers: int) -> tuple[range, range]:
    """The first and the last third of the layers, at least one each.

    >>> thirds(7), thirds(2)
    ((range(0, 2), range(5, 7)), (range(0, 1), range(1, 2)))
    """
    size = max(1, layers // 3)
    return range(size), range(layers - size, layers)


def shown_layers(layers: int) -> list[int]:
    """First, middle and last layer: those whose words are written out.

    >>> shown_layers(12), shown_layers(1)
    ([0, 5, 11], [0])
    """
    return sorted({0, (layers - 1) // 2, layers - 1})


def resampled(values: Floats, statistic: Callable[[Floats], Floats], evidence: Evidence) -> tuple[float, float, float]:
    """Value and 95 % interval of a statistic of means [draw, …], by bootstrap over the first axis of values: the words
    or pairs, which are a sample of those that might have been listed."""
    from armillary.geometry.resample import bootstrap

    found = bootstrap(values, lambda summed: statistic(summed / len(values)), seed=evidence.seed)
    return float(found.value), float(found.low), float(found.high)


def by_depth(evidence: Evidence, name: str, meaning: str, unit: str, values: Floats, enough: float) -> Quantity:
    """A line over layers of values [word, layer], with its interval over words and what counts as large enough."""
    from armillary.geometry.resample import bootstrap

    line = bootstrap(values, lambda summed: summed / len(values), seed=evidence.seed)
    layers = [f"L{layer}" for layer in range(values.shape[1])]
    theory = {"chance: 0": np.zeros(len(layers)), f"enough: {enough}": np.full(len(layers), enough)}
    return Quantity(name, meaning, unit, ("layer",), {"layer": layers}, line.value, line.low, line.high, theory=theory)


def undecided(claim: Claim, evidence: Evidence, needs: str, n: int = 0) -> Finding:
    """Nothing can be read in words: the finding that says what is needed."""
    nothing = float("nan")
    return Finding(
        claim=claim,
        verdict="undecided",
        statistic=Statistic("not measured", nothing, nothing, nothing),
        n=n,
        controls=(),
        reading=needs,
        headline="Without words nothing can be concluded",
        table=Table((Column("head", "attention head"),), tuple((name,) for name in head_names(evidence.anatomy))),
    )


def wordless(claim: Claim, evidence: Evidence, words: Sequence[str] = ()) -> Finding | None:
    """The undecided finding where there is no tokenizer, or too few of the words are single tokens; else None."""
    if evidence.anatomy.tokenizer is None:
        return undecided(
            claim, evidence, "The model came without a tokenizer, so nothing can be read in words; pass one."
        )
    n = len(whole(evidence, words))
    if words and n < T.words_least:
        return undecided(
            claim,
            evidence,
            f"Only {n} of {len(set(words))} listed words are single tokens here, and {T.words_least} are the least; a "
            "vocabulary of whole English words is needed.",
            n,
        )
    return None


def exceed(observed: Floats, null: Floats) -> Floats:
    """p-values [...] that the null's draws [draw, ...] reach what was observed, the observation counted among them.

    >>> exceed(np.array([3.0]), np.array([[1.0], [2.0], [4.0]]))
    array([0.5])
    """
    return np.asarray((1 + (null >= observed - 1e-12).sum(0)) / (1 + len(null)))


def discoveries(p: Floats) -> Flags:
    """Which heads [layer, head] stand out after correcting for their number."""
    from armillary.geometry.resample import benjamini_hochberg

    return benjamini_hochberg(p.reshape(-1), T.false_discovery).reshape(p.shape)


def token_cells(evidence: Evidence, name: str, ids: Ints) -> dict[str, str]:
    """'name 1', 'name 2' … → the tokens' text."""
    texts = vocabulary(evidence).texts
    return {f"{name} {i + 1}": texts[token] for i, token in enumerate(ids)}


def token_columns(name: str, meaning: str, top: int) -> list[Column]:
    return [Column(f"{name} {i + 1}", f"{meaning}, number {i + 1}") for i in range(top)]


def sampled_words(evidence: Evidence, nouns: Mapping[str, int]) -> Ints:
    """Token ids: the nouns, and printable tokens drawn at random up to four words for every axis of a head (256 at
    least), so that a covariance in its space can be estimated."""
    shown = np.setdiff1d(np.flatnonzero(vocabulary(evidence).shown), list(nouns.values()))
    more = max(256, 4 * evidence.anatomy.k) - len(nouns)
    drawn = np.random.default_rng(evidence.seed).permutation(shown)[: max(more, 0)]
    return np.concatenate([np.array(list(nouns.values()), dtype=np.int64), np.sort(drawn)])

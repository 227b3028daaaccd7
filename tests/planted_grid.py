"""Models with known heads: heads whose axes can change places, heads with one purpose, states correlated over a known
distance; and text that a model wrote itself, so that any change of it costs something."""

import math
from collections.abc import Callable, Sequence
from functools import cache

import torch
import transformers as tr
from planted import corpus, generator, tried
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.capture import run, still
from armillary.flow.tokens import Corpus, Window
from armillary.probes.grid.coarse import Coarse
from armillary.probes.grid.gradients import HeadGradients
from armillary.probes.grid.head_axes import HeadAxes
from armillary.probes.grid.nonlinear import Nonlinear
from armillary.probes.grid.orthogonality import Orthogonality
from armillary.probes.grid.specialise import HeadSpecialisation
from armillary.results import VERDICTS, Finding

D, HEADS, K, LAYERS, WORDS, CONTEXT = 32, 4, 8, 2, 60, 64


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


def gpt2(
    change: Callable[[int, Tensor, Tensor, Tensor, Tensor], None] | None = None,
    layers: int = LAYERS,
    heads: int = HEADS,
    words: Tensor | None = None,
    places: Tensor | None = None,
    sharp: float = 0.4,
) -> Anatomy:
    """Random heads that write much; `change` may alter a layer's W_Q, W_K, W_V [d, d] and W_O [d, d] in place."""
    words = normal(WORDS, D, seed=1) if words is None else words
    d = words.shape[1]
    config = tr.GPT2Config(
        n_embd=d,
        n_layer=layers,
        n_head=heads,
        vocab_size=len(words),
        n_positions=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = tr.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.wte.weight.copy_(words)
        model.transformer.wpe.weight.copy_(torch.zeros(CONTEXT, d) if places is None else places)
        model.lm_head.weight.copy_(sharp * normal(len(words), d, seed=2))
        for layer, block in enumerate(model.transformer.h):
            block.mlp.c_proj.weight.zero_()
            parts = [normal(d, d, seed=10 * layer + part + 3) / math.sqrt(d) for part in range(4)]
            parts[3] *= 2
            if change is not None:
                change(layer, *parts)
            block.attn.c_attn.weight.copy_(torch.cat(parts[:3], 1))
            block.attn.c_proj.weight.copy_(parts[3])
    return read(model, "planted")


def written(anatomy: Anatomy, documents: int = 24, length: int = 40, seed: int = 5) -> Corpus:
    """Text drawn from the model itself, token by token: no other model predicts it better on average."""
    draw = generator(seed)
    ids = torch.randint(0, anatomy.vocabulary, (documents, 1), generator=draw)
    with still(anatomy.model):
        while ids.shape[1] < length:
            chances = run(anatomy, ids, logits=True)[:, -1].float().softmax(-1)
            ids = torch.cat((ids, torch.multinomial(chances, 1, generator=draw)), 1)
    windows = tuple(Window(i, tuple(row)) for i, row in enumerate(ids.tolist()))
    return Corpus(windows, "planted", len(windows), ids.numel(), ())


# Axes.


def interchangeable(results: bool = True, queries: bool = True) -> Anatomy:
    """All axes of a head are read alike: of its results W_O takes the sum, of its queries the keys do."""

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        if results:
            rows = W_O.reshape(HEADS, K, D)
            rows.copy_(rows[:, :1].clone().expand_as(rows))
        if queries:
            columns = W_K.reshape(D, HEADS, K)
            columns.copy_(2 * columns[..., :1].clone().expand_as(columns))

    return gpt2(change)


# Heads with one purpose.

PLACE, WORD, BEFORE = slice(0, 64), slice(64, 128), slice(128, 192)
"""Where the stream of `purposeful` keeps a token's place, its word, and the word before it."""


def purposeful(plan: Sequence[Sequence[str]], words: int = 40) -> Anatomy:
    """One purpose per head: previous, first, self, same, induction (a layer after previous), uniform or random."""
    codes = torch.eye(192)
    table = 6 * codes[WORD][:words]
    places = 6 * codes[PLACE]

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        for side in (W_Q, W_K, W_V, W_O):
            side.zero_()
        for head, purpose in enumerate(plan[layer]):
            own = slice(64 * head, 64 * head + 64)
            Q, K = (side[:, own] for side in (W_Q, W_K))
            if purpose in ("previous", "first", "self"):
                K[PLACE] = torch.eye(64)
                Q[PLACE] = {
                    "previous": torch.eye(64).roll(-1, 1),
                    "first": torch.eye(64)[:1].expand(64, 64),
                    "self": torch.eye(64),
                }[purpose]
            elif purpose in ("same", "induction"):
                Q[WORD], K[WORD if purpose == "same" else BEFORE] = torch.eye(64), torch.eye(64)
            elif purpose == "random":
                Q.copy_(normal(192, 64, seed=90 + head)), K.copy_(normal(192, 64, seed=80 + head))
            Q *= 3
            if purpose == "previous":
                W_V[WORD, own] = torch.eye(64)
                W_O[own, BEFORE] = torch.eye(64)

    return gpt2(change, layers=len(plan), heads=3, words=table, places=places)


# Heads that matter to each other.


def writing(size: float) -> Anatomy:
    """Random heads that write much or little: the less they write, the less they depend on each other."""

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        W_O.mul_(size)

    return gpt2(change)


def independent() -> Anatomy:
    """Heads whose writes change no gradient: a large direction that all words share, that no head writes and that the
    output layer does not read, keeps the norm's scale, and predictions are nearly flat."""

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        W_O[:, :2] = 0

    words = normal(WORDS, D, seed=1)
    words[:, 0], words[:, 1] = 400.0, -400.0
    anatomy = gpt2(change, layers=1, words=words, sharp=0.001)
    with torch.no_grad():
        anatomy.model.lm_head.weight[:, :2] = 0
    return read(anatomy.model, "planted")


# Spaces of heads.


def reading(rank: int, words: Tensor | None = None, others: int | None = None) -> Anatomy:
    """Heads that read `rank` directions each, every second one `others` if given, and write nothing."""

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        W_O.zero_()
        for part, side in enumerate((W_Q, W_K, W_V)):
            for head in range(HEADS):
                seed, axes = 100 * layer + 10 * head + part, others if others and head % 2 else rank
                read, spread = (torch.linalg.qr(normal(n, n, seed=seed + n))[0][:, :axes] for n in (D, K))
                side[:, K * head : K * (head + 1)] = read @ spread.T

    return gpt2(change, words=words)


def leaning(size: float = 3.0) -> Tensor:
    """Gaussian words that share one direction."""
    return normal(WORDS, D, seed=1) + size * normal(1, D, seed=3)


# Matrices that bend the sphere, or do not.


def bending(steep: float) -> Anatomy:
    """Every matrix has singular values 1 to 10^−steep, on the plane ⟂ 1 that LayerNorm leaves; 0 makes isometries."""
    plane = torch.linalg.qr(torch.cat((torch.ones(D, 1), normal(D, D - 1, seed=21)), 1))[0][:, 1:]

    def steep_matrix(rows: int, columns: int, seed: int) -> Tensor:
        left = plane if rows == D else torch.linalg.qr(normal(rows, D - 1, seed=seed))[0]
        right = torch.linalg.qr(normal(columns, D - 1, seed=seed + 1))[0]
        return (left * torch.logspace(0, -steep, D - 1)) @ right.T

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        for side in (W_Q, W_K, W_V):
            values = torch.logspace(0, -steep, K)[:, None]
            for head in range(HEADS):
                # The same for queries and keys, so that their product is as steep as they are.
                turn = torch.linalg.qr(normal(K, K, seed=50 * layer + 10 * head))[0]
                side[:, K * head : K * (head + 1)] = plane[:, 7 * head : 7 * head + K - 1] @ (values * turn)[1:]
        W_O.copy_(torch.linalg.qr(normal(D, D, seed=layer))[0] * torch.logspace(0, -steep, D))

    anatomy = gpt2(change)
    with torch.no_grad():
        for layer, block in enumerate(anatomy.model.transformer.h):
            block.mlp.c_fc.weight.copy_(steep_matrix(D, 4 * D, 31 + layer))
            block.mlp.c_proj.weight.copy_(steep_matrix(4 * D, D, 41 + layer))
    return read(anatomy.model, "planted")


def bulging(steep: bool) -> Anatomy:
    """Words at three angles to one direction, to all sides of it. Matrices read that direction alone (`steep`), whose
    cosine no linear map of a word's shadow tells, or all directions alike. Heads and feed-forwards write nothing."""
    plane = torch.linalg.qr(torch.cat((torch.ones(D, 1), normal(D, D - 1, seed=21)), 1))[0][:, 1:]
    angles = torch.tensor([20.0, 50.0, 80.0]).deg2rad().repeat(WORDS // 3)[:, None]
    sides = torch.nn.functional.normalize(normal(WORDS, D - 2, seed=22), dim=1)
    sides[WORDS // 2 :] = -sides[: WORDS // 2]
    words = 6 * (torch.cos(angles) * plane[:, :1].T + torch.sin(angles) * (sides @ plane[:, 1:].T))
    reads = torch.eye(D)
    if steep:
        reads = 0.02 * reads + plane[:, :1] @ plane[:, :1].T

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        W_O.zero_()
        for side, seed in ((W_Q, 1), (W_K, 2), (W_V, 3)):
            side.copy_(reads @ torch.linalg.qr(normal(D, D, seed=seed))[0])

    # One head: W_QK of a narrow head is a projection and no rotation.
    anatomy = gpt2(change, heads=1, words=words)
    with torch.no_grad():
        for block in anatomy.model.transformer.h:
            block.mlp.c_fc.weight.copy_(reads @ torch.linalg.qr(normal(4 * D, D, seed=4))[0].T)
            block.mlp.c_proj.weight.zero_()
    return read(anatomy.model, "planted")


# States that are correlated over a distance.

TOPICS, TOPIC = 6, slice(122, 128)
"""Topics of ten words each; where the stream keeps a word's topic."""


def topical(gains: Sequence[float]) -> Anatomy:
    """A word's topic is a faint part of it, which each layer multiplies: no layer looks at any other word."""
    codes = torch.eye(128)
    table = torch.cat((torch.zeros(WORDS, 64), normal(WORDS, 58, seed=1), torch.zeros(WORDS, TOPICS)), 1)
    table[torch.arange(WORDS), 122 + torch.arange(WORDS) % TOPICS] = 1.0

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        for side in (W_Q, W_K, W_V, W_O):
            side.zero_()
        W_Q[PLACE, :64], W_K[PLACE, :64] = 30 * torch.eye(64), torch.eye(64)
        W_V[TOPIC, :TOPICS] = torch.eye(TOPICS)
        W_O[:TOPICS, TOPIC] = gains[layer] * torch.eye(TOPICS)

    return gpt2(change, layers=len(gains), heads=2, words=table, places=12 * codes[PLACE])


def topics(stay: float = 0.8, documents: int = 40, length: int = 60) -> Corpus:
    """Documents whose topic stays with this chance from word to word; words of a topic are drawn alike."""
    draw = generator(9)
    turns = torch.rand(documents, length, generator=draw) > stay
    topic = torch.randint(0, TOPICS, (documents, length), generator=draw)
    for t in range(1, length):
        topic[:, t] = torch.where(turns[:, t], topic[:, t], topic[:, t - 1])
    ids = topic + TOPICS * torch.randint(0, WORDS // TOPICS, (documents, length), generator=draw)
    windows = tuple(Window(i, tuple(row)) for i, row in enumerate(ids.tolist()))
    return Corpus(windows, "planted", documents, ids.numel(), ())


def averaging(windows: Sequence[int], size: float = 3.0) -> Anatomy:
    """Layers that add the mean of the last n words to each word, by position; 0 adds nothing."""
    codes = torch.eye(128)
    table = torch.cat((torch.zeros(WORDS, 64), normal(WORDS, 64, seed=1)), 1)

    def change(layer: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> None:
        for side in (W_Q, W_K, W_V, W_O):
            side.zero_()
        if windows[layer]:
            apart = torch.arange(64)[:, None] - torch.arange(64)
            W_Q[PLACE, :64] = ((apart >= 0) & (apart < windows[layer])).float() * 30
            W_K[PLACE, :64] = torch.eye(64)
            W_V[WORD, :64] = torch.eye(64)
            W_O[:64, WORD] = size * torch.eye(64)

    return gpt2(change, layers=len(windows), heads=2, words=table, places=12 * codes[PLACE])


def two_words(stay: float, documents: int = 24, length: int = 60) -> Corpus:
    """Documents of two words; a word repeats with this chance, so that C(Δ) = (2·stay − 1)^Δ."""
    draw = generator(8)
    turns = torch.rand(documents, length, generator=draw) > stay
    start = torch.randint(0, 2, (documents, 1), generator=draw)
    ids = (start + turns.cumsum(1)) % 2
    windows = tuple(Window(i, tuple(row)) for i, row in enumerate(ids.tolist()))
    return Corpus(windows, "planted", documents, ids.numel(), ())


Planted = tuple[Anatomy, Corpus]


def on_its_own_text(anatomy: Anatomy) -> Planted:
    return anatomy, written(anatomy)


def on_few_words(anatomy: Anatomy) -> Planted:
    return anatomy, corpus(20, 40, vocabulary=12)


def on_many_words(anatomy: Anatomy) -> Planted:
    return anatomy, corpus(20, 40, vocabulary=WORDS)


CASES: dict[str, tuple[type, str, Callable[[], Planted]]] = {
    "axes, interchangeable within heads": (HeadAxes, "supported", lambda: on_its_own_text(interchangeable())),
    "axes, interchangeable in results alone": (
        HeadAxes,
        "qualified",
        lambda: on_its_own_text(interchangeable(queries=False)),
    ),
    "axes, each with a part of its own": (HeadAxes, "refuted", lambda: on_its_own_text(gpt2())),
    "axes, one head": (HeadAxes, "undecided", lambda: on_its_own_text(gpt2(heads=1))),
    "roles, three purposes": (
        HeadSpecialisation,
        "supported",
        lambda: on_few_words(purposeful([["previous", "same", "first"]] * 2)),
    ),
    "roles, some heads": (
        HeadSpecialisation,
        "qualified",
        lambda: on_few_words(purposeful([["previous", "random", "uniform"]] * 2)),
    ),
    "roles, a sink": (
        HeadSpecialisation,
        "qualified",
        lambda: on_few_words(purposeful([["first", "first", "previous"]] * 2)),
    ),
    "roles, half rest on the first token": (
        HeadSpecialisation,
        "refuted",
        lambda: on_few_words(purposeful([["first", "first", "uniform"], ["first", "uniform", "uniform"]])),
    ),
    "roles, uniform": (HeadSpecialisation, "refuted", lambda: on_few_words(purposeful([["uniform"] * 3] * 2))),
    "roles, all alike": (HeadSpecialisation, "refuted", lambda: on_few_words(purposeful([["previous"] * 3] * 2))),
    "roles, random and sharp": (HeadSpecialisation, "refuted", lambda: on_few_words(purposeful([["random"] * 3] * 2))),
    "roles, one head": (HeadSpecialisation, "undecided", lambda: on_few_words(gpt2(heads=1))),
    "gradients, heads that no one notices": (HeadGradients, "supported", lambda: on_its_own_text(independent())),
    "gradients, heads that write little": (HeadGradients, "refuted", lambda: on_its_own_text(writing(0.05))),
    "gradients, heads that write much": (HeadGradients, "refuted", lambda: on_its_own_text(writing(1.0))),
    "gradients, one head": (HeadGradients, "undecided", lambda: on_its_own_text(gpt2(heads=1))),
    "pockets, two directions a head": (Orthogonality, "supported", lambda: on_many_words(reading(2))),
    "pockets, all directions": (Orthogonality, "refuted", lambda: on_many_words(reading(K))),
    "pockets, half of the heads": (Orthogonality, "qualified", lambda: on_many_words(reading(3, others=K))),
    "pockets, one direction for all words": (Orthogonality, "refuted", lambda: on_many_words(reading(K, leaning()))),
    "maps, of one direction": (Nonlinear, "supported", lambda: on_many_words(bulging(True))),
    "maps, of all directions": (Nonlinear, "refuted", lambda: on_many_words(bulging(False))),
    "maps, steep": (Nonlinear, "refuted", lambda: on_many_words(bending(3.0))),
    "maps, isometries": (Nonlinear, "refuted", lambda: on_many_words(bending(0.0))),
    "flow, a topic that layers bring out": (Coarse, "supported", lambda: (topical([1.5, 1.5, 1.5]), topics())),
    "flow, a topic brought out and put back": (Coarse, "qualified", lambda: (topical([9.0, -0.4, -0.4]), topics())),
    "flow, windows that grow": (Coarse, "refuted", lambda: (averaging([2, 4, 8]), corpus(150, 60, vocabulary=WORDS))),
    "flow, no window": (Coarse, "refuted", lambda: on_many_words(averaging([0, 0, 0]))),
}


@cache
def finding_of(case: str) -> Finding:
    """What a case's probe concludes, computed once for all tests."""
    probe, _, make = CASES[case]
    return tried(probe(), *make())


def whole(finding: Finding) -> None:
    """Every cell is a number or a word, every column is described, and the interval contains the value."""
    assert finding.verdict in VERDICTS and finding.reading and finding.headline
    assert (finding.why is not None) == (finding.verdict == "undecided")
    for table in (finding.table, *finding.more_tables.values()):
        assert all(column.meaning for column in table.columns)
        for cell in (cell for row in table.rows for cell in row):
            assert not (isinstance(cell, float) and math.isnan(cell)), finding.claim.id
    if finding.verdict != "undecided":
        assert finding.controls and finding.quantities and finding.table.rows and finding.n > 0
        assert finding.statistic.low <= finding.statistic.value + 1e-9
        assert finding.statistic.value <= finding.statistic.high + 1e-9
    assert finding.plot() is not None

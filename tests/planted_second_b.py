"""Models whose cycle, contrast, shared space, positions and axes are known, and what each claim must say of them."""

import math
from collections.abc import Callable, Sequence
from functools import cache

import torch
import transformers as tr
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.flow.capture import run, still
from armillary.flow.tokens import Corpus, Window
from armillary.probes.grid.privileged import Privileged
from armillary.probes.machinery.bench import Bench
from armillary.probes.machinery.probe import AnyProbe, Experimenter
from armillary.probes.machinery.shared_pass import gather
from armillary.probes.sphere.contrast import Contrast
from armillary.probes.sphere.isotropy import Isotropy
from armillary.probes.sphere.rotations import rotation
from armillary.probes.sphere.shared import Shared
from armillary.probes.stability.positions import Positions
from armillary.results import Finding

D, HEADS, K, LAYERS, WORDS, CONTEXT = 32, 4, 8, 2, 60, 64
Planted = tuple[Anatomy, Corpus]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def model(
    words: Tensor,
    places: Tensor | None = None,
    layers: int = LAYERS,
    heads: int = HEADS,
    attention: Callable[[int], tuple[Tensor, Tensor, Tensor, Tensor]] | None = None,
    feed_forward: Callable[[int], tuple[Tensor, Tensor]] | None = None,
    gains: Callable[[int], Tensor] | None = None,
    shifts: Callable[[int], Tensor] | None = None,
) -> Anatomy:
    """A GPT-2 that writes nothing, unless `attention` gives W_Q, W_K, W_V, W_O and `feed_forward` W_in, W_out of a
    layer; `gains` and `shifts` give the γ and β of both norms of a layer."""
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
    made = tr.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        made.transformer.wte.weight.copy_(words)
        made.transformer.wpe.weight.copy_(torch.zeros(CONTEXT, d) if places is None else places)
        made.lm_head.weight.copy_(0.4 * normal(len(words), d, seed=2))
        for layer, block in enumerate(made.transformer.h):
            for projection in (block.attn.c_proj, block.mlp.c_proj):
                projection.weight.zero_(), projection.bias.zero_()
            if attention is not None:
                *sides, out = attention(layer)
                block.attn.c_attn.weight.copy_(torch.cat(sides, 1)), block.attn.c_proj.weight.copy_(out)
            if feed_forward is not None:
                inner, out = feed_forward(layer)
                block.mlp.c_fc.weight.copy_(inner), block.mlp.c_proj.weight.copy_(out)
            for norm in (block.ln_1, block.ln_2):
                norm.weight.copy_(torch.ones(d) if gains is None else gains(layer))
                norm.bias.copy_(torch.zeros(d) if shifts is None else shifts(layer))
    return read(made, "planted")


def text(documents: int = 20, length: int = 40, words: int = WORDS, seed: int = 1) -> Corpus:
    """Documents of independent words."""
    ids = torch.randint(0, words, (documents, length), generator=torch.Generator().manual_seed(seed))
    return of_rows(ids.tolist())


def of_rows(rows: Sequence[Sequence[int]]) -> Corpus:
    windows = tuple(Window(i, tuple(row)) for i, row in enumerate(rows))
    return Corpus(windows, "planted", len(windows), sum(map(len, rows)), ())


# The cycle.

STEEP = torch.logspace(-0.6, 0.6, D)
"""How strong the axes of steep words are, from ¼ to 4."""
QUIET = 1e-3
"""Writes so small that the stream stays what the words are."""


def cycling(gain: Callable[[int], Tensor], write: Tensor) -> Planted:
    """Words on steep axes; every sublayer writes y through `write` [d, d], attention from the token itself."""

    def attention(layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        sharp = 30 * torch.eye(D)
        return sharp, sharp, torch.eye(D), QUIET * write

    def feed_forward(layer: int) -> tuple[Tensor, Tensor]:
        # gelu(a) − gelu(−a) = a.
        return torch.cat((torch.eye(D), -torch.eye(D), torch.zeros(D, 2 * D)), 1), QUIET * torch.cat(
            (write, -write, torch.zeros(2 * D, D))
        )

    words = normal(400, D, seed=1) * STEEP
    return model(words, attention=attention, feed_forward=feed_forward, gains=gain), text(words=400)


def one_axis() -> Tensor:
    """All axes summed into one direction."""
    return torch.outer(normal(D, seed=3), normal(D, seed=4)) / D


# Contrast.


def paired(spread: float, noise: float = 0.15) -> Planted:
    """Words in pairs of nearly one direction, one of them longer by `spread`, the other as much shorter."""
    directions = normal(150, D, seed=7).repeat_interleave(2, 0) + noise * normal(300, D, seed=8)
    lengths = torch.tensor([1 + spread, 1 - spread]).repeat(150)[:, None]
    return model(lengths * directions / directions.norm(dim=1, keepdim=True)), text(words=300)


# One space, or one for each layer.


def written(anatomy: Anatomy, documents: int = 24, length: int = 40, seed: int = 5) -> Corpus:
    """Text drawn from the model itself, token by token: any change of the model costs something."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, anatomy.vocabulary, (documents, 1), generator=draw)
    with still(anatomy.model):
        while ids.shape[1] < length:
            chances = run(anatomy, ids, logits=True)[:, -1].float().softmax(-1)
            ids = torch.cat((ids, torch.multinomial(chances, 1, generator=draw)), 1)
    return of_rows(ids.tolist())


def gained(gains: Callable[[int], Tensor], layers: int = 3) -> Planted:
    """Random heads that write much, behind norms of these gains; on text of its own."""

    def attention(layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        W_Q, W_K, W_V, W_O = (normal(D, D, seed=10 * layer + part + 30) / math.sqrt(D) for part in range(4))
        return W_Q, W_K, W_V, 2 * W_O

    anatomy = model(normal(WORDS, D, seed=1), layers=layers, attention=attention, gains=gains)
    return anatomy, written(anatomy)


def uneven(seed: int) -> Tensor:
    """Gains from 0.2 to 5, in an order of their own."""
    order = torch.randperm(D, generator=torch.Generator().manual_seed(seed))
    return torch.logspace(-0.7, 0.7, D)[order]


# Positions.


def placed(places: Tensor | None, beginnings: int = 0) -> Planted:
    """Words whose state is word and place; the first `beginnings` words of a document are of few kinds."""
    ids = torch.randint(0, 200, (40, 40), generator=torch.Generator().manual_seed(4))
    ids[:, :beginnings] %= 5
    return model(normal(200, D, seed=1), places=places), of_rows(ids.tolist())


def drifting() -> Tensor:
    """Places that move along one direction."""
    return torch.outer(torch.linspace(0, 1, CONTEXT), 8 * normal(D, seed=6))


# Axes.

MARKED = [0, 1, 8, 9, 16, 17, 24, 25]
"""Two axes of every head, one for each of eight frequent words."""


def marking(turned: bool = False) -> Planted:
    """Eight frequent words with an axis each; places fill the other axes, alike within a head. Queries, keys and values
    are the stream's own axes, results those of the token itself. `turned`: all of it in rotated axes."""
    others = [axis for axis in range(D) if axis not in MARKED]
    words, places = torch.zeros(108, D), torch.zeros(CONTEXT, D)
    words[torch.arange(8), MARKED] = 4.0
    words[8:, others] = 0.3 * normal(100, len(others), seed=11)
    for head in range(HEADS):
        own = [axis for axis in others if axis // K == head]
        common = normal(CONTEXT, 2, seed=12 + head) @ normal(2, len(own), seed=20 + head)
        places[:, own] = 2 * common + 2 * normal(CONTEXT, len(own), seed=40 + head)
    ids = torch.randint(8, 108, (40, 40), generator=torch.Generator().manual_seed(2))
    often = torch.rand(40, 40, generator=torch.Generator().manual_seed(3)) < 0.5
    ids = torch.where(often, ids % 8, ids)
    turn = rotation(D, 5, True).float() if turned else torch.eye(D)
    sharp, one = 30 * torch.eye(D), torch.eye(D)
    anatomy = model(words @ turn, places=places @ turn, attention=lambda layer: (sharp, sharp, one, 0 * one))
    return anatomy, of_rows(ids.tolist())


CASES: dict[str, tuple[type, str, Callable[[], Planted]]] = {
    "cycle, gains that even out, writes along one axis": (
        Isotropy,
        "supported",
        lambda: cycling(lambda layer: 1 / STEEP, one_axis()),
    ),
    "cycle, gains that even out in one layer of two": (
        Isotropy,
        "qualified",
        lambda: cycling(lambda layer: 1 / STEEP if layer else STEEP, one_axis()),
    ),
    "contrast, pairs of one direction and two lengths": (Contrast, "supported", lambda: paired(0.5)),
    "contrast, pairs of one direction and one length": (Contrast, "refuted", lambda: paired(0.0)),
    "contrast, words without pairs": (Contrast, "refuted", lambda: (model(normal(300, D, seed=1)), text(words=300))),
    "shared, one gain for all layers": (Shared, "supported", lambda: gained(lambda layer: uneven(1))),
    "shared, gains of different size": (
        Shared,
        "refuted",
        lambda: gained(lambda layer: torch.full((D,), 0.1 * 5**layer)),
    ),
    "shared, two layers alike and one not": (Shared, "qualified", lambda: gained(lambda layer: uneven(max(1, layer)))),
    "shared, gains of 1": (Shared, "undecided", lambda: gained(lambda layer: torch.ones(D))),
    "positions, that do not count": (Positions, "supported", lambda: placed(None)),
    "positions, along one direction": (Positions, "refuted", lambda: placed(drifting())),
    "positions, words that begin documents": (Positions, "qualified", lambda: placed(None, beginnings=8)),
    "axes, one for each frequent word": (Privileged, "supported", marking),
    "axes, the same but turned": (Privileged, "refuted", lambda: marking(turned=True)),
    "axes, random words and heads": (Privileged, "refuted", lambda: gained(lambda layer: torch.ones(D))),
    "cycle, gains that steepen": (Isotropy, "refuted", lambda: cycling(lambda layer: STEEP, one_axis())),
    "cycle, writes that even out": (
        Isotropy,
        "refuted",
        lambda: cycling(lambda layer: STEEP**-0.5, torch.diag(STEEP**-0.5)),
    ),
}


def concluded(probe: AnyProbe, anatomy: Anatomy, corpus: Corpus) -> Finding:
    """What a survey's pass and bench would let the probe conclude."""
    evidence = gather(anatomy, corpus, probe.instruments)
    if not isinstance(probe, Experimenter):
        return probe.conclude(evidence)
    bench = Bench(anatomy, corpus, evidence.untrained, evidence.seed)
    bench.prove()
    result = probe.experiment(bench)
    bench.prove()
    return probe.conclude(evidence, result)


@cache
def finding_of(case: str) -> Finding:
    """What a case's probe concludes, computed once for all tests."""
    probe, _, make = CASES[case]
    return concluded(probe(), *make())


def whole(finding: Finding) -> None:
    """Every cell is a number or a word, every column is described, and the interval contains the value."""
    assert finding.reading and finding.headline
    assert (finding.why is not None) == (finding.verdict == "undecided")
    for table in (finding.table, *finding.more_tables.values()):
        assert all(column.meaning for column in table.columns)
        for cell in (cell for row in table.rows for cell in row):
            assert not (isinstance(cell, float) and math.isnan(cell)), finding.claim.id
    if finding.verdict != "undecided":
        statistic = finding.statistic
        assert finding.controls and finding.quantities and finding.table.rows and finding.n > 0
        assert statistic.low <= statistic.value + 1e-9 and statistic.value <= statistic.high + 1e-9
    assert finding.plot() is not None

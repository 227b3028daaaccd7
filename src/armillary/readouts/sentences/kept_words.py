"""What does a feed-forward layer keep of each token, and what does it discard, in words?

Discarded are the coordinates below zero before the activation (of the gate, where there is one), as in `ffn.discard`.
Kept words are those that the kept coordinates' write promotes. Discarded words are those that the discarded coordinates
would promote if the activation let them through with slope 1.
"""

import numpy as np
import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.space import RAW, Vectors
from armillary.anatomy.vocabulary import Vocabulary
from armillary.flow.passages import watched
from armillary.probes.filter.activations.hidden import below
from armillary.readouts.reader import RANK, Reader, side_columns
from armillary.readouts.sentence_states import first_window, token_text
from armillary.readouts.settings import pick_layers
from armillary.readouts.trajectory import check, plural
from armillary.results import Column, Quantity, Table
from armillary.results.sheets.sheet import Sheet
from armillary.results.table import Cell

COLUMNS = (
    Column("position", "position in the sentence, from 1"),
    Column("token", "the token"),
    Column("kept_share", "share of the hidden coordinates that are kept"),
    Column("carried", "share of the squared length of what W_out receives that kept coordinates carry"),
    Column("write", "length of what the layer writes, over that of the stream before its block"),
    RANK,
    *side_columns("kept", "words that the kept coordinates promote", "product with the write"),
    *side_columns(
        "discarded", "words that the discarded coordinates would promote", "product with what they would write"
    ),
)


def kept_map(anatomy: Anatomy, sentence: str) -> Sheet:
    """The share of hidden coordinates that every layer keeps of every token."""
    check(sentence)
    window, _ = first_window(anatomy, sentence)
    ids = torch.tensor([window.ids])
    sites = [f"L{layer}.{part}" for layer in range(anatomy.layers) for part in ("mlp_pre", "mlp_post")]
    seen = watched(anatomy, ids, *sites)
    shares, carried = [], []
    for layer in range(anatomy.layers):
        pre, post = (_rows(seen[f"L{layer}.{part}"], anatomy) for part in ("mlp_pre", "mlp_post"))
        keeps = ~below(pre, post)
        shares.append(keeps.double().mean(-1).cpu().numpy())
        power = post.double().square()
        carried.append((power * keeps).sum(-1).div(power.sum(-1).clamp_min(1e-300)).cpu().numpy())
    vocabulary = Vocabulary.of(anatomy)
    words = [token_text(vocabulary, token) for token in window.ids]
    layers = [f"L{layer}" for layer in range(anatomy.layers)]
    coords = {"layer": layers, "token": words}
    mean = np.mean(shares, 1)
    return Sheet(
        name="kept",
        title=f"The feed-forward layers keep {np.mean(mean):.0%} of their coordinates on this sentence, from "
        f"{mean.min():.0%} ({layers[int(mean.argmin())]}) to {mean.max():.0%} ({layers[int(mean.argmax())]})",
        caption=f"{anatomy.name} · {plural(len(words), 'token')} · {anatomy.m:,} hidden coordinates per layer",
        tables={},
        quantities=(
            Quantity("coordinates kept", "share at or above zero before the activation", "share", ("layer", "token"),
                     coords, np.stack(shares)),
            Quantity("carried by kept coordinates", "share of the squared length of what W_out receives", "share",
                     ("layer", "token"), coords, np.stack(carried)),
        ),
    )  # fmt: skip


def kept_words(anatomy: Anatomy, sentence: str, layer: int, top: int = 5) -> Sheet:
    """One layer, token by token: the words that it promotes, and those that it discards."""
    check(sentence)
    pick_layers(layer, anatomy)
    window, _ = first_window(anatomy, sentence)
    names = {"pre": "mlp_pre", "post": "mlp_post", "out": "mlp_out", "stream": "resid_pre"}
    sites = [*(f"L{layer}.{name}" for name in names.values()), *_reads(anatomy, layer)]
    seen = watched(anatomy, torch.tensor([window.ids]), *sites)
    pre, post = (_rows(seen[f"L{layer}.{names[part]}"], anatomy) for part in ("pre", "post"))
    reader = Reader.of(anatomy, top)
    keeps = ~below(pre, post)
    forward = anatomy.blocks[layer].feed_forward
    passed = pre if forward.W_gate is None else pre * forward.up(seen[_reads(anatomy, layer)[0]][0])
    lists = [
        reader.read(Vectors(_reaching(anatomy, layer, values.float() @ forward.W_out.float()), RAW), reader.outputs)
        for values in (post * keeps, passed * ~keeps)
    ]
    write, stream = (seen[f"L{layer}.{names[part]}"][0].double().norm(dim=-1) for part in ("out", "stream"))
    power = post.double().square()
    numbers = {
        "kept_share": keeps.double().mean(-1),
        "carried": (power * keeps).sum(-1) / power.sum(-1).clamp_min(1e-300),
        "write": write / stream.clamp_min(1e-300),
    }
    rows: list[dict[str, Cell]] = []
    for t, token in enumerate(window.ids):
        start: dict[str, Cell] = {"position": t + 1, "token": token_text(reader.vocabulary, token)}
        start |= {name: float(values[t]) for name, values in numbers.items()}
        rows += reader.ranked(start, kept=lists[0][t], discarded=lists[1][t])
    size, share = (float(numbers[name].mean()) for name in ("write", "kept_share"))
    return Sheet(
        name=f"filter-L{layer}",
        title=f"L{layer} keeps {share:.0%} of its coordinates; its write is {size:.2g} times "
        "as long as the stream before its block",
        caption=f"{anatomy.name} · {plural(len(window.ids), 'token')}",
        tables={"kept and discarded, in words": Table.of(COLUMNS, rows)},
        quantities=(),
        notes=("Discarded words are those that the discarded coordinates would promote if they were let through.",),
    )


def _rows(value: Tensor, anatomy: Anatomy) -> Tensor:
    """[t, m] of one sentence, whatever shape the module gives."""
    return value.reshape(-1, anatomy.m)


def _reads(anatomy: Anatomy, layer: int) -> list[str]:
    """The norm that a gated layer reads: one for both sublayers is one site."""
    if anatomy.blocks[layer].feed_forward.W_gate is None:
        return []
    return [f"L{layer}.ln2" if f"L{layer}.ln2" in anatomy.norms else f"L{layer}.ln1"]


def _reaching(anatomy: Anatomy, layer: int, write: Tensor) -> Tensor:
    """A write as it reaches the stream, up to length: through the norm after it, where there is one."""
    block = anatomy.blocks[layer]
    norm = block.ln2_post or (block.ln2 if anatomy.order == "post" else None)
    if norm is None:
        return write
    write = write - write.mean(-1, keepdim=True) if norm.kind == "layernorm" else write
    return write * norm.gain.to(write)

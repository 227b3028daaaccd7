"""How does every token's state move through the layers?

Measured on all tokens: the angles between successive states, to the token's own vector and to the next token's.
Measured on a sample, because all would cost too much: the states themselves, for the logit lens and for projections.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.measures.state import State
from armillary.probes.machinery import ARMS, mean

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus
    from armillary.measures import GroupedScalars, Reservoir
    from armillary.probes.instruments.word_parts.words_watch import WordWatch

STATE = ("length", "own", "next", "other")
"""Per state: ‖x‖, and the angles (in radians) to the token's own word, the true next word and a random other word."""
MOVE = ("moved", "radial", "turning")
"""Per move from state to state: its angle, the share of the write along the stream, the angle to the move before."""
PATH = ("path", "geodesic", "left", "approached", "both", "both_other", "left_more", "more")
"""Per token, from the first state to the last: the sum of all moves; the angle between both ends; is it farther from
its own word, closer to the next word, both; both with a random word for the next; did it leave its own word by more
than the random one, and approach the next word by more than the random one (a tie counts half)?"""


def states(anatomy: "Anatomy") -> dict[str, str]:
    """Norm site → the state of the stream that is measured there, in the order of the pass.

    The state is the norm's input where norms stand before sublayers, and its output where they stand behind them.
    """
    layers = range(anatomy.layers)
    if anatomy.order == "post":
        embedded = {"ln_embed": "L0.resid_pre"} if anatomy.ln_embed is not None else {}
        outputs = (("ln1", "resid_mid"), ("ln2", "resid_post"))
        return embedded | {f"L{i}.{norm}": f"L{i}.{state}" for i in layers for norm, state in outputs}
    inputs = (("ln1", "resid_pre"),) if anatomy.parallel else (("ln1", "resid_pre"), ("ln2", "resid_mid"))
    sites = {f"L{i}.{norm}": f"L{i}.{state}" for i in layers for norm, state in inputs}
    sites = {norm: state for norm, state in sites.items() if norm in anatomy.norms}
    return sites if anatomy.ln_final is None else sites | {"ln_final": f"L{anatomy.layers - 1}.resid_post"}


@dataclass
class WordSums(State):
    """One arm: sums per document group of every state, every move and the whole path; the states of sampled tokens."""

    groups: int
    names: tuple[str, ...]
    """The states, in order."""
    state: "GroupedScalars"
    move: "GroupedScalars"
    path: "GroupedScalars"
    sample: "Reservoir"
    """One row [states · d] per token, with document, position, token and following token."""

    @classmethod
    def empty(cls, groups: int, names: Sequence[str], width: int, room: int) -> "WordSums":
        from armillary.measures import GroupedScalars, Reservoir

        # One measure with a column per state and scalar: each batch is added once, not once per state.
        state, move = (
            GroupedScalars.empty(groups, tuple(f"{name} {scalar}" for name in steps for scalar in scalars))
            for steps, scalars in ((names, STATE), (names[1:], MOVE))
        )
        path = GroupedScalars.empty(groups, PATH)
        return cls(groups, tuple(names), state, move, path, Reservoir.empty(room, len(names) * width, 4))

    @property
    def tokens(self) -> int:
        return int(self.path.count.sum())

    def sums(self, part: str, name: str) -> NDArray[np.float64]:
        """[group, step, (count, sum, sum of squares)] of a scalar of 'state' or 'move'; [group, …] of 'path'."""
        if part == "path":
            return self.path.additive()[:, PATH.index(name)]
        scalars = STATE if part == "state" else MOVE
        columns = (self.state if part == "state" else self.move).additive()
        return columns[:, scalars.index(name) :: len(scalars)]

    def means(self, part: str, name: str) -> NDArray[np.float64]:
        """[step] of a scalar of 'state' or 'move', a number of 'path': the mean over all tokens."""
        return mean(self.sums(part, name).sum(0))

    def sampled(self) -> "tuple[Tensor, NDArray[np.int64]]":
        """States [token, state, d] of the stream, and [document, position, token, following token] of each token."""
        sample = self.sample.sample()
        width = self.sample.d // len(self.names)
        return sample.rows.reshape(len(sample.rows), len(self.names), width), sample.payload.numpy()


# The logit lens may use this share of the pass's multiplications: with softmax and ranks 2.5 % of the time, measured.
# Where some hundred tokens are cheap (this many multiplications, 0.7 s on one core), it reads ENOUGH: the mean loss
# of 512 tokens is known to 0.15 nats. Of a text longer than USUAL, the default, it then reads in proportion: its share
# of the time stays the same, and more text makes intervals narrower. Fewest: five tokens for each document that an
# interval needs. What reads the last state alone reads LAST at least. States of MOST tokens fit into 64 MB per arm.
SHARE, FEWEST, ENOUGH, USUAL, LAST = 0.022, 40, 512, 2500, 256
CHEAP = 2e10
MOST, MOST_OF_LARGE, STATES = 4096, 512, 1 << 24


def most(anatomy: "Anatomy") -> int:
    """How many tokens' states are kept at most, however long the text is."""
    return int(min(MOST, max(MOST_OF_LARGE, STATES // ((2 * anatomy.layers + 1) * anatomy.d))))


def _prices(anatomy: "Anatomy") -> tuple[float, float]:
    """Multiplications per token, of the pass and of the lens."""
    d, n = anatomy.d, anatomy.layers
    if anatomy.opaque:
        forward = sum(p.numel() for p in anatomy.model.parameters()) - anatomy.W_E.numel()
    else:
        gates = 2 if anatomy.blocks[0].feed_forward.W_gate is None else 3
        forward = n * (2 * d * d + 2 * d * anatomy.k * anatomy.n_kv_heads + gates * d * anatomy.m)
    return forward, (2 * n + 1) * d * anatomy.vocabulary


def room(anatomy: "Anatomy", tokens: int) -> int:
    """How many tokens the lens reads: what costs `SHARE` of the pass; more where it is cheap or intervals need it."""
    forward, lens = _prices(anatomy)
    least = min(ENOUGH, max(FEWEST, CHEAP / lens))
    if least == ENOUGH:
        least *= max(1.0, tokens / USUAL)
    return int(min(most(anatomy), max(least, SHARE * tokens * forward / lens)))


def sampled_tokens(anatomy: "Anatomy", tokens: int) -> int:
    """How many tokens' states are kept: enough also for what reads the last state alone, which is cheap."""
    return max(LAST, room(anatomy, tokens))


def longer_text(anatomy: "Anatomy", tokens: int, count: Callable[["Anatomy", int], int]) -> str:
    """What a longer text would do, as the last sentence of an undecided reading; `count` tokens of a text are read."""
    now, limit = count(anatomy, tokens), most(anatomy)
    if now >= limit:
        return f" Of this model {limit:,} tokens are read at most: more text would not decide."
    if count(anatomy, 2 * tokens) > now:
        return " More text would decide."
    forward, lens = _prices(anatomy)
    return f" More text would decide from {now * lens / (SHARE * forward):,.0f} tokens on: of less, no more is read."


@dataclass(frozen=True)
class Words:
    """The instrument that follows tokens from state to state."""

    name: str = "words"
    arms: tuple[str, ...] = ARMS
    overwrites: bool = False

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "WordWatch":
        from armillary.probes.instruments.word_parts.words_watch import WordWatch

        return WordWatch(anatomy, corpus, seed)

    def count(self, state: WordSums) -> tuple[int, str]:
        return state.tokens, "tokens between two others"

    def bytes(self, anatomy: "Anatomy") -> int:
        return len(self.arms) * 4 * most(anatomy) * (2 * anatomy.layers + 1) * anatomy.d


WORDS = Words()

"""How does every token move from state to state through the layers?

Exact, over all tokens: angles between successive states, and to the token's own vector and the next token's. Sampled: the
states of a few tokens, for the logit lens and for projections, which would cost too much on all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.measures.state import State
from armillary.probes.machinery.instrument import ARMS

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.tokens import Corpus
    from armillary.measures import GroupedScalars, Reservoir
    from armillary.probes.instruments.words_watch import WordWatch

STATE = ("length", "own", "next", "other")
"""At each state: |x|, and the angles (in radians) to the word itself, to the true next word and to a random other one."""
MOVE = ("moved", "radial", "turning")
"""On each move: the angle, the share of the write along the stream, and the turn against the move before."""
PATH = ("path", "geodesic", "left", "approached", "both", "both_other", "more")
"""Over the whole way: angle walked and angle reached; did the word leave itself, approach the next word, do both; both with
a random other word for the next; and did it come nearer to the next word by more than to the other (even counts half)?"""


def states(anatomy: "Anatomy") -> dict[str, str]:
    """Norm site → the state of the stream that is seen there, in the order of the way.

    Before each norm where norms stand before sublayers, and after it where they stand behind.
    """
    layers = range(anatomy.layers)
    if anatomy.order == "post":
        found = {"ln_embed": "L0.resid_pre"} if anatomy.ln_embed is not None else {}
        return found | {f"L{i}.{norm}": f"L{i}.{state}" for i in layers for norm, state in _AFTER}
    found = {}
    for i in layers:
        found[f"L{i}.ln1"] = f"L{i}.resid_pre"
        if not anatomy.parallel:
            found[f"L{i}.ln2"] = f"L{i}.resid_mid"
    return found if anatomy.ln_final is None else found | {"ln_final": f"L{anatomy.layers - 1}.resid_post"}


_AFTER = (("ln1", "resid_mid"), ("ln2", "resid_post"))


@dataclass
class WordSums(State):
    """One arm: sums per document group for every state, every move and the whole path, and the sampled states."""

    groups: int
    names: tuple[str, ...]
    """The states, in order."""
    state: "GroupedScalars"
    move: "GroupedScalars"
    path: "GroupedScalars"
    sample: "Reservoir"
    """All states of a token in one row [states · d], with document, position, token and following token."""

    @classmethod
    def empty(cls, groups: int, names: Sequence[str], width: int, room: int) -> "WordSums":
        from armillary.measures import GroupedScalars, Reservoir

        # One measure for all states, with a column for each scalar of each: a batch is counted once, not per state.
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
        """[step, group, (count, sum, sum of squares)] of a scalar of 'state' or 'move'; [group, …] of 'path'."""
        if part == "path":
            return self.path.additive()[:, PATH.index(name)]
        scalars = STATE if part == "state" else MOVE
        columns = (self.state if part == "state" else self.move).additive()
        return np.moveaxis(columns[:, scalars.index(name) :: len(scalars)], 0, 1)

    def sampled(self) -> "tuple[Tensor, NDArray[np.int64]]":
        """States [token, state, d] as they stood in the stream, and [document, position, token, following] of each."""
        sample = self.sample.sample()
        width = self.sample.d // len(self.names)
        return sample.rows.reshape(len(sample.rows), len(self.names), width), sample.payload.numpy()


# As a share of the pass's multiplications; softmax and ranks add a fifth to it, and logits run no faster than the rest: measured,
# 2.5 % of the time. Fewest: five tokens for each of the eight documents that an interval needs at least.
SHARE, FEWEST, MOST = 0.022, 40, 512


def room(anatomy: "Anatomy", tokens: int) -> int:
    """How many tokens the lens may look at: what costs `SHARE` of the pass, but no fewer than an interval needs."""
    d, n = anatomy.d, anatomy.layers
    gates = 2 if anatomy.blocks[0].feed_forward.W_gate is None else 3
    forward = n * (2 * d * d + 2 * d * anatomy.k * anatomy.n_kv_heads + gates * d * anatomy.m)
    lens = (2 * n + 1) * d * anatomy.vocabulary
    return int(min(MOST, max(FEWEST, SHARE * tokens * forward / lens)))


@dataclass(frozen=True)
class Words:
    """The instrument."""

    name: str = "words"
    arms: tuple[str, ...] = ARMS
    overwrites: bool = False

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> "WordWatch":
        from armillary.probes.instruments.words_watch import WordWatch

        return WordWatch(anatomy, corpus, seed)

    def count(self, state: WordSums) -> tuple[int, str]:
        return state.tokens, "tokens between two others"

    def bytes(self, anatomy: "Anatomy") -> int:
        return len(self.arms) * 4 * MOST * (2 * anatomy.layers + 1) * anatomy.d


WORDS = Words()

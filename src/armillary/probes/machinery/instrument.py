"""What watches a pass? An instrument: which sites it watches, what it keeps, how much it needs before it can speak.

An instrument is a frozen dataclass in one file; its fields are its settings. Two probes that ask for equal instruments
share one. `start` gives a watch for one pass. A watch only enqueues work on the model's device (no `.item()`, no
`.cpu()`, no `nonzero` there): what depends on the text alone is known on the host in `begin`, what depends on
activations stays on the device until the pass is over. What a watch keeps is a state with `+`: the state of a text is
the sum of the states of its parts, which gives batching, sharding and resuming.
"""

from collections.abc import Callable, Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.glimpse import Glimpse, Tokens
    from armillary.flow.tokens import Corpus
    from armillary.measures import State

MODEL, RANDOM, SHUFFLED = "model", "random initialisation", "shuffled text"
# The untrained twins, the first under the plain name; a large model has fewer of them.
TWINS = (RANDOM, *(f"{RANDOM} {number}" for number in range(2, 6)))
ARMS = (MODEL, *TWINS, SHUFFLED)


S = TypeVar("S", bound="State")


class View:
    """What passes one site. `value` has the shape that the site's name promises; `given` is the module's input."""

    def __init__(self, given: "Tensor | None", value: "Tensor", glimpse: "Callable[[], Glimpse] | None" = None) -> None:
        self.given, self.value, self._glimpse = given, value, glimpse

    @cached_property
    def norm(self) -> "Glimpse":
        """At a norm site: what all instruments ask of it, computed once and shared."""
        if self._glimpse is None:
            raise ValueError("this site is not a norm: it has no direction and no radius; read `value` instead")
        return self._glimpse()


class Watch(Protocol[S]):
    """One instrument during one pass: `begin`, then `see` at each of its sites, then `end`, batch by batch.

    The state is replaced by an empty one when a part of the text has been read: a watch keeps no other reference to it.
    A watch with `in_groups = True` has a method `see_group`, too: on a GPU it is called with several norm sites at once
    (`flow.sheet.Group`) instead of `see` at each of them.

    A watch with `recordable = True` keeps host and device apart, so that a GPU can repeat a batch's work without the
    host: `begin` computes on the host and sends arrays by `tokens.put`; `prepare`, `see` and `end` only enqueue device
    work that depends on those arrays and their shapes and on `key` (hashable), and adds to tensors in place; `settle`
    takes what `end` returned, copies what it keeps of it, and counts on the host. `special`: not this batch.
    """

    state: S

    @property
    def sites(self) -> Collection[str]: ...

    def begin(self, tokens: "Tokens") -> None: ...

    def see(self, site: str, view: View) -> None: ...

    def end(self) -> Any:
        """What a recordable watch leaves for `settle`."""
        ...


class TokenWatch:
    """A watch that only needs the batch's tokens when it sees a site."""

    def begin(self, tokens: "Tokens") -> None:
        self._tokens = tokens

    def end(self) -> Any:
        pass


class Instrument(Protocol[S]):
    """Specification of a watch: hashable, so that equal ones are one."""

    @property
    def name(self) -> str: ...

    @property
    def arms(self) -> tuple[str, ...]:
        """In which arms it watches: `ARMS` are all; RANDOM alone is the first untrained twin."""
        ...

    @property
    def overwrites(self) -> bool:
        """Does its watch use up the shared z of a norm site? Such instruments see a site last."""
        ...

    def start(self, anatomy: "Anatomy", corpus: "Corpus", seed: int) -> Watch[S]: ...

    def count(self, state: S) -> tuple[int, str]:
        """How many of what it saw, for the least that a verdict needs: (512, 'queries with enough keys')."""
        ...

    def bytes(self, anatomy: "Anatomy") -> int:
        """Memory that the states of all arms take, roughly."""
        ...


AnyInstrument = Instrument[Any]

"""One pass per arm: how do all probes that need no edit see the same forward pass? As a list of instruments."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NoReturn

from armillary.errors import OutputError
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.instrument import MODEL, SHUFFLED, AnyInstrument, View, Watch
from armillary.probes.machinery.kept_pass import KeptPass, pass_key

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.capture import Watcher
    from armillary.flow.glimpse import Tokens, Typical
    from armillary.flow.tokens import Corpus


def gather(
    anatomy: "Anatomy",
    corpus: "Corpus | None",
    instruments: Iterable[AnyInstrument],
    seed: int = 0,
    tick: Callable[[int], None] = lambda tokens: None,
    begin: Callable[[str], None] = lambda arm: None,
    folder: "Path | None" = None,
) -> Evidence:
    """Evidence of all arms; `begin` is called with each arm's name, `tick` with every batch's tokens.

    An instrument that raises is lost to the probes that read it, and to no other. In `folder` the states are kept, and
    those that are there already are not measured again.
    """
    from armillary.flow.controls import Twins

    twins = Twins(anatomy, seed)
    wanted = list(dict.fromkeys(instruments))
    if corpus is None or not wanted:
        return Evidence(anatomy, corpus, twins, seed=seed)
    evidence = Evidence(anatomy, corpus, twins, seed=seed)
    texts = {SHUFFLED: corpus.shuffled(seed)}
    kept = None if folder is None else KeptPass(folder, pass_key(anatomy, corpus, wanted, seed))
    states: dict[AnyInstrument, dict[str, Any]] = {instrument: {} for instrument in wanted}
    lost: dict[AnyInstrument, _Lost] = {}
    for arm in (MODEL, *evidence.twins, SHUFFLED):
        begin(arm)
        subject = evidence.model(arm), texts.get(arm, corpus)
        present = [instrument for instrument in wanted if arm in instrument.arms and instrument not in lost]
        try:
            observed = _observe_segments(arm, *subject, present, seed, tick, kept)
        except OutputError:
            # No instrument's error: states that were kept cannot be read, or new ones not be written.
            raise
        except Exception:
            observed = _observe_singly(*subject, present, seed, lost)
        for instrument, state in observed.items():
            states[instrument][arm] = state
    return Evidence(anatomy, corpus, twins, {**states, **lost}, seed)


def _observe_segments(
    arm: str,
    anatomy: "Anatomy",
    corpus: "Corpus",
    instruments: Iterable[AnyInstrument],
    seed: int,
    tick: Callable[[int], None],
    kept: KeptPass | None,
) -> dict[AnyInstrument, Any]:
    """One arm, segment by segment, from the first that is not kept."""
    instruments, segments = tuple(instruments), corpus.segments()
    total: dict[AnyInstrument, Any] = {}
    done = 0
    if kept is not None:
        total = {instrument: instrument.start(anatomy, corpus, seed).state for instrument in instruments}
        done = kept.load(arm, total)
        tick(sum(segment.tokens for segment in segments[:done]))
    parts = [segment.batches for segment in segments[done:]]
    if not parts:
        return total
    for number, states in enumerate(observe_parts(anatomy, corpus, instruments, parts, seed, tick), done + 1):
        total = {i: total[i] + states[i] if number > 1 else states[i] for i in instruments}
        if kept is not None:
            kept.keep(arm, number, total)
    return total


def _observe_singly(
    anatomy: "Anatomy",
    corpus: "Corpus",
    instruments: Iterable[AnyInstrument],
    seed: int,
    lost: "dict[AnyInstrument, _Lost]",
) -> dict[AnyInstrument, Any]:
    """One pass per instrument, after an error in the pass that all of them share; those that raise go to `lost`."""
    # An error of the model itself is raised here, and is no instrument's.
    observe(anatomy, corpus, (), seed)
    states: dict[AnyInstrument, Any] = {}
    for instrument in instruments:
        try:
            states |= observe(anatomy, corpus, [instrument], seed)
        except Exception as error:
            lost[instrument] = _Lost(instrument.name, error)
    return states


class InstrumentError(RuntimeError):
    """An instrument raised during the pass."""


class _Lost(Mapping[str, Any]):
    """The states of an instrument that raised: no arm has any, and a probe that reads one is told why."""

    def __init__(self, name: str, error: Exception) -> None:
        self._name, self._error = name, error

    def _refuse(self) -> NoReturn:
        reason = f"{type(self._error).__name__}: {self._error}"
        raise InstrumentError(f"the instrument {self._name!r} raised {reason}") from self._error

    def __getitem__(self, arm: str) -> Any:
        self._refuse()

    def __iter__(self) -> Iterator[str]:
        self._refuse()

    def __len__(self) -> int:
        return 0

    def __contains__(self, arm: object) -> bool:
        return False


def observe(
    anatomy: "Anatomy",
    corpus: "Corpus",
    instruments: Iterable[AnyInstrument],
    seed: int = 0,
    tick: Callable[[int], None] = lambda tokens: None,
    part: Collection[int] | None = None,
) -> dict[AnyInstrument, Any]:
    """Read the corpus once, without logits, and answer each instrument's state.

    `part` names the batches to read, by their number in the whole text: the states of all parts add up to the state of
    the whole, whoever reads them and in whatever order.
    """
    parts = [range(corpus.batch_count()) if part is None else part]
    (states,) = observe_parts(anatomy, corpus, instruments, parts, seed, tick)
    return states


def observe_parts(
    anatomy: "Anatomy",
    corpus: "Corpus",
    instruments: Iterable[AnyInstrument],
    parts: Iterable[Collection[int]],
    seed: int = 0,
    tick: Callable[[int], None] = lambda tokens: None,
) -> Iterator[dict[AnyInstrument, Any]]:
    """The states of one part of the text after another."""
    from armillary.flow.capture import run, still, watching
    from armillary.flow.glimpse import Tokens

    # Who uses up the shared z of a site sees it last.
    ordered = sorted(dict.fromkeys(instruments), key=lambda instrument: instrument.overwrites)
    watches = {instrument: instrument.start(anatomy, corpus, seed) for instrument in ordered}
    empty = {instrument: deepcopy(watch.state) for instrument, watch in watches.items()}
    sites = _Sites(anatomy, list(watches.values()))
    with still(anatomy.model), watching(anatomy, sites.watchers()):
        for part in parts:
            for batch in corpus.batches(only={*part, *sites.first}):
                sites.counting = batch.number in part
                sites.tokens = Tokens.of(batch, corpus.groups, anatomy.device)
                for watch in watches.values() if sites.counting else ():
                    watch.begin(sites.tokens)
                run(anatomy, batch.ids, batch.mask)
                for watch in watches.values() if sites.counting else ():
                    watch.end()
                if sites.counting:
                    tick(batch.tokens)
            yield {instrument: watch.state for instrument, watch in watches.items()}
            for instrument, watch in watches.items():
                watch.state = deepcopy(empty[instrument])


class _Sites:
    """Hands every site's view to the watches that asked for it."""

    def __init__(self, anatomy: "Anatomy", watches: list[Watch[Any]]) -> None:
        from armillary.flow.glimpse import Workspace

        self._anatomy, self._space = anatomy, Workspace()
        self._typical: dict[str, Typical] = {}
        self._watches: dict[str, list[Watch[Any]]] = {}
        for watch in watches:
            for site in watch.sites:
                self._watches.setdefault(site, []).append(watch)
        self._norms = [site for site in self._watches if site in anatomy.norms]
        self.counting = True
        self.tokens: Tokens

    @property
    def first(self) -> tuple[int, ...]:
        """The first batch, until it has settled what is typical of every norm, whoever counts it."""
        return () if all(site in self._typical for site in self._norms) else (0,)

    def watchers(self) -> "dict[str, Watcher]":
        return {site: self._watcher(site, watches) for site, watches in self._watches.items()}

    def _watcher(self, site: str, watches: list[Watch[Any]]) -> "Watcher":
        from armillary.flow.glimpse import Glimpse

        norm = self._anatomy.norms.get(site)

        def watcher(given: "Tensor | None", value: "Tensor") -> None:
            def glimpse() -> Glimpse:
                assert norm is not None and given is not None
                shared = Glimpse(norm, given, value, self.tokens, self._space, self._typical.get(site))
                self._typical.setdefault(site, shared.typical)
                return shared

            view = View(given, value, None if norm is None else glimpse)
            if not self.counting and norm is not None:
                glimpse()
            for watch in watches if self.counting else ():
                watch.see(site, view)

        return watcher

"""One pass per arm: how do all probes that need no edit see the same forward pass? As a list of instruments."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from armillary.errors import ClusterError, OutputError
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.instrument import MODEL, SHUFFLED, AnyInstrument, View, Watch
from armillary.probes.machinery.processes.kept_pass import KeptPass, States
from armillary.probes.machinery.processes.shards import WHOLE, Shard

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.anatomy import Anatomy
    from armillary.flow.capture import Watcher
    from armillary.flow.glimpse import Tokens, Typical
    from armillary.flow.site_sheet import SiteSheet
    from armillary.flow.tokens import Corpus, Segment


@dataclass(frozen=True, eq=False)
class PassArm:
    """One model reading one text."""

    name: str
    anatomy: "Anatomy"
    corpus: "Corpus"
    seed: int

    def empty(self, instruments: Iterable[AnyInstrument]) -> States:
        return {i: i.start(self.anatomy, self.corpus, self.seed).state for i in instruments}


Tick = Callable[[int], None]
"""Called with the tokens of every batch that was read."""
Observe = Callable[[PassArm, Sequence[AnyInstrument], Sequence["Segment"], Tick], Iterator[States]]
"""The states of one segment after another."""


class StateReader(Protocol):
    """Where the states of an arm come from, and which instruments raised."""

    def expect(self, arm: str, instruments: Sequence[AnyInstrument], corpus: "Corpus") -> None:
        """What will be asked for; called for every arm before the first is."""
        ...

    def __call__(
        self, arm: PassArm, instruments: Sequence[AnyInstrument], tick: Tick
    ) -> tuple[States, dict[AnyInstrument, Exception]]: ...


def gather(
    anatomy: "Anatomy",
    corpus: "Corpus | None",
    instruments: Iterable[AnyInstrument],
    seed: int = 0,
    tick: Tick = lambda tokens: None,
    begin: Callable[[str], None] = lambda arm: None,
    reader: StateReader | None = None,
) -> Evidence:
    """Evidence of all arms; `begin` is called with each arm's name, `tick` with every batch's tokens.

    An instrument that raises is lost to the probes that read it, and to no other. Without a `reader` the text is read
    here and nothing is kept.
    """
    from armillary.flow.controls import Twins

    twins = Twins(anatomy, seed)
    wanted = list(dict.fromkeys(instruments))
    evidence = Evidence(anatomy, corpus, twins, seed=seed)
    if corpus is None or not wanted:
        return evidence
    texts = {SHUFFLED: corpus.shuffled(seed)}
    states: dict[AnyInstrument, dict[str, Any]] = {instrument: {} for instrument in wanted}
    lost: dict[AnyInstrument, Lost] = {}
    read, arms = reader or SegmentReader(), (MODEL, *evidence.twins, SHUFFLED)
    present = {name: [instrument for instrument in wanted if name in instrument.arms] for name in arms}
    for name in arms:
        if present[name]:
            read.expect(name, present[name], texts.get(name, corpus))
    for name in arms:
        begin(name)
        if not present[name]:
            tick(corpus.tokens)
            continue
        # No name for the arm: it would hold this twin while the next one is made.
        observed, raised = read(
            PassArm(name, evidence.model(name), texts.get(name, corpus), seed),
            [i for i in present[name] if i not in lost],
            tick,
        )
        for instrument, state in observed.items():
            states[instrument][name] = state
        lost |= {instrument: Lost(instrument.name, error) for instrument, error in raised.items()}
    return Evidence(anatomy, corpus, twins, {**states, **lost}, seed)


def observe_here(
    arm: PassArm, instruments: Sequence[AnyInstrument], segments: Sequence["Segment"], tick: Tick
) -> Iterator[States]:
    """In this process, one segment after another."""
    parts = [segment.batches for segment in segments]
    return observe_parts(arm.anatomy, arm.corpus, instruments, parts, arm.seed, tick)


@dataclass(frozen=True)
class SegmentReader:
    """A reader that reads the text, or a shard of it, segment by segment, from the first that is not kept."""

    kept: KeptPass | None = None
    observe: Observe = observe_here
    shard: Shard = WHOLE
    ahead: "Callable[[str, Sequence[AnyInstrument], Sequence[Segment]], None] | None" = None
    """Told what will be observed, where that helps."""

    def expect(self, arm: str, instruments: Sequence[AnyInstrument], corpus: "Corpus") -> None:
        if self.ahead is not None:
            done = 0 if self.kept is None else self.kept.segments(arm)
            self.ahead(arm, instruments, self.shard.segments(corpus)[done:])

    def __call__(
        self, arm: PassArm, instruments: Sequence[AnyInstrument], tick: Tick
    ) -> tuple[States, dict[AnyInstrument, Exception]]:
        segments = self.shard.segments(arm.corpus)
        raised: dict[AnyInstrument, Exception] = {}
        try:
            return self._sum(arm, instruments, segments, tick), raised
        except (OutputError, ClusterError):
            # No instrument's error: states cannot be read or written, or there is nobody to measure them.
            raise
        except Exception:
            return self._one_by_one(arm, instruments, segments, raised), raised

    def _sum(
        self, arm: PassArm, instruments: Sequence[AnyInstrument], segments: Sequence["Segment"], tick: Tick
    ) -> States:
        total: States = {}
        done = 0
        if self.kept is not None:
            total = arm.empty(instruments)
            done = self.kept.load(arm.name, total)
            tick(sum(segment.tokens for segment in segments[:done]))
        if done == len(segments):
            return total
        for number, states in enumerate(self.observe(arm, instruments, segments[done:], tick), done + 1):
            total = {i: total[i] + states[i] if number > 1 else states[i] for i in instruments}
            if self.kept is not None:
                self.kept.keep(arm.name, number, total)
        return total

    def _one_by_one(
        self,
        arm: PassArm,
        instruments: Sequence[AnyInstrument],
        segments: Sequence["Segment"],
        raised: dict[AnyInstrument, Exception],
    ) -> States:
        """One pass per instrument, after an error in the pass that all of them share."""
        # An error of the model itself is raised here, and is no instrument's.
        for _ in self.observe(arm, (), segments, lambda tokens: None):
            pass
        alone, states = SegmentReader(None, self.observe, self.shard), States()
        for instrument in instruments:
            try:
                states |= alone._sum(arm, [instrument], segments, lambda tokens: None)
            except ClusterError:
                raise
            except Exception as error:
                raised[instrument] = error
        return states


class InstrumentError(RuntimeError):
    """An instrument raised during the pass."""


class Lost(Mapping[str, Any]):
    """The states of an instrument that raised: no arm has any, and a probe that reads one is told why."""

    def __init__(self, name: str, error: Exception) -> None:
        self._name, self._error = name, error

    @property
    def reason(self) -> str:
        return f"{type(self._error).__name__}: {self._error}"

    def _refuse(self) -> NoReturn:
        raise InstrumentError(f"the instrument {self._name!r} raised {self.reason}") from self._error

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
    parts = list(parts)
    # Empty states are large: those of a single part are not copied.
    empty = {instrument: deepcopy(watch.state) for instrument, watch in watches.items()} if len(parts) > 1 else {}
    sites = _Sites(anatomy, list(watches.values()))
    with still(anatomy.model), watching(anatomy, sites.watchers()):
        for number, part in enumerate(parts, 1):
            for batch in corpus.batches(only={*part, *sites.first}):
                sites.counting = batch.number in part
                sites.begin(Tokens.of(batch, corpus.groups, anatomy.device))
                for watch in watches.values() if sites.counting else ():
                    watch.begin(sites.tokens)
                run(anatomy, batch.ids, batch.mask)
                sites.end()
                for watch in watches.values() if sites.counting else ():
                    watch.end()
                if sites.counting:
                    tick(batch.tokens)
            yield {instrument: watch.state for instrument, watch in watches.items()}
            for instrument, watch in watches.items() if number < len(parts) else ():
                watch.state = deepcopy(empty[instrument])


class _Sites:
    """Hands every site's view to the watches that asked for it."""

    def __init__(self, anatomy: "Anatomy", watches: list[Watch[Any]]) -> None:
        from armillary.flow.glimpse import Workspace
        from armillary.flow.site_sheet import Scales
        from armillary.geometry.fused import batched

        self._anatomy, self._space = anatomy, Workspace()
        self._typical: dict[str, Typical] = {}
        self._watches: dict[str, list[Watch[Any]]] = {}
        for watch in watches:
            for site in watch.sites:
                self._watches.setdefault(site, []).append(watch)
        self._norms = {site: norm for site, norm in anatomy.norms.items() if site in self._watches}
        self.counting = True
        self.tokens: Tokens
        self._sheet: SiteSheet | None = None
        self._scales = Scales(len(self._norms), anatomy.device) if batched(anatomy.device) else None
        self._readers: list[Any] = [watch for watch in watches if getattr(watch, "in_groups", False)]

    def begin(self, tokens: "Tokens") -> None:
        from armillary.flow.site_sheet import SiteSheet

        self.tokens = tokens
        if self._scales is not None:
            readers = self._readers if self.counting else []
            self._sheet = SiteSheet(tokens, len(self._norms), self._anatomy.dtype, self._scales, readers)

    def end(self) -> None:
        """The batch has passed."""
        if self._sheet is not None:
            self._sheet.flush()

    @property
    def first(self) -> tuple[int, ...]:
        """The first batch, until it has settled what is typical of every norm, whoever counts it."""
        if self._scales is not None:
            return () if self._scales.ready or not self._norms else (0,)
        return () if all(site in self._typical for site in self._norms) else (0,)

    def watchers(self) -> "dict[str, Watcher]":
        make = self._watcher if self._scales is None else self._gatherer
        return {site: make(site, watches) for site, watches in self._watches.items()}

    def _watcher(self, site: str, watches: list[Watch[Any]]) -> "Watcher":
        """Shows a site to its watches as it passes."""
        from armillary.flow.glimpse import Glimpse

        norm = self._norms.get(site)

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

    def _gatherer(self, site: str, watches: list[Watch[Any]]) -> "Watcher":
        """The same where norm sites are read in groups: watches that take part are shown those, once they are full."""
        from armillary.flow.site_sheet import SheetGlimpse

        norm = self._norms.get(site)
        # At a norm site, those that are shown groups; elsewhere all watches see the site itself.
        alone = [watch for watch in watches if norm is None or watch not in self._readers]

        def watcher(given: "Tensor | None", value: "Tensor") -> None:
            sheet, place = self._sheet, -1
            assert sheet is not None
            if norm is not None:
                assert given is not None
                place = sheet.put(site, norm, given, value)
            if not alone or not self.counting:
                return

            def glimpse() -> SheetGlimpse:
                assert norm is not None and given is not None
                return SheetGlimpse(place, norm, given, value, sheet, self._space)

            view = View(given, value, None if norm is None else glimpse)
            for watch in alone:
                watch.see(site, view)

        return watcher

"""One pass per arm: how do all probes that need no edit see the same forward pass? As a list of instruments."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from armillary.errors import ClusterError, OutputError
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.instrument import MODEL, SHUFFLED, AnyInstrument
from armillary.probes.machinery.processes.kept_pass import KeptPass, States
from armillary.probes.machinery.processes.shards import WHOLE, Shard

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.flow.machine.recording import Recorder
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

    kept_pass: KeptPass | None = None
    observe: Observe = observe_here
    shard: Shard = WHOLE
    ahead: "Callable[[str, Sequence[AnyInstrument], Sequence[Segment]], None] | None" = None
    """Told what will be observed, where that helps."""

    def expect(self, arm: str, instruments: Sequence[AnyInstrument], corpus: "Corpus") -> None:
        if self.ahead is not None:
            done = 0 if self.kept_pass is None else self.kept_pass.segments(arm)
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
        if self.kept_pass is not None:
            total = arm.empty(instruments)
            done = self.kept_pass.load(arm.name, total)
            tick(sum(segment.tokens for segment in segments[:done]))
        if done == len(segments):
            return total
        for number, states in enumerate(self.observe(arm, instruments, segments[done:], tick), done + 1):
            total = {i: total[i] + states[i] if number > 1 else states[i] for i in instruments}
            if self.kept_pass is not None:
                self.kept_pass.keep(arm.name, number, total)
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
    recorder: "Recorder | None" = None,
) -> dict[AnyInstrument, Any]:
    """Read the corpus once, without logits, and answer each instrument's state.

    `part` names the batches to read, by their number in the whole text: the states of all parts add up to the state of
    the whole, whoever reads them and in whatever order.
    """
    parts = [range(corpus.batch_count()) if part is None else part]
    (states,) = observe_parts(anatomy, corpus, instruments, parts, seed, tick, recorder)
    return states


def observe_parts(
    anatomy: "Anatomy",
    corpus: "Corpus",
    instruments: Iterable[AnyInstrument],
    parts: Iterable[Collection[int]],
    seed: int = 0,
    tick: Callable[[int], None] = lambda tokens: None,
    recorder: "Recorder | None" = None,
) -> Iterator[dict[AnyInstrument, Any]]:
    """The states of one part of the text after another. A `recorder` repeats the work of batches of one shape; by
    default one is used where that pays."""
    from armillary.flow.capture import still, watching
    from armillary.flow.machine.recording import unpacked
    from armillary.probes.machinery.passes.batch_reader import BatchReader

    # Who uses up the shared z of a site sees it last.
    ordered = sorted(dict.fromkeys(instruments), key=lambda instrument: instrument.overwrites)
    watches = {instrument: instrument.start(anatomy, corpus, seed) for instrument in ordered}
    parts = list(parts)
    # Empty states are large: those of a single part are not copied.
    empty = {instrument: deepcopy(watch.state) for instrument, watch in watches.items()} if len(parts) > 1 else {}
    reader = BatchReader(anatomy, corpus, list(watches.values()), parts, recorder)
    # Looking for packed rows would wait for a GPU once per batch.
    plain = nullcontext() if anatomy.device.type == "cpu" else unpacked()
    with still(anatomy.model), watching(anatomy, reader.sites.watchers()), plain:
        for number, part in enumerate(parts, 1):
            for batch in corpus.batches(only={*part, *reader.sites.first}):
                reader.read(batch, counting=batch.number in part)
                if batch.number in part:
                    tick(batch.tokens)
            last = number == len(parts)
            in_place = reader.recorder is not None and not last
            yield {i: deepcopy(watch.state) if in_place else watch.state for i, watch in watches.items()}
            for instrument, watch in watches.items() if not last else ():
                if in_place:
                    watch.state.reset()
                else:
                    watch.state = deepcopy(empty[instrument])

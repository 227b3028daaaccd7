"""One pass per arm: how do all probes that need no edit see the same forward pass? As a list of instruments."""

from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any

from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.instrument import ARMS, MODEL, RANDOM, SHUFFLED, AnyInstrument, View, Watch

if TYPE_CHECKING:
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
) -> Evidence:
    """Evidence of all arms; `begin` is called with each arm's name, `tick` with every batch's tokens."""
    from armillary.flow.controls import random_twin

    twin = random_twin(anatomy, seed)
    wanted = list(dict.fromkeys(instruments))
    if corpus is None or not wanted:
        return Evidence(anatomy, corpus, twin, seed=seed)
    subjects = {MODEL: (anatomy, corpus), RANDOM: (twin, corpus), SHUFFLED: (anatomy, corpus.shuffled(seed))}
    states: dict[AnyInstrument, dict[str, Any]] = {instrument: {} for instrument in wanted}
    for arm in ARMS:
        begin(arm)
        present = [instrument for instrument in wanted if arm in instrument.arms]
        for instrument, state in observe(*subjects[arm], present, seed, tick).items():
            states[instrument][arm] = state
    return Evidence(anatomy, corpus, twin, states, seed)


def observe(
    anatomy: "Anatomy",
    corpus: "Corpus",
    instruments: Iterable[AnyInstrument],
    seed: int = 0,
    tick: Callable[[int], None] = lambda tokens: None,
    part: Container[int] | None = None,
) -> dict[AnyInstrument, Any]:
    """Read the corpus once, without logits, and answer each instrument's state.

    `part` names the batches to read, by their number in the whole text: the states of all parts add up to the state of
    the whole, whoever reads them and in whatever order.
    """
    from armillary.flow.capture import run, still, watching
    from armillary.flow.glimpse import Tokens

    # Who uses up the shared z of a site sees it last.
    ordered = sorted(dict.fromkeys(instruments), key=lambda instrument: instrument.overwrites)
    watches = {instrument: instrument.start(anatomy, corpus, seed) for instrument in ordered}
    sites = _Sites(anatomy, list(watches.values()))
    with still(anatomy.model), watching(anatomy, sites.watchers()):
        for number, batch in enumerate(corpus.batches()):
            if part is not None and number not in part and (number or not sites.has_norms):
                continue
            # What is typical of a site is settled by the first batch, whoever counts it.
            sites.counting = part is None or number in part
            sites.tokens = Tokens.of(batch, corpus.groups, anatomy.device, number)
            for watch in watches.values() if sites.counting else ():
                watch.begin(sites.tokens)
            run(anatomy, batch.ids, batch.mask)
            for watch in watches.values() if sites.counting else ():
                watch.end()
            tick(batch.tokens)
    return {instrument: watch.state for instrument, watch in watches.items()}


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
        self.has_norms = any(site in anatomy.norms for site in self._watches)
        self.counting = True
        self.tokens: Tokens

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

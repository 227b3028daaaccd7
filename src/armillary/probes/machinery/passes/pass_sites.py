"""Which watch sees what passes a site, and when? At once; on a GPU norm sites wait until several are read together."""

from typing import Any

from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.flow.capture import Watcher
from armillary.flow.glimpse import Glimpse, Tokens, Typical, Workspace
from armillary.flow.site_sheet import Scales, SheetGlimpse, SiteSheet
from armillary.geometry.fused import batched
from armillary.probes.machinery.instrument import View, Watch


class PassSites:
    """Hands every site's view to the watches that asked for it."""

    def __init__(self, anatomy: Anatomy, watches: list[Watch[Any]]) -> None:
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

    @property
    def settled(self) -> bool:
        """Is it known what is typical of every norm, where sites are read in groups?"""
        return self._scales is not None and (self._scales.ready or not self._norms)

    def begin(self, tokens: Tokens) -> None:
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

    def watchers(self) -> dict[str, Watcher]:
        make = self._watcher if self._scales is None else self._gatherer
        return {site: make(site, watches) for site, watches in self._watches.items()}

    def _watcher(self, site: str, watches: list[Watch[Any]]) -> Watcher:
        """Shows a site to its watches as it passes."""
        norm = self._norms.get(site)

        def watcher(given: Tensor | None, value: Tensor) -> None:
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

    def _gatherer(self, site: str, watches: list[Watch[Any]]) -> Watcher:
        """The same where norm sites are read in groups: watches that take part are shown those, once they are full."""
        norm = self._norms.get(site)
        # At a norm site, those that are shown groups; elsewhere all watches see the site itself.
        alone = [watch for watch in watches if norm is None or watch not in self._readers]

        def watcher(given: Tensor | None, value: Tensor) -> None:
            sheet, place = self._sheet, -1
            assert sheet is not None
            if norm is not None:
                assert given is not None
                place = sheet.put(site, norm, given, value)
            if not alone or not self.counting:
                return

            def glimpse() -> SheetGlimpse:
                assert norm is not None and given is not None
                return SheetGlimpse(place, norm, given, value, sheet)

            view = View(given, value, None if norm is None else glimpse)
            for watch in alone:
                watch.see(site, view)

        return watcher

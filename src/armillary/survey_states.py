"""Where do the states of a survey come from? From a pass here, from shards that others read, or from a cluster."""

import dataclasses
import io
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from armillary.anatomy import Anatomy
from armillary.anatomy.facts import describe
from armillary.anatomy.loading.load import load_model
from armillary.anatomy.loading.weights import check_memory
from armillary.errors import ArmillaryError, ClusterError, TextError
from armillary.flow.tokens import Corpus
from armillary.probes import AnyProbe
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.instrument import AnyInstrument
from armillary.probes.machinery.plan import arms_of
from armillary.probes.machinery.processes.kept_pass import KeptPass, pass_key
from armillary.probes.machinery.processes.shards import Shard, Shards, write_shard
from armillary.probes.machinery.shared_pass import SegmentReader, StateReader, gather
from armillary.results.disk.resume import PASS
from armillary.views.text.progress import Bar


@dataclass(frozen=True)
class Loader:
    """A model that every worker loads by itself, from where this process did."""

    source: str
    dtype: str
    trust_remote_code: bool
    checksum: str
    kind: str
    """Of device."""

    def __call__(self, device: str) -> Anatomy:
        anatomy = load_model(
            self.source, None, device if self.kind == "cuda" else self.kind, self.dtype, self.trust_remote_code
        )
        if describe(anatomy).checksum != self.checksum:
            raise ClusterError(f"a worker finds other weights at {self.source} than this process; share one folder.")
        return anatomy


@dataclass(frozen=True)
class SentModel:
    """A model that exists in this process alone, as it travels to workers."""

    content: bytes
    kind: str

    @classmethod
    def of(cls, anatomy: Anatomy) -> "SentModel":
        # By torch, which knows that several tensors are views of one weight; pickle alone would send each.
        content = io.BytesIO()
        torch.save(dataclasses.replace(anatomy, tokenizer=None), content)
        return cls(content.getvalue(), anatomy.device.type)

    def __call__(self, device: str) -> Anatomy:
        # The bytes come from the process that asks.
        where = device if self.kind == "cuda" else self.kind
        anatomy: Anatomy = torch.load(io.BytesIO(self.content), where, weights_only=False)
        return anatomy


@dataclass(frozen=True)
class StateSource:
    """How a survey gets its evidence."""

    folder: Path | None = None
    shard: Shard | None = None
    """Read this part alone."""
    shards: Shards | None = None
    """Read nothing: add what these hold."""
    dask: str | None = None

    @classmethod
    def of(
        cls,
        shard: str | None,
        shards: Sequence[str | Path],
        dask: str | None,
        out: str | Path | None,
    ) -> "StateSource":
        """What can be refused is refused before a model is loaded."""
        asked = [name for name, value in (("shard", shard), ("shards", shards), ("dask", dask)) if value]
        if len(asked) > 1:
            raise ArmillaryError(f"{' and '.join(asked)} were given; choose one of them.")
        folder = None if out is None else Path(out)
        if shard is not None and folder is None:
            raise ArmillaryError("a shard stores its states in a folder; pass it as out=….")
        part = None if shard is None else Shard.parse(shard)
        merged = Shards.of([Path(path) for path in shards]) if shards else None
        if merged is not None and folder is not None and folder.resolve() in {p.folder.resolve() for p in merged.parts}:
            raise ArmillaryError(f"{folder} holds one of the shards; write the survey to another folder.")
        if dask is not None:
            check_dask(dask)
        return cls(folder, part, merged, dask)

    def check(self, corpus: Corpus | None, probes: Sequence[AnyProbe]) -> None:
        """Refuse a part of nothing, before anything is written."""
        if self.shard is None:
            return
        if corpus is None or not _instruments(probes):
            raise TextError("these claims read no text, so there is nothing to split; leave out --shard.")
        self.shard.check(corpus)

    def gather(
        self,
        anatomy: Anatomy,
        corpus: Corpus | None,
        probes: Sequence[AnyProbe],
        seed: int,
        bar: Bar,
        source: Loader | None = None,
    ) -> Evidence:
        """One pass per arm, after what will not fit was refused: a second model, and what the instruments keep.

        Workers get the model from `source`, or the model itself.
        """
        instruments = _instruments(probes)
        twin = sum(p.numel() * p.element_size() for p in anatomy.model.parameters())
        needed = twin + sum(instrument.bytes(anatomy) for instrument in instruments)
        check_memory(needed, 1, 1, str(anatomy.device))
        tokens = 0 if corpus is None else corpus.tokens
        if self.shard is not None:
            assert corpus is not None, "a part of no text was refused"
            tokens = sum(segment.tokens for segment in self.shard.segments(corpus))
        if tokens and instruments:
            bar.start("reading", arms_of(anatomy) * tokens)
        with ExitStack() as stack:
            return gather(
                anatomy,
                corpus,
                instruments,
                seed,
                bar.advance,
                lambda arm: bar.say(f"reading {tokens} tokens: {arm}"),
                self._reader(anatomy, corpus, instruments, seed, source, stack),
            )

    def leave(self, evidence: Evidence, asked: Mapping[str, Any], probes: Sequence[AnyProbe]) -> None:
        """Write the states of a shard."""
        assert self.shard is not None and self.folder is not None and evidence.corpus is not None
        instruments = _instruments(probes)
        key = pass_key(evidence.anatomy, evidence.corpus, instruments, evidence.seed)
        write_shard(self.folder, self.shard, key, asked, evidence, instruments)

    def _reader(
        self,
        anatomy: Anatomy,
        corpus: Corpus | None,
        instruments: Sequence[AnyInstrument],
        seed: int,
        source: Loader | None,
        stack: ExitStack,
    ) -> StateReader | None:
        if corpus is None or not instruments:
            return None
        if self.shards is not None:
            return self.shards.check(pass_key(anatomy, corpus, instruments, seed), instruments)
        part = "" if self.shard is None else str(self.shard)
        stored = None
        if self.folder is not None:
            stored = KeptPass(self.folder / PASS, pass_key(anatomy, corpus, instruments, seed, part))
        if self.shard is not None:
            return SegmentReader(stored, shard=self.shard)
        if self.dask is None:
            return SegmentReader(stored)
        from armillary.probes.machinery.processes.cluster import cluster_of

        cluster = stack.enter_context(cluster_of(self.dask))
        workers = stack.enter_context(cluster.holding(source or SentModel.of(anatomy), corpus, seed))
        return SegmentReader(stored, workers, ahead=workers.expect)


def check_dask(address: str) -> None:
    """Refuse an address that names no cluster, and a missing package."""
    try:
        from armillary.probes.machinery.processes.cluster import check_address
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("dask", "distributed"):
            raise
        raise ClusterError("--dask needs dask's workers; install them: pip install 'armillary[dask]'.") from None
    check_address(address)


def _instruments(probes: Sequence[AnyProbe]) -> list[AnyInstrument]:
    return list(dict.fromkeys(instrument for probe in probes for instrument in probe.instruments))

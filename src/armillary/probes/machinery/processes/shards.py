"""How is one text read by many processes? Each reads every n-th segment and leaves its states; a merge adds them.

Segments are those that one process would read, and random draws belong to the whole text: the sum over all shards is
what one process measures, up to the order of float64 sums. Shards are added in the order of their numbers, whatever the
order of their folders.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import OutputError, TextError
from armillary.probes.machinery.evidence import Evidence
from armillary.probes.machinery.instrument import AnyInstrument
from armillary.probes.machinery.processes.kept_pass import States, packed, unpack
from armillary.results.disk import schema as s
from armillary.results.disk.files import read_json, remove_tree
from armillary.results.store import file_name, json_text, write_whole

if TYPE_CHECKING:
    from armillary.flow.tokens import Corpus, Segment
    from armillary.probes.machinery.shared_pass import PassArm, Tick

FOLDER, FACTS = "shard", "shard.json"
_FORM = s.record(
    {
        "shard": s.listed(s.whole(1)),
        "key": s.text,
        "about": s.record({}, closed=False),
        "arms": s.mapped(s.listed(s.whole(0))),
        "lost": s.mapped(s.text),
    }
)


@dataclass(frozen=True)
class Shard:
    """One of `of` parts of a text, counted from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """
        >>> Shard.parse("2/8")
        Shard(number=2, of=8)
        """
        match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise TextError(f"--shard {text} is not a valid shard; give i/n with i from 1 to n, for example 2/8.")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def segments(self, corpus: "Corpus") -> "list[Segment]":
        """Every n-th segment of the text."""
        return corpus.segments()[self.number - 1 :: self.of]

    def check(self, corpus: "Corpus") -> None:
        """Every shard must have something to read."""
        if (most := len(corpus.segments())) < self.of:
            raise TextError(
                f"--shard {self} was given, but the {corpus.tokens} tokens of {corpus.source} make {most} "
                f"part{'s' * (most != 1)} of {corpus.segment_tokens}; use at most as many shards, or more --tokens."
            )


WHOLE = Shard(1, 1)


@dataclass(frozen=True)
class ShardFacts:
    """What a shard's folder says of itself."""

    folder: Path
    shard: Shard
    key: str
    about: Mapping[str, Any]
    """What was asked: model, text, claims and the like."""
    arms: Mapping[str, Sequence[int]]
    """arm → which of the survey's instruments left a state there."""
    lost: Mapping[int, str]
    """Instruments that raised, and why."""

    @property
    def text(self) -> str:
        """As in shard.json, and in every file of states beside it."""
        shard = [self.shard.number, self.shard.of]
        return json_text({"shard": shard, "key": self.key, "about": self.about, "arms": self.arms, "lost": self.lost})


def write_shard(
    folder: Path, shard: Shard, key: str, about: Mapping[str, Any], evidence: Evidence, wanted: Sequence[AnyInstrument]
) -> None:
    """The states of one shard; shard.json appears last, so that a folder that has it is whole."""
    from armillary.probes.machinery.shared_pass import Lost

    states = evidence.states
    lost = {place: state.reason for place, i in enumerate(wanted) if isinstance(state := states[i], Lost)}
    arms = {arm: [p for p, i in enumerate(wanted) if p not in lost and arm in states[i]] for arm in evidence.arms}
    facts = ShardFacts(folder, shard, key, about, arms, lost).text
    files: dict[Path, str | bytes] = {
        folder / FOLDER / file_name(arm, ".safetensors"): packed(
            {wanted[place]: states[wanted[place]][arm] for place in places}, {"key": key, "facts": facts}
        )
        for arm, places in arms.items()
    }
    write_whole({**files, folder / FOLDER / FACTS: facts})


def forget_shard(folder: Path) -> None:
    """States of a shard are of no use to a survey that begins anew in its folder."""
    remove_tree(folder / FOLDER)


def read_facts(folder: Path) -> ShardFacts:
    path = Path(folder) / FOLDER / FACTS
    try:
        record = read_json(path)
        _FORM(record, "")
        lost = {int(place): reason for place, reason in record["lost"].items()}
        return ShardFacts(Path(folder), Shard(*record["shard"]), record["key"], record["about"], record["arms"], lost)
    except FileNotFoundError:
        raise OutputError(
            f"{folder} contains no complete shard; run armillary survey --shard i/n --out {folder}, or "
            f"--resume {folder}."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OutputError(f"{path} is damaged ({type(error).__name__}); read that shard again.") from error


@dataclass(frozen=True)
class Shards:
    """All parts of one text, by number: a reader that adds what they hold."""

    parts: tuple[ShardFacts, ...]

    @classmethod
    def of(cls, folders: Sequence[Path]) -> "Shards":
        """Refused by name: parts that are missing, there twice, or of something else."""
        if not folders:
            raise OutputError("no shard was given; name the folders of all of them.")
        parts = sorted(map(read_facts, folders), key=lambda part: part.shard.number)
        first = parts[0]
        for part in parts[1:]:
            if part.shard.of != first.shard.of:
                raise OutputError(
                    f"{first.folder} is shard {first.shard} and {part.folder} is shard {part.shard}: they divide the "
                    "text differently; read all shards with the same n."
                )
            if part.key != first.key:
                raise OutputError(
                    f"{part.folder} does not belong to {first.folder}: it has another {_other(first, part)}; merge "
                    "shards of one survey."
                )
        count = Counter(part.shard.number for part in parts)
        if doubled := [number for number, times in count.items() if times > 1]:
            where = " and ".join(str(part.folder) for part in parts if part.shard.number == doubled[0])
            raise OutputError(f"shard {doubled[0]}/{first.shard.of} is in {where}; give each shard once.")
        # A damaged file may say that there are billions of them.
        if missing := first.shard.of - len(count):
            absent = (str(Shard(i, first.shard.of)) for i in range(1, first.shard.of + 1) if i not in count)
            verb = "is" if missing == 1 else "are"
            named = ", ".join(islice(absent, 20)) + (f" and {missing - 20} more" if missing > 20 else "")
            raise OutputError(f"{named} {verb} missing; read what is missing (--shard), then merge all.")
        return cls(tuple(parts))

    def check(self, key: str, wanted: Sequence[AnyInstrument]) -> "MergedShards":
        """The reader, once the model and the text are here and turn out to be those of the shards."""
        if key != self.parts[0].key:
            raise OutputError(
                f"{self.parts[0].folder} was read from another model, text, seed or version than merge finds now; "
                "restore them, or read all shards again."
            )
        return MergedShards(self.parts, tuple(wanted))


@dataclass(frozen=True)
class MergedShards:
    parts: tuple[ShardFacts, ...]
    wanted: tuple[AnyInstrument, ...]

    def expect(self, arm: str, instruments: Sequence[AnyInstrument], corpus: "Corpus") -> None:
        pass

    def __call__(
        self, arm: "PassArm", instruments: Sequence[AnyInstrument], tick: "Tick"
    ) -> tuple[States, dict[AnyInstrument, Exception]]:
        raised = {
            self.wanted[place]: RuntimeError(f"{reason} (shard {part.shard})")
            for part in self.parts
            for place, reason in part.lost.items()
        }
        held = [[self.wanted[place] for place in part.arms.get(arm.name, ())] for part in self.parts]
        empty, total = arm.empty(dict.fromkeys(i for present in held for i in present)), States()
        for part, present in zip(self.parts, held, strict=True):
            states = {i: deepcopy(empty[i]) for i in present}
            path = part.folder / FOLDER / file_name(arm.name, ".safetensors")
            if unpack(path, states, part.key, "read that shard again")["facts"] != part.text:
                raise OutputError(f"{path} and {FACTS} beside it are not of one reading; read that shard again.")
            total = {i: total[i] + states[i] if i in total else states[i] for i in present if i not in raised}
        tick(arm.corpus.tokens)
        return total, {i: error for i, error in raised.items() if i in instruments}


def _other(ours: ShardFacts, theirs: ShardFacts) -> str:
    names = [name for name in {**ours.about, **theirs.about} if ours.about.get(name) != theirs.about.get(name)]
    return ", ".join(names) or "model or text of the same name"

"""Do words travel along the sphere from themselves to the next word?"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from armillary.probes.machinery.evidence import MODEL, Evidence, Floats, mean
from armillary.probes.machinery.probe import Instrument
from armillary.probes.machinery.thresholds import THRESHOLDS as T
from armillary.probes.words.lens import reads
from armillary.results import Claim, Column, Control, Finding, Quantity, Statistic, Table, Verdict

COLUMNS = (
    Column("state", "state of the stream"),
    Column("own", "angle to the word itself", "°"),
    Column("next", "angle to the true next word", "°"),
    Column("other", "angle to a random other word, as frequent as next words are", "°"),
    Column("length", "length of the stream |x|"),
    Column("moved", "angle moved since the state before", "°"),
    Column("turning", "turn against the move before; 90° is a move at random in many dimensions", "°"),
    Column("radial", "share of the write's square along the stream, which moves nothing on the sphere"),
)


@dataclass(frozen=True)
class Travel:
    """Angles to the word itself and to the next one, state by state, for all tokens."""

    claim: ClassVar[Claim] = Claim(
        id="words.travel",
        chapter="C",
        statement="Words travel along the sphere from themselves to the next word.",
        source="S0 S1",
        definition=(
            "For every token but first ones: the angle between its states before and after each sublayer, and the angles of "
            "each state, sent through the final norm, to the word's own vector and to the true next word's, both rows of the "
            "unembedding (the space in which the model reads words out). The statistic is the share of tokens that end "
            "farther from themselves and nearer to the next word than they started. Beside it the share that come nearer to "
            "the next word by more than to a random other one."
        ),
        control="the same with a random other word for the next one; random initialisation; shuffled text",
        rule=(
            f"Supported: the share is ≥ {T.travel_most:.0%} with its whole interval, and ≥ {0.5 + T.travel_margin:.0%} come nearer to "
            f"the next word by more than to another (chance: 50%). Refuted: the share lies below {T.travel_half:.0%}, or those "
            f"below {0.5 + T.travel_margin:.0%}. Qualified otherwise. Undecided for a model that reads out no next word, or when "
            "an interval spans a limit."
        ),
    )
    instruments: ClassVar[tuple[Instrument, ...]] = ("travel",)

    def conclude(self, evidence: Evidence) -> Finding:
        record = evidence.travel[MODEL]
        share = evidence.interval(record.sums("path", "both"), mean)
        more = evidence.interval(record.sums("path", "more"), mean)
        verdict = _verdict(evidence, share, more)
        path, geodesic = (float(mean(record.sums("path", name).sum(0)[None])[0]) for name in ("path", "geodesic"))
        return Finding(
            claim=self.claim,
            verdict=verdict,
            statistic=Statistic("share of tokens that leave themselves and approach the next word", *share),
            n=record.tokens,
            controls=(
                Control("a random other word", *evidence.interval(record.sums("path", "both_other"), mean)),
                *(
                    Control(arm, *evidence.interval(evidence.travel[arm].sums("path", "both"), mean))
                    for arm in evidence.controls()
                ),
            ),
            reading=_reading(evidence, verdict, share[0], path, geodesic),
            headline=f"{share[0]:.0%} of words leave themselves and approach the next word"
            + ("" if reads(evidence.anatomy) else ", in a model that reads out none"),
            table=_table(evidence),
            quantities=_quantities(evidence),
            notes=()
            if record.names[0].endswith("pre")
            else (f"No norm stands before {record.names[0]}: the way is followed from there on.",),
        )


def _verdict(evidence: Evidence, share: tuple[float, ...], more: tuple[float, ...]) -> Verdict:
    chance = 0.5 + T.travel_margin
    if not reads(evidence.anatomy) or np.isnan([*share, *more]).any():
        return "undecided"
    if share[2] < T.travel_half or more[2] < chance:
        return "refuted"
    if share[1] < T.travel_half or more[1] < chance:
        return "undecided"
    return "supported" if share[1] >= T.travel_most else "qualified"


def _means(evidence: Evidence, arm: str, part: str, name: str) -> Floats:
    return mean(evidence.travel[arm].sums(part, name).sum(1))


def _table(evidence: Evidence) -> Table:
    record = evidence.travel[MODEL]
    angles = {name: np.degrees(_means(evidence, MODEL, "state", name)) for name in ("own", "next", "other")}
    length = _means(evidence, MODEL, "state", "length")
    moves = {name: _means(evidence, MODEL, "move", name) for name in ("moved", "turning", "radial")}
    rows: list[dict[str, Any]] = []
    for i, state in enumerate(record.names):
        row: dict[str, Any] = {"state": state, "length": float(length[i])}
        row |= {name: float(values[i]) for name, values in angles.items()}
        for name, values in moves.items():
            known = i > (1 if name == "turning" else 0)
            value = float(values[i - 1]) if known else None
            row[name] = value if value is None or name == "radial" else float(np.degrees(value))
        rows.append(row)
    return Table.of(COLUMNS, rows)


def _reading(evidence: Evidence, verdict: Verdict, share: float, path: float, geodesic: float) -> str:
    record = evidence.travel[MODEL]
    other = float(mean(record.sums("path", "both_other").sum(0)[None])[0])
    more = float(mean(record.sums("path", "more").sum(0)[None])[0])
    start, end = (float(np.degrees(_means(evidence, MODEL, "state", "next")[i])) for i in (0, -1))
    way = (
        f"They walk {np.degrees(path):.0f}° to get {np.degrees(geodesic):.0f}° away ({path / max(geodesic, 1e-9):.1f} times the "
        f"great circle), and end {end:.0f}° from the next word, where they began at {start:.0f}°"
    )
    if not reads(evidence.anatomy):
        return f"This model reads out no next word, so nothing is decided. {way}."
    unsure = "; more text would decide" if verdict == "undecided" else ""
    return (
        f"{share:.0%} end farther from themselves and nearer to the next word, {other:.0%} would with a random one; {more:.0%} come "
        f"nearer to the next word by more than to that. {way}{unsure}."
    )


def _quantities(evidence: Evidence) -> tuple[Quantity, ...]:
    record = evidence.travel[MODEL]

    def over_states(name: str, meaning: str) -> Quantity:
        stats = record.sums("state", name)
        values, low, high = np.degrees(evidence.site_intervals(stats, mean)).T
        controls = {arm: np.degrees(_means(evidence, arm, "state", name)) for arm in evidence.controls()}
        if name == "next":
            controls = {"a random other word": np.degrees(_means(evidence, MODEL, "state", "other")), **controls}
        coords = {"state": list(record.names)}
        return Quantity(
            f"angle to {meaning}",
            "after the final norm, mean over tokens",
            "°",
            ("state",),
            coords,
            values,
            low,
            high,
            controls,
        )

    values, low, high = np.degrees(evidence.site_intervals(record.sums("move", "moved"), mean)).T
    moves = Quantity(
        "angle moved by each sublayer",
        "between the states before and after it, mean over tokens",
        "°",
        ("sublayer",),
        {"sublayer": move_names(record.names)},
        values,
        low,
        high,
        {arm: np.degrees(_means(evidence, arm, "move", "moved")) for arm in evidence.controls()},
    )
    return over_states("own", "the word itself"), over_states("next", "the next word"), moves


def move_names(states: tuple[str, ...]) -> list[str]:
    """The sublayer between two states.

    >>> move_names(("L0.resid_pre", "L0.resid_mid", "L1.resid_pre", "L1.resid_post"))
    ['L0.attn', 'L0.mlp', 'L1']
    """
    made = []
    for before, after in pairwise(states):
        layer, place = before.split(".")
        if place == "resid_mid":
            made.append(f"{layer}.mlp")
        elif place == "resid_post":
            made.append(f"{after.split('.')[0]}.attn")
        else:
            made.append(f"{layer}.attn" if after.endswith("mid") else layer)
    return made

"""Do norms keep very long generations where real text is?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from armillary.probes.machinery import AnyInstrument, Evidence, T, undecided, weighed
from armillary.probes.stability.nudges.growth import APART, FROZEN, LIVE
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench
    from armillary.probes.stability.writing.departures import Departures

WINDOW, LEAST_WINDOW = 64, 16
# A large model writes four windows; more would cost more than all other claims together. Some generations drift into a
# list or a loop for a while: with twelve prompts, one such left up to a third of surveys undecided.
WINDOWS, FEW_WINDOWS, LARGE = 7, 4, 50e6
# Up to two more, where that is enough to outgrow the context.
MOST_WINDOWS = 9
PROMPTS, FEW_PROMPTS = 24, 16
# A pass of one token per row costs about three times as much per token as one over whole windows.
SLOWER = 3


@dataclass(frozen=True, eq=False)
class LongText:
    """What was written, and how far it went."""

    departures: "Departures"
    passages: tuple[tuple[str, int, str], ...]
    """(arm, number of the window, text)."""
    evicted: bool
    """Did old keys fall out of the cache? Else the rest of the window was read anew."""


@dataclass(frozen=True)
class Generation:
    """Free generation of several windows, with norms live and frozen, beside real text of the same length."""

    claim: ClassVar[Claim] = Claim(
        id="stability.generation",
        chapter="D",
        statement="Projecting onto the same manifold at every step keeps very long generations coherent.",
        source="S3",
        question=(
            "Let the model write a long text by itself, beyond its context if that is cheap enough. Do its states "
            "and its text stay like those of real text, and is it the norms that keep them so?"
        ),
        kind="behaviour",
        definition=(
            f"The model continues {PROMPTS} stretches of the text by itself, at temperature 1, far beyond one window. "
            "Do its states and its text stay like those of real text?\n"
            f"It writes {WINDOWS} windows of 64 tokens from each, and up to {MOST_WINDOWS} where that outgrows its "
            f"context. A model with more than 50 million parameters writes {FEW_WINDOWS} windows from {FEW_PROMPTS} "
            "stretches, and so does any model with --quick. Windows are shorter where the context is shorter than "
            "128 tokens. The model uses its own cache.\n"
            "When the window is full, the keys and values of its first half are dropped from the cache, and those of "
            "the second half stay as they are. This needs rotary positions of fixed angles. Elsewhere (a learned "
            "table ties each key to its position), and if a layer has a window of its own, the second half is read "
            "again from the first position.\n"
            "There are several arms (ways to run the model), with the same prompts and random numbers. First: norms "
            "live. Second: every norm frozen to the mean of 1/σ over real text, from the prompt's last token on (σ "
            "is what the norm divides by). Third, where windows are read again: frozen, but the first token of a "
            "window at its own scale. Third, where keys stay: norms live and windows read again (ours). All arms but "
            "the first have eight stretches.\n"
            "State quantities, in every window, at an early, a middle and the last norm: the angle to the mean "
            "direction of real text, the angle to the tenth nearest state of real text, log ‖x‖, and the effective "
            "rank of the window's directions. Text quantities: entropy of the prediction, repeated triples of "
            "tokens, distinct tokens and distinct pairs.\n"
            "A quantity's trend is its mean over the last third of the windows minus its mean over the first third "
            "with norms live. The first window is left out, because it begins with the prompt in view.\n"
            "The band is what real text does: two standard deviations of its own trends over as many windows that "
            "slide by half, from every start. A standard deviation counts as at least 0.1°, 0.001 nats, 0.1 "
            "dimensions, or one token of a third.\n"
            "The statistic is the share of state quantities whose trend lies beyond the band, with norms live."
        ),
        control=(
            "norms frozen to one scale; where windows are read again, also with first tokens apart; real text of the "
            "same length"
        ),
        rule=(
            "Four parts; the weakest decides. A quantity lies within or beyond the band only if the whole interval "
            f"of its trend does. The band is {T.generation_band:g} standard deviations wide on either side.\n"
            "Part 1, states stay, with norms live.\n"
            "Supported if every state quantity lies within the band.\n"
            f"Refuted if {T.generation_most:.0%} of them or more lie beyond it.\n"
            "Qualified if some do, but fewer.\n"
            "Part 2, the text stays coherent: the rule of part 1, for the text quantities and two more. These two "
            "are judged by their level in the last third, not by a trend: they lie beyond if repeated triples are "
            f"more, or distinct pairs fewer, than in real text by {T.generation_band:g} standard deviations of a "
            "third's mean.\n"
            "Part 3, norms do it.\n"
            f"Supported if {T.generation_most:.0%} of the state quantities or more lie beyond the band in every "
            "frozen arm (a quantity counts as beyond if most generations overflow).\n"
            "Refuted if all lie within, in every frozen arm.\n"
            f"Qualified if some lie beyond, but fewer than {T.generation_most:.0%} in at least one frozen arm.\n"
            "Part 4, longer than the context.\n"
            "Supported if more tokens are written than the model's context holds.\n"
            "Qualified otherwise.\n"
            "Parts 1 to 3 are undecided if an interval spans the edge of the band and nothing else decides.\n"
            "Undecided without a next-token prediction, with a context below 32 tokens, or with too little text.\n"
            "Where keys stay in the cache, a fifth part of our own applies the rule of part 1 to windows that are "
            "read again, and decides nothing."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "The first and the last quarter of six windows were compared, which is one window each. The first "
                "window begins with the prompt in view, so a trend was in part the loss of the prompt; it is now left "
                "out. Thirds of the other windows are compared, and a seventh is written, so that a third has two. "
                "Twelve prompts became twenty-four, because one text that drifts into a loop and back left the verdict "
                "open.",
            ),
            RuleChange(
                "2026-11-18",
                "The cache evicts where keys can stay; before, half of the window was read anew at every slide, and "
                "eight prompts of an evicting cache did not decide. A text that does not outgrow the context is "
                "qualified at most: builtin:llama was supported after 448 tokens of its 512. Its evicting arm had been "
                "undecided.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "62fd4b12cd3f", 2),
            Rewording("2026-11-18", "a99e69d8e0a4", 2),
            Rewording("2026-11-19", "9540db8ec12d", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()

    def passes(self, anatomy: "Anatomy") -> float:
        from armillary.probes.machinery.bench import TOKENS
        from armillary.probes.stability.writing.generating import arms_of

        window, windows, prompts = size_of(anatomy, False)
        if not window:
            return 0.0
        # Every token is written once, one per pass and row, and read anew at most once; real text is read twice.
        rows = sum(arms_of(anatomy, prompts).values())
        return (rows * window * windows * (SLOWER + 1) + 2 * 2500) / TOKENS

    def experiment(self, bench: "Bench") -> LongText | None:
        from armillary.probes.stability.writing.departures import Departures
        from armillary.probes.stability.writing.generating import Writer, arms_of, evicts
        from armillary.probes.stability.writing.generation_views import passages
        from armillary.probes.stability.writing.ring_text import read_ring, ring_ids, sites_of
        from armillary.probes.stability.writing.written_text import measure

        window, windows, prompts = size_of(bench.anatomy, bench.quick)
        if not window or not bench.scored:
            return None
        windows = min(windows, len(ring_ids(bench.corpus, window // 2)) // window)
        if windows < FEW_WINDOWS:
            return None
        sites = sites_of(bench.anatomy)
        ring = read_ring(bench, window // 2, sites)
        arms = arms_of(bench.anatomy, prompts)
        written = Writer(bench, ring, window // 2, arms, window * windows).write(sites)
        departures = Departures(measure(bench.anatomy, ring, written, window, sites), window, windows)
        return LongText(departures, passages(bench.anatomy, written, window), evicts(bench.anatomy))

    def conclude(self, evidence: Evidence, result: LongText | None) -> Finding:
        from armillary.probes.stability.writing import generation_parts as parts_of
        from armillary.probes.stability.writing import generation_views as views

        if result is None:
            return undecided(self.claim, *_missing(evidence))
        departures = result.departures
        parts = [
            parts_of.states_stay(evidence, departures),
            parts_of.text_stays(evidence, departures),
            parts_of.norms_do_it(evidence, departures),
        ]
        parts.append(parts_of.very_long(evidence, departures))
        if result.evicted:
            parts.append(parts_of.read_anew(evidence, departures))
        shares = {arm: departures.share(evidence, arm) for arm in departures.measured.arms}
        tokens = departures.window * departures.windows
        return Finding(
            claim=self.claim,
            **weighed(parts, " ".join([views.opening(departures, result.evicted), *(part.reading for part in parts)])),
            statistic=Statistic("share of state quantities beyond the band of real text, norms live", *shares[LIVE]),
            n=len(departures.measured.arms[LIVE]) * tokens,
            controls=tuple(Control(arm, *shares[arm]) for arm in parts_of.frozen_arms(departures)),
            headline=f"After {tokens} tokens of its own, {say(shares[LIVE][0], '.0%')} of the model's state quantities "
            f"have left the band of real text; with norms frozen {say(shares[FROZEN][0], '.0%')}"
            + (f", first tokens apart {say(shares[APART][0], '.0%')}" if APART in shares else ""),
            table=views.table_of(evidence, departures),
            quantities=views.lines(evidence, departures),
            notes=views.notes(departures),
            more_tables={"text": views.text_table(result.passages), "arms": views.arm_table(evidence, departures)},
        )


def size_of(anatomy: "Anatomy", quick: bool) -> tuple[int, int, int]:
    """Tokens of a window, how many windows are written, and from how many prompts; zeros where two windows do not fit
    into the context."""
    window = min(WINDOW, anatomy.context // 2) // 2 * 2
    if window < LEAST_WINDOW or not anatomy.causal or anatomy.W_U is None:
        return 0, 0, 0
    parameters: Any = sum(p.numel() for p in anatomy.model.parameters())
    if quick or parameters > LARGE:
        return window, FEW_WINDOWS, FEW_PROMPTS
    longer = anatomy.context // window + 1
    return window, longer if WINDOWS < longer <= MOST_WINDOWS else WINDOWS, PROMPTS


def _missing(evidence: Evidence) -> tuple[Why, str]:
    anatomy = evidence.anatomy
    if not anatomy.causal or anatomy.W_U is None:
        return (
            Why.NOT_APPLICABLE,
            "This model predicts no next token, so it cannot write. A causal language model would.",
        )
    if not size_of(anatomy, False)[0]:
        reading = f"The context of {anatomy.context} tokens does not hold two windows of {LEAST_WINDOW}."
        return Why.NOT_APPLICABLE, reading
    reading = f"A band needs {FEW_WINDOWS} windows of real text; the text has {evidence.tokens} tokens. Give more text."
    return Why.TOO_LITTLE_TEXT, reading

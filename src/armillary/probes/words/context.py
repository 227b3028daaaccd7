"""Do the states of a word become contextual: do they differ by context, and by what the word means there?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import RANDOM, SHUFFLED, AnyInstrument, Evidence, T, undecided, weighed
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench
    from armillary.probes.words.contexts.context_measures import ContextMeasures, ContextPasses

SENSE = "share of comparisons in which the same sense is nearer"


@dataclass(frozen=True)
class Context:
    """Self-similarity of words over contexts, what neighbours predict of it, and clusters of senses."""

    claim: ClassVar[Claim] = Claim(
        id="words.context",
        chapter="C",
        statement="The states of a word are contextual: they differ by context, and by what the word means there.",
        source="S1",
        question=(
            "Does the same word have different vectors in different contexts? Are they closer to each other where "
            "the word has the same meaning?"
        ),
        kind="learned",
        definition=(
            "Do the states of one word differ from context to context? Everything is measured at up to seven norm "
            "sites, spread over the depth. The numbers that decide are means over the later half of these sites.\n"
            "z is a token's state after a norm, before gain and shift.\n"
            "(1) The own share of a word says how much of its state is the word alone (Ethayarajh 2019). It is (s − "
            "r)/(1 − r): s is the mean cosine of z between two occurrences of one word in different documents, and r "
            "the mean cosine between different words. So it is 1 if a state is the word alone, and 0 if two "
            "occurrences are as far apart as two words. Each sampled token counts once. What attention removes from "
            "the own share is the own share with attention off minus that with attention on, for the same tokens in "
            "the same draws of documents.\n"
            "(2) Senses, the statistic: sixteen words with two senses, ten sentences for each sense, written for this "
            "purpose. The words that reveal the sense come before the word itself, which always follows 'the'. Each "
            "sentence is compared with two others, one with the same sense and one with the other: how often is the "
            "state of the word nearer (by the cosine of z) to that in the sentence with the same sense? By chance in "
            "half of the cases. The statistic is the mean over words; its interval is a bootstrap over words.\n"
            "(3) The share of the variance of a word's states about their mean that a ridge regression predicts from "
            "the embeddings of the two words before it (in an encoder, also the one after it). The effect of position "
            "is removed first. Each half of the documents is predicted by a fit on the other half.\n"
            "(4) The part of the own share's movement over the sites that goes down."
        ),
        control=(
            "attention off (all heads silenced, so that only word and position are left); random initialisation; "
            "shuffled text; for senses also the sentence shuffled, and the two words before it alone; neighbours of "
            "another occurrence of the word"
        ),
        rule=(
            "The weaker of parts 1 and 2 decides. 'Above' and 'below' refer to the whole interval.\n"
            "Part 1, they differ by context.\n"
            f"Supported if the own share is below {T.context_own}, and what attention removes from it is above "
            f"{T.context_off}.\n"
            f"Refuted if the own share is above {T.context_none}, or what attention removes is below {T.context_off}.\n"
            f"Qualified if the own share is between {T.context_own} and {T.context_none}, and what attention removes "
            f"from it is above {T.context_off}.\n"
            "Untrained models mix contexts as well, so this part alone does not show learning.\n"
            "Part 2, they differ by sense.\n"
            f"Supported if the statistic is above {T.context_sense}, above that of untrained models, and above the one "
            "with attention off (the upper end of that interval).\n"
            "Refuted if it is below one of them.\n"
            f"Undecided if fewer than {T.context_words} of the words are single tokens here, or without untrained "
            "models.\n"
            "Part 3 is ours and decides nothing: neighbours predict it.\n"
            f"Supported if the share is above {T.context_neighbours}, above that of untrained models, and above what "
            "the neighbours of another occurrence predict (the upper end of that interval).\n"
            "Refuted if it is below one of them.\n"
            "Part 4 is ours and decides nothing: more with depth (Ethayarajh 2019).\n"
            f"Supported if more than {T.refine_most:.0%} of the movement goes down.\n"
            f"Refuted if less than {T.refine_half:.0%} does.\n"
            "Qualified in between.\n"
            "Every part is undecided if an interval spans its limit or is missing. The claim is undecided if fewer "
            f"than {T.tokens_least} sampled tokens meet their own word in another document."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "All arms read the same sentences, and all untrained twins read them. Before, controls read every "
                "second sentence and three twins did, two with --quick, where their wide interval could refute.",
            ),
            RuleChange(
                "2026-11-18",
                "Attention on and off are compared on the same tokens, by their difference and its interval. The lower "
                "ends of two intervals over different tokens had been compared: where attention does nothing (0.50 "
                "against 0.50) chance decided between refuted and undecided.",
            ),
        ),
        rewordings=(
            Rewording("2026-11-18", "a125915eef22", 2),
            Rewording("2026-11-18", "79b87dbd76ee", 2),
            Rewording("2026-11-19", "b69175165fcf", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = (SAMPLES,)

    def passes(self, anatomy: "Anatomy") -> float:
        # The text with attention on and off. The sentences have 3400 tokens, 5000 in a tokenizer that splits much: the
        # model and each twin read them, also shuffled; two words alone and attention off take 3000 at most.
        from armillary.flow.controls import twins_for

        return 2 + ((2 + twins_for(anatomy)) * 5000 + 3000) / 1536

    def experiment(self, bench: "Bench") -> "ContextPasses":
        from armillary.probes.words.contexts.context_measures import context_passes

        return context_passes(bench)

    def conclude(self, evidence: Evidence, result: "ContextPasses") -> Finding:
        from armillary.probes.words.contexts.context_measures import ContextMeasures
        from armillary.probes.words.contexts.context_parts import attention_limit, context_parts
        from armillary.probes.words.contexts.context_tables import (
            context_notes,
            context_quantities,
            context_table,
            sense_table,
        )

        measures = ContextMeasures(evidence, result)
        if not measures.enough:
            reading = (
                f"{T.tokens_least} tokens must meet their own word in another document; {measures.partners} do. Give "
                "more text, or longer documents."
            )
            return undecided(self.claim, Why.TOO_LITTLE_TEXT, reading, n=measures.partners)
        parts = context_parts(measures)
        sense, own = measures.sense(), measures.own_share()
        statistic, controls = _statistic(measures)
        return Finding(
            claim=self.claim,
            **weighed(parts),
            statistic=statistic,
            n=result.senses.sentences or measures.partners,
            controls=controls,
            headline=f"The same sense is nearer in {say(sense[0], '.0%')} of comparisons (chance: 50%); a word's own "
            f"share of its state is {say(own[0], '.2f')} in the later half of the depth",
            table=context_table(measures),
            quantities=context_quantities(measures),
            notes=context_notes(measures),
            more_tables={"senses": sense_table(measures)} if result.senses.words else {},
            limits=attention_limit(measures, parts[0]),
        )


def _statistic(measures: "ContextMeasures") -> tuple[Statistic, tuple[Control, ...]]:
    """Senses; where the tokenizer shows too few of the words, the own share stands in their place."""
    off, near = "attention off", "two words before it alone"
    if len(measures.passes.senses.words) < T.context_words:
        instead = (Control(off, *measures.own_share(off)), Control(SHUFFLED, *measures.own_share(SHUFFLED)))
        return Statistic("own share of a word's state", *measures.own_share()), instead
    return Statistic(SENSE, *measures.sense()), (
        Control(off, *measures.sense(off)),
        Control(RANDOM, *measures.sense_twins()),
        Control("the sentence shuffled", *measures.sense(SHUFFLED)),
        Control(near, *measures.sense(near)),
    )

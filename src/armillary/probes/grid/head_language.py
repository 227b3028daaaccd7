"""Do heads resolve syntax, similarity and opposition, and anaphora?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from armillary.probes.machinery import RANDOM, AnyInstrument, Evidence, T, undecided
from armillary.probes.machinery.verdicts import FIVE_TWINS, weighed
from armillary.results import Claim, Control, Finding, Rewording, RuleChange, Statistic, Why, say

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.grid.language.attention_gaps import LanguagePasses
    from armillary.probes.machinery.bench import Bench


@dataclass(frozen=True)
class HeadLanguage:
    """Attention of every head on a target word less that on a matched distractor, in sentences made for it."""

    claim: ClassVar[Claim] = Claim(
        id="heads.language",
        chapter="F",
        statement="Some heads resolve syntax, some similarity and opposition, some anaphora.",
        source="S3",
        question=(
            "Do some heads find the word that the grammar asks for, some a word's synonym or opposite, and some the "
            "word that a pronoun stands for? Made-up sentences with one right and one wrong word are used to test "
            "this."
        ),
        kind="learned",
        definition=(
            "How well does the best head tell the right word from a wrong one, in made-up sentences? The gap is its "
            "attention to the right word (the target) minus that to the wrong one (the distractor).\n"
            "Six phenomena in three groups, forty items each, are made from word lists by a seeded generator.\n"
            "Syntax: agreement (from 'was' or 'were' to its subject, not to a noun of the other number), subject "
            "(from a verb to its subject, not to another person), determiner (from 'this' or 'these' to the noun "
            "that it stands for, by number).\n"
            "Similarity and opposition: synonym and antonym (from a word of a list to its synonym or opposite, not "
            "to another word).\n"
            "Anaphora: pronoun (to its antecedent, by gender or number, not to another noun).\n"
            "Each item is read in both orders, with the two words exchanged, and the items of a pair exchange the "
            "words' roles. The gap in the weaker order counts, so a head that goes by position, or that prefers a "
            "word, has none. An item is used if its three words are single tokens.\n"
            "The best head of each half of the pairs is measured on the other half. The statistic is its mean gap in "
            "the weakest phenomenon. Intervals are over pairs, and corrected for the number of phenomena."
        ),
        control=(
            "random initialisation (five untrained twins of a small model, two with --quick); both orders and both "
            "roles, within the gap"
        ),
        rule=(
            f"A phenomenon is resolved if two things hold. The best head's gap lies above {T.language_attention} and "
            "above untrained models, with its whole interval. And one of its best heads (one for each half of the "
            f"pairs) has a gap significantly above 0 in both orders (at most {T.false_discovery:.0%} false "
            "discoveries over all heads and phenomena, Benjamini–Hochberg).\n"
            "A phenomenon is not resolved if the interval lies below either limit, or if neither of these heads is "
            "significant.\n"
            "Three parts, one per group; the weakest decides.\n"
            "Supported if all phenomena of the group are resolved.\n"
            "Refuted if none is.\n"
            "Qualified if some are and some are not.\n"
            "Undecided otherwise: where intervals span a limit, or without untrained models.\n"
            f"A phenomenon with fewer than {T.language_items} readable items is left out; a group with none is "
            "undecided.\n"
            "Part 4 is ours and decides nothing: they are of use. The heads that are best on one half of the pairs "
            "are removed. On the other half, the rise of the loss from the query on is compared with the rise on "
            "ordinary text.\n"
            f"Supported if the first rise is {T.language_cost} nats per token or more above the second, in every "
            "group with a resolved phenomenon, with its whole interval.\n"
            "Refuted if this is so in none of them.\n"
            "Qualified if it is so in some and not in others.\n"
            "Undecided where intervals span the limit, if no phenomenon is resolved, or if the model predicts no "
            "next token."
        ),
        changes=(
            RuleChange(
                "2026-11-16",
                "The weaker order counts, not the mean of both. Before the first publication, a head of builtin:llama "
                "had a mean gap of 0.37 for subjects: it gave 0.81 more to the nearer noun after a comma, and 0.07 "
                "less to the subject where no comma stood between.",
            ),
            FIVE_TWINS,
        ),
        rewordings=(
            Rewording("2026-11-18", "76f1386f825e", 2),
            Rewording("2026-11-18", "4e829997eafb", 2),
            Rewording("2026-11-18", "85c3b9bfe428", 2),
            Rewording("2026-11-19", "9f2131338e60", 2),
        ),
    )
    instruments: ClassVar[tuple[AnyInstrument, ...]] = ()
    needs_documents: ClassVar[bool] = False

    def passes(self, anatomy: "Anatomy") -> float:
        # 480 sentences of eight to ten tokens up to the query, half of them for five untrained models; then half of
        # the items in one order, twice, and a third of the text four times. A tokenizer may add tokens around each.
        return (480 * 13 * 3.5 + 120 * 16 * 2) / 1536 + 4 / 3

    def experiment(self, bench: "Bench") -> "LanguagePasses":
        from armillary.probes.grid.language.attention_gaps import language_passes

        return language_passes(bench)

    def conclude(self, evidence: Evidence, result: "LanguagePasses") -> Finding:
        from armillary.probes.grid.language.language_parts import LanguageEffects, language_parts
        from armillary.probes.grid.language.language_tables import (
            cost_table,
            effects_table,
            language_notes,
            language_quantities,
            phenomena_table,
        )

        if not result.gaps:
            used = ", ".join(f"{count} of {name}" for name, count in result.used.items())
            reading = (
                f"Too few items can be read with this tokenizer ({used}); a phenomenon needs {T.language_items}. A "
                "vocabulary of whole English words and a context of a dozen tokens would decide."
            )
            return undecided(self.claim, Why.UNDEFINED, reading)
        effects = LanguageEffects(result, evidence)
        parts = language_parts(effects)
        weak = effects.weakest
        gap, random = effects.gaps[weak], effects.untrained[weak]
        resolved = [name for name in effects.gaps if effects.resolved(name)]
        return Finding(
            claim=self.claim,
            **weighed(
                parts,
                "Share of attention that the best head gives to the right word, minus that to the wrong one, in the "
                "weaker of both orders. "
                + " ".join(f"{part.name.capitalize()}: {part.reading}" for part in parts[:3])
                + f" {parts[3].reading}",
            ),
            statistic=Statistic(f"gap of the best head in the weakest phenomenon ({weak})", *gap),
            n=sum(2 * len(values) for values in effects.values.values()),
            controls=(Control(RANDOM, *random),),
            headline=f"{len(resolved)} of {len(effects.gaps)} phenomena have a head that tells the target from the "
            f"distractor{' (' + ', '.join(resolved) + ')' if resolved else ''}; weakest: {weak}, "
            f"{say(gap[0], '+.2f')} of the attention",
            table=effects_table(effects),
            quantities=language_quantities(effects),
            notes=language_notes(effects),
            more_tables={
                "phenomena": phenomena_table(effects),
                **({"removing heads": cost_table(effects)} if result.costs else {}),
            },
        )

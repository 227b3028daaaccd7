"""Which claims does the laboratory decide, by which study and by what rule? A survey of one model cannot."""

from dataclasses import dataclass

from armillary.lab.study.conclusions.decisions import (
    SHARE,
    Decide,
    all_worse,
    lossy_needed,
    misfit_helps,
    none_better,
    norm_bends,
    some_better,
    some_symmetriser,
)
from armillary.lab.study.design import EFFECT
from armillary.results.claim import Claim, RuleChange

OUTCOMES = (
    f"Outcomes of arms: at least {EFFECT:g} nats per token and a paired t test with Holm's correction over the arms "
    "make better or worse; two one-sided tests make equivalent, and one of them, corrected likewise, not better or not "
    "worse; anything else is undecided and states the seeds needed."
)
_LOSS = (
    "Loss on held-out text at the end of training, nats per token, less that of the reference: same order of the text."
)
_SEEN = (
    RuleChange(
        "2026-11-16",
        "the question had no rule for a verdict; this one was written after the first study of norms had been seen.",
    ),
)
_ONE_SIDED = RuleChange(
    "2026-11-18",
    "an arm that is shown not to be better by the smallest effect counts as not better, and likewise not worse; "
    "before, it had to be equivalent or worse, so that one between the two kept a claim open. Runs of cosines "
    "had been seen.",
)
_TUNED = "Every arm has the same number of tuning runs; the reference arm is the control."


@dataclass(frozen=True)
class LabClaim:
    """A claim that trained models decide."""

    claim: Claim
    study: str
    decide: Decide
    also: tuple[str, ...] = ()
    """Other studies that have arms of it."""
    how: str = ""
    """The command that decides it, where it is not a study of arms."""

    @property
    def id(self) -> str:
        return self.claim.id

    @property
    def command(self) -> str:
        return self.how or f"armillary lab run {self.study} --out {self.study}/"


def _claim(
    name: str,
    study: str,
    source: str,
    statement: str,
    control: str,
    rule: str,
    decide: Decide,
    definition: str = _LOSS,
    also: tuple[str, ...] = (),
    changes: tuple[RuleChange, ...] = (),
) -> LabClaim:
    whole = f"{rule} {OUTCOMES}"
    claim = Claim(name, "G", statement, source, definition, control, whole, "learned", changes)
    return LabClaim(claim, study, decide, also)


def _starts(arm: str) -> tuple[str, str]:
    return arm, f"{arm}, loud"


LAB_CLAIMS: tuple[LabClaim, ...] = (
    _claim(
        "lab.softheads", "softheads", "S3", "Overlapping soft heads generalise the hard partition, and are better.",
        f"{_TUNED} A random membership overlaps without structure; free, talking and collaborative heads are rivals.",
        "Supported: triangular, raised-sine or learned memberships are better than ordinary heads. Qualified: a random "
        "membership is better, too. Refuted: each of the three is not better.",
        some_better(("triangular", "raised sine", "learned membership"), ("random membership",)),
        changes=(_ONE_SIDED,),
    ),
    _claim(
        "lab.symmetriser", "symmetriser", "S3",
        "A trainable norm of heads that exchange messages can replace LayerNorm.",
        f"{_TUNED} If every head hears all others, the Symmetriser is LayerNorm exactly.",
        "Supported: a Symmetriser whose heads do not all hear each other, or learn whom to hear, is equivalent to "
        "LayerNorm or better. Qualified: "
        "another one is worse or diverged. Refuted: all are worse or diverged. Arms of the study norms count too.",
        some_symmetriser, also=("norms",),
        changes=(
            *_SEEN,
            RuleChange(
                "2026-11-18",
                "arms of the studies symmetriser and norms are judged together. Before, each had its own verdict: "
                "symmetriser, whose arms with a fixed scale were added after others had failed, was supported, and "
                "norms, where the ring is worse, was undecided. Both had been seen.",
            ),
        ),
    ),
    _claim(
        "lab.rank", "rank", "S0", "A head that sees fewer axes of the stream costs loss.",
        f"{_TUNED} The feed-forward is cut or widened so that all arms have the same number of parameters.",
        "Supported: heads of 4 and of 16 axes, at the same number of heads, are worse than heads of 32. Qualified: one "
        "of them is, and the other is not. Refuted: neither is.",
        all_worse(("6 heads of 4", "6 heads of 16")),
        changes=(
            _ONE_SIDED,
            RuleChange(
                "2026-11-18",
                "an arm takes the smallest rate within 0.01 nats of its best one, not within 0.02: heads of 16 axes "
                "had been given a rate at which they lose 0.018 nats against twice that rate, all of their difference "
                "to heads of 32. The outcome had been seen (supported); runs at the other rate had not.",
            ),
        ),
    ),
    _claim(
        "lab.mismatch", "mismatch", "S3",
        "The misfit of d − 2 dimensions on a grid of d axes is a regulariser, and makes a model robust.",
        "Both arms have block-diagonal projections, where alone the misfit can act; a norm per block has no misfit.",
        "Supported: LayerNorm with block-diagonal projections has a smaller gap, or loses less by dropped axes or by "
        "noise, than a norm per block. Qualified: it is worse by another of the three. Refuted: it is better by none.",
        misfit_helps("blocks", "blocks, per-head"),
        "Gap (held-out less training loss), and the loss added by dropping a tenth of the axes after every norm, and "
        "by noise there; nats per token, paired.",
        changes=(_ONE_SIDED,),
    ),
    _claim(
        "lab.norms", "norms", "S3 R", "No norm is better than LayerNorm at equal tuning.",
        f"{_TUNED} Each arm's geometric prediction is written down before its runs.",
        "Supported: every other norm is not better. Refuted: at least one is better.",
        none_better, changes=(*_SEEN, _ONE_SIDED),
    ),
    _claim(
        "lab.implicit", "implicit", "S3", "The norm is a source of expressive power.",
        "The same model without activation, with a constant scale in place of every norm; each with the better of two "
        "starts, because a quiet unembedding harms models without norms. Without runs of both the claim is open.",
        "Supported: without activation, norms are better than constant scales, and bring at least "
        f"{SHARE:.0%} of what GELU and norms bring together (interval over seeds). Qualified: better, but less than "
        "that. Refuted: not better.",
        norm_bends(*(_starts(arm) for arm in ("identity, no norm", "identity, norm", "gelu, norm"))),
        changes=(
            RuleChange(
                "2026-11-18",
                "each arm is taken with the better of two starts, after a quiet unembedding was found to be why DyT "
                "and Derf did not train; the outcome with the first start alone had been seen (qualified).",
            ),
            _ONE_SIDED,
        ),
    ),
    _claim(
        "lab.activations", "activations", "S3", "An activation works because it destroys information.",
        f"{_TUNED} The identity neither destroys nor bends.",
        "Supported: leaky ReLU (slopes ½ and 0.1), x + a sin x and the signed root, which can be inverted, are worse "
        f"than GELU and bring less than {SHARE:.0%} of its gain over the identity (interval over seeds), and ReLU and "
        f"ReLU² are not worse. Qualified: they are worse, but one brings at least {SHARE:.0%}, or a lossy one is "
        "worse, too. Refuted: an invertible one is not worse.",
        lossy_needed(("relu", "relu2"), ("leaky", "leaky 0.1", "wave", "signed root"), "identity"),
        changes=(
            RuleChange(
                "2026-11-18",
                "the sine and the signed root are odd functions, hardly better than the identity, and slope ½ is "
                "nearly straight, so that 'destroys' and 'bends' predicted the same; slope 0.1, which bends like ReLU, "
                "and the share of the gain came in. Runs of the first three and of ReLU and ReLU² had been seen, none "
                "of slope 0.1.",
            ),
            _ONE_SIDED,
        ),
    ),
    _claim(
        "lab.metric", "metric", "S3", "Metric and operator belong together: on a sphere, scores should be angles.",
        f"{_TUNED} The negative squared distance is a control: on a sphere it agrees with the dot product.",
        "Supported: cosines, angles or one metric per head are better than the dot product. Qualified: so is the "
        "distance. Refuted: each is not better.",
        some_better(("cosine", "angle", "own angle"), ("distance",)),
        changes=(_ONE_SIDED,),
    ),
)  # fmt: skip

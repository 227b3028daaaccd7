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
from armillary.results.claim import Claim, Rewording, RuleChange

OUTCOMES = (
    f"An arm is better (its loss is lower) or worse than the reference if their losses differ by at least {EFFECT:g} "
    "nats per token and a paired t test is significant, with Holm's correction over the arms. It is equivalent if two "
    "one-sided tests, corrected likewise, show a smaller difference. A single one of these two tests shows that an arm "
    "is not better, or that it is not worse. An arm has diverged if its loss became NaN or infinite in at least half "
    "of its paired runs, or in every tuning run. An arm that is worse, equivalent or diverged is shown not to be "
    "better; one that is better or equivalent is shown not to be worse. Anything else is undecided, and the reading "
    "says how many seeds would decide."
)
_LOSS = (
    "The loss on held-out text at the end of training, in nats per token, minus that of the reference arm, which "
    "reads the same text in the same order."
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
    question: str,
    definition: str = _LOSS,
    also: tuple[str, ...] = (),
    changes: tuple[RuleChange, ...] = (),
    before: tuple[tuple[str, str], ...] = (),
) -> LabClaim:
    """`before`: (date, digest) of earlier words of the rule as it is after all its changes."""
    whole = f"{rule}\nUndecided otherwise.\n{OUTCOMES}"
    rewordings = tuple(Rewording(date, digest, len(changes)) for date, digest in before)
    claim = Claim(name, "G", statement, source, definition, control, whole, "learned", changes, question, rewordings)
    return LabClaim(claim, study, decide, also)


def _starts(arm: str) -> tuple[str, str]:
    return arm, f"{arm}, loud"


LAB_CLAIMS: tuple[LabClaim, ...] = (
    _claim(
        "lab.softheads", "softheads", "S3", "Overlapping soft heads generalise the hard partition, and are better.",
        f"{_TUNED} A random membership overlaps without structure. Free, talking and collaborative heads are rivals.",
        "Three soft memberships of heads (triangular, raised sine, learned) are compared with ordinary heads.\n"
        "Supported if one of them is better.\n"
        "Qualified if one of them is better, but a random membership is better too.\n"
        "Refuted if each of the three is shown not to be better.",
        some_better(("triangular", "raised sine", "learned membership"), ("random membership",)),
        "Every axis belongs to one head. Is a model better if neighbouring heads share axes?",
        changes=(_ONE_SIDED,),
        before=(("2026-11-19", "c6d9ebf2aa21"),),
    ),
    _claim(
        "lab.symmetriser", "symmetriser", "S3",
        "A trainable norm of heads that exchange messages can replace LayerNorm.",
        f"{_TUNED} If every head hears all others, the Symmetriser is LayerNorm exactly.",
        "Symmetrisers whose heads do not all hear each other, or learn which heads to hear, are compared with "
        "LayerNorm. Arms of the study 'norms' count too; arms with block-diagonal projections do not.\n"
        "Supported if one of them is equivalent to LayerNorm or better, and none is worse or diverged.\n"
        "Qualified if one of them is, but another is worse or diverged.\n"
        "Refuted if all are worse or diverged.",
        some_symmetriser,
        "LayerNorm takes mean and length over all axes. Is it as good if every head takes them over its own axes, and "
        "exchanges them with other heads?",
        also=("norms",),
        changes=(
            *_SEEN,
            RuleChange(
                "2026-11-18",
                "arms of the studies symmetriser and norms are judged together. Before, each had its own verdict: "
                "symmetriser, whose arms with a fixed scale were added after others had failed, was supported, and "
                "norms, where the ring is worse, was undecided. Both had been seen.",
            ),
        ),
        before=(("2026-11-19", "cc37fb76c674"),),
    ),
    _claim(
        "lab.rank", "rank", "S0", "A head that sees fewer axes of the stream costs loss.",
        f"{_TUNED} The feed-forward is cut or widened so that all arms have the same number of parameters.",
        "Heads of 4 and of 16 axes are compared with heads of 32, at the same number of heads.\n"
        "Supported if both are worse or diverged.\n"
        "Qualified if one is worse or diverged, and the other is shown not to be worse.\n"
        "Refuted if both are shown not to be worse.",
        all_worse(("6 heads of 4", "6 heads of 16")),
        "Does a model lose if its heads look at the stream through fewer axes, at the same number of parameters?",
        changes=(
            _ONE_SIDED,
            RuleChange(
                "2026-11-18",
                "an arm takes the smallest rate within 0.01 nats of its best one, not within 0.02: heads of 16 axes "
                "had been given a rate at which they lose 0.018 nats against twice that rate, all of their difference "
                "to heads of 32. The outcome had been seen (supported); runs at the other rate had not.",
            ),
        ),
        before=(("2026-11-19", "b5f508928c95"),),
    ),
    _claim(
        "lab.mismatch", "mismatch", "S3",
        "The misfit of d − 2 dimensions on a grid of d axes is a regulariser, and makes a model robust.",
        "Both arms have block-diagonal projections: only there can the misfit act. A norm per block has no misfit.",
        "LayerNorm with block-diagonal projections is compared with a norm per block, by three numbers: the gap, the "
        "loss from dropped axes, and the loss from noise. In the definitions below, each of them takes the place of "
        "the loss, and Holm's correction is over the three. Tuning runs do not count here.\n"
        "Supported if it is better by at least one of the three, and worse by none.\n"
        "Qualified if it is better by at least one and worse by another.\n"
        "Refuted if all three show that it is not better.",
        misfit_helps("blocks", "blocks, per-head"),
        "A norm leaves tokens two dimensions fewer than there are axes. Does this misfit reduce overfitting, and "
        "make a model robust?",
        "Three numbers, in nats per token, paired by seed: the gap (held-out loss minus training loss); the loss added "
        "by dropping a tenth of the axes after every norm; and the loss added by noise there.",
        changes=(_ONE_SIDED,),
        before=(("2026-11-19", "71d4e14d0a4f"),),
    ),
    _claim(
        "lab.norms", "norms", "S3 R", "No norm is better than LayerNorm at equal tuning.",
        f"{_TUNED} Each arm's geometric prediction is written down before its runs.",
        "Every other norm, and nGPT, is compared with LayerNorm. LayerNorm with another start or a slower gain does "
        "not count as another norm.\n"
        "Supported if each is shown not to be better.\n"
        "Refuted if at least one is better.",
        none_better,
        "Is there a norm with which a model learns better than with LayerNorm, if both are tuned equally well?",
        changes=(*_SEEN, _ONE_SIDED),
        before=(("2026-11-19", "13762d965681"),),
    ),
    _claim(
        "lab.implicit", "implicit", "S3", "The norm is a source of expressive power.",
        "The same model without activation, with a constant scale in place of every norm. Each model is taken with the "
        "better of two starts, because a quiet unembedding harms models without norms. The claim is undecided until "
        "the model with constant scales has been run from both starts.",
        "A model without activation and with norms is compared with one that has constant scales in their place. What "
        "norms bring is also taken as a share of what GELU and norms bring together, with its whole interval over "
        "seeds. Tuning runs do not count here.\n"
        f"Supported if norms are better, and the share is at least {SHARE:.0%}.\n"
        f"Qualified if norms are better, but the share is less than {SHARE:.0%}.\n"
        "Refuted if norms are shown not to be better.",
        norm_bends(*(_starts(arm) for arm in ("identity, no norm", "identity, norm", "gelu, norm"))),
        "Does a model without activations get better with norms? How much of what activations and norms bring together "
        "do norms bring alone?",
        changes=(
            RuleChange(
                "2026-11-18",
                "each arm is taken with the better of two starts, after a quiet unembedding was found to be why DyT "
                "and Derf did not train; the outcome with the first start alone had been seen (qualified).",
            ),
            _ONE_SIDED,
        ),
        before=(("2026-11-19", "556bdfa63f52"),),
    ),
    _claim(
        "lab.activations", "activations", "S3", "An activation works because it destroys information.",
        f"{_TUNED} The identity neither destroys nor bends.",
        "Activations that can be inverted (leaky ReLU with slopes ½ and 0.1, x + a sin x, the signed root) and lossy "
        "ones (ReLU, ReLU²) are compared with GELU. What an invertible one brings is also taken as a share of GELU's "
        "gain over the identity, with its whole interval over seeds. An arm that diverged counts as worse, and an "
        "invertible one that diverged needs no share.\n"
        f"Supported if all invertible ones are worse with shares of less than {SHARE:.0%}, and both lossy ones are "
        "shown not to be worse.\n"
        f"Qualified if all invertible ones are worse, but one has a share of at least {SHARE:.0%}, or a lossy one is "
        "worse too.\n"
        "Refuted if an invertible one is shown not to be worse.",
        lossy_needed(("relu", "relu2"), ("leaky", "leaky 0.1", "wave", "signed root"), "identity"),
        "ReLU and GELU throw values away. Do activations work worse if every value can be recovered from their output?",
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
        before=(("2026-11-19", "dac9f4ce6a63"),),
    ),
    _claim(
        "lab.metric", "metric", "S3", "Metric and operator belong together: on a sphere, scores should be angles.",
        f"{_TUNED} The negative squared distance is a control: on a sphere it agrees with the dot product.",
        "Three scores (cosines, angles, one metric per head) are compared with the dot product.\n"
        "Supported if one of them is better.\n"
        "Qualified if one of them is better, but the distance is better too.\n"
        "Refuted if each of the three is shown not to be better.",
        some_better(("cosine", "angle", "own angle"), ("distance",)),
        "Tokens lie on a sphere, and distances on a sphere are angles. Does attention work better if its scores are "
        "angles?",
        changes=(_ONE_SIDED,),
        before=(("2026-11-19", "0630858eca9d"),),
    ),
)  # fmt: skip

"""Do scores of states and heads tell errors: together, states alone, heads alone?"""

from collections.abc import Sequence
from dataclasses import dataclass

from armillary.probes.machinery import NAN3, Interval, T, above, beats, by_side, missing_interval, over_twins
from armillary.probes.stability.errors.error_prediction import ErrorPrediction
from armillary.results import Limit, Part, Statistic, Verdict, Why, say

PREDICTS = "the model predicts"


@dataclass(frozen=True)
class Gains:
    """What scores add to what is known, in the model and in its untrained twins.

    `heads`: None for all scores, True for those of heads alone, False for those of states alone.
    """

    prediction: ErrorPrediction
    twins: Sequence[ErrorPrediction]

    def adds(self, heads: bool | None = None) -> Interval:
        return self.prediction.adds(self.prediction.tokens.matrix(heads))

    def beside_entropy(self, heads: bool | None = None) -> Interval:
        return self.prediction.beside_entropy(self.prediction.tokens.matrix(heads))

    def untrained(self, heads: bool | None = None) -> Interval:
        """Over twins; NaN without any."""
        if not self.twins:
            return NAN3
        value, low, high = over_twins([twin.adds(twin.tokens.matrix(heads)) for twin in self.twins]).tolist()
        return value, low, high

    def untrained_loss(self) -> Interval:
        """Nats per token over twins; NaN without any."""
        value, low, high = over_twins([twin.loss() for twin in self.twins]).tolist()
        return value, low, high


def error_parts(gains: Gains) -> tuple[Part, ...]:
    return (
        predicts_part(gains.prediction.loss(), gains.untrained_loss(), len(gains.twins)),
        _part("off the manifold, or unusual heads", "All scores together", gains, None, True),
        _part("off the manifold alone", "Scores of states", gains, False, False),
        _part("unusual heads alone", "Scores of heads", gains, True, False),
    )


def predicts_part(loss: Interval, untrained: Interval, twins: int) -> Part:
    """Where nothing was learned, which tokens are hard depends on the drawn weights, and so do the scores."""
    lower = beats(_negative(loss), _negative(untrained), twins) if twins else None
    reading = f"The loss is {say(loss[0], '.2f')} nats per token, that of untrained models {say(untrained[0], '.2f')}."
    if lower is False:
        reading += " It predicts no better than they do: it has no errors to speak of."
    why = (missing_interval(*loss, *untrained) if twins else Why.NO_CONTROL) if lower is None else None
    return Part(PREDICTS, by_side(lower), reading, Statistic("loss of the model, nats per token", *loss), why=why)


def loss_limit(part: Part, untrained: Interval) -> Limit:
    return Limit(untrained[1], "below", "below untrained models", "supported", part.name, part.statistic)


def _negative(interval: Interval) -> Interval:
    value, low, high = interval
    return -value, -high, -low


def _part(name: str, subject: str, gains: Gains, heads: bool | None, asserted: bool) -> Part:
    adds, beside, untrained = gains.adds(heads), gains.beside_entropy(heads), gains.untrained(heads)
    verdict, why = decide(adds, beside, untrained, len(gains.twins))
    value, low, high = (say(number, ".3f") for number in adds)
    text = f"{subject} raise the AUC of what is known by {value} [{low}, {high}]"
    if adds[0] == adds[1] == 0:
        # Not a small effect but none that could be told: the upper end is what the text leaves open.
        text = (
            f"{subject} add nothing to what is known: none has a clear weight, and a single one may add at most {high}"
        )
    if untrained[0] == untrained[0]:
        text += f"; in untrained models they add {say(untrained[0], '.3f')} (in another at most "
        text += f"{say(untrained[2], '.3f')})"
    text += f"; alone, their AUC is {say(abs(beside[0]), '.3f')} "
    text += f"{'below' if beside[0] < 0 else 'above'} that of the entropy of the prediction."
    end = {
        "supported": "They predict errors as well as the model's own uncertainty does.",
        "qualified": "They predict some errors; the model's own uncertainty predicts more.",
        "refuted": "They say next to nothing about errors beyond what is known, or beyond what untrained models show.",
        "undecided": "More text would decide.",
    }
    statistic = Statistic("AUC added to what is known", *adds)
    return Part(name, verdict, f"{text} {end[verdict]}", statistic, asserted, why)


def decide(adds: Interval, beside: Interval, untrained: Interval, twins: int) -> tuple[Verdict, Why | None]:
    """The rule, from intervals over documents; the last one over untrained twins."""
    tells = [above(adds, T.errors_margin), beats(adds, untrained, twins)]
    if False in tells:
        return "refuted", None
    explains = above(beside, -T.errors_margin)
    if all(tells) and explains is not None:
        return ("supported" if explains else "qualified"), None
    known = not (untrained[2] != untrained[2] and adds[1] == adds[1])
    return "undecided", missing_interval(*adds, *beside) if known else Why.NO_CONTROL

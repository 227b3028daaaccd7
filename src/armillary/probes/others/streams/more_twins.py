"""What if five untrained models differ too much to compare with? Of a small model more of them read the same text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import RANDOM, Evidence
from armillary.probes.machinery.intervals import ENOUGH_TWINS
from armillary.probes.machinery.shared_pass import observe

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy
    from armillary.probes.machinery.bench import Bench

# The upper end of five untrained models is uncertain by 1.2 of their standard deviations, that of twenty by 0.5.
UNTRAINED = 20
# A pass of an untrained model of at most so many parameters over at most so many tokens takes less than a second.
SMALL_MODEL, SHORT_TEXT = 20e6, 10_000


def small(anatomy: "Anatomy") -> bool:
    return sum(weight.numel() for weight in anatomy.model.parameters()) <= SMALL_MODEL


def more_twins(bench: "Bench") -> Iterator[Evidence]:
    """Evidence of one more untrained model after another, under the arm RANDOM, up to `UNTRAINED` with a survey's own.

    None where models or text are large, with --quick, and where a survey has fewer than five of its own.
    """
    from armillary.flow.controls import random_twin, twin_seed

    own = len(bench.untrained)
    if bench.quick or own < ENOUGH_TWINS or bench.corpus.tokens > SHORT_TEXT or not small(bench.anatomy):
        return
    for index in range(own, UNTRAINED):
        twin = random_twin(bench.anatomy, twin_seed(bench.seed, index))
        state = observe(twin, bench.corpus, (SAMPLES,), bench.seed, bench.tick)[SAMPLES]
        yield Evidence(bench.anatomy, bench.corpus, (twin,), {SAMPLES: {RANDOM: state}}, bench.seed)

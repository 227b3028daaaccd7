"""A mistake in a probe or an instrument loses the claims that depend on it, and the row says what went wrong."""

from dataclasses import dataclass, replace

import pytest
import torch

from armillary.probes.instruments.lengths import LENGTHS, Lengths
from armillary.probes.machinery.bench import ModelChangedError
from armillary.probes.machinery.conclude import conclude as decide
from armillary.probes.machinery.plan import make_plan
from armillary.probes.machinery.shared_pass import gather
from armillary.probes.machinery.tables import cells, site_table
from armillary.probes.sphere.radius import Radius
from armillary.results import Claim, Finding, Statistic
from armillary.specimens.models.bag import bag, gaussian
from armillary.specimens.models.texts import corpus

CLAIM = Claim("outside.mistaken", "H", "statement", "source", "definition", "control", "rule")


def finding(**changes):
    table = site_table(["L0.ln1"])
    return replace(Finding(CLAIM, "supported", Statistic("x", 1.0, 0.9, 1.1), 1, (), "r.", "h", table), **changes)


class Probe:
    claim, instruments = CLAIM, (LENGTHS,)

    def __init__(self, conclude=finding, instruments=(LENGTHS,)):
        self._conclude, self.instruments = conclude, instruments

    def conclude(self, evidence, result=None):
        return self._conclude()


class Experiment(Probe):
    def __init__(self, experiment, passes=lambda: 1.0):
        super().__init__()
        self._experiment, self._passes = experiment, passes

    def passes(self, anatomy):
        return self._passes()

    def experiment(self, bench):
        return self._experiment(bench)


@dataclass(frozen=True)
class Mistaken(Lengths):
    """An instrument one of whose methods raises, or which watches a site that does not exist."""

    method: str = ""

    def start(self, anatomy, corpus, seed):
        if self.method == "start":
            fail()
        watch = super().start(anatomy, corpus, seed)
        if self.method == "sites":
            watch.sites = ("L9.ln1",)
        elif self.method:
            setattr(watch, self.method, fail)
        return watch


def fail(*_):
    raise ZeroDivisionError("by mistake")


def conclude(probe, model=None):
    """Findings of the probe and, before and after it, of one of ours."""
    probes = (Radius(), probe, Radius())
    instruments = [instrument for probe in probes for instrument in probe.instruments]
    evidence = gather(model or bag(gaussian()), corpus(), instruments)
    return [conclusion.finding for conclusion in decide(evidence, probes, True)]


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        (Probe(fail), "ZeroDivisionError: by mistake"),
        (Probe(lambda: None), "conclude returned None; it must return a Finding"),
        (Probe(lambda: finding(verdict="undecided")), "the verdict is undecided and `why` is None"),
        (Probe(lambda: finding(verdict="maybe")), "the verdict is 'maybe'; it must be one of supported"),
        (Probe(lambda: finding(claim=Radius.claim)), "a finding of sphere.radius, not of outside.mistaken"),
        (Probe(lambda: site_table(["a"], cells("x", "y", [1, 2]))), "columns of one table have different lengths"),
        (Probe(lambda: finding(table=site_table(["a"], cells("x", "y", [object()])))), "cannot be stored"),
        (Experiment(fail), "ZeroDivisionError: by mistake"),
        (Experiment(lambda bench: None, fail), "ZeroDivisionError: by mistake"),
        *(
            (
                Probe(instruments=(Mistaken("mistaken", method=method),)),
                "instrument 'mistaken' raised ZeroDivisionError",
            )
            for method in ("start", "begin", "see", "end")
        ),
        (Probe(instruments=(Mistaken("mistaken", method="sites"),)), "there is no site 'L9.ln1'"),
    ],
)
def test_it_loses_its_own_claim_only(probe, message):
    before, mistaken, after = conclude(probe)
    assert (before.verdict, mistaken.verdict, after.verdict) == ("supported", "failed", "supported")
    assert message in mistaken.reading


def test_an_error_of_the_model_is_no_instruments():
    model = bag(gaussian())
    model.model.transformer.h[1].register_forward_hook(fail)
    with pytest.raises(ZeroDivisionError, match="by mistake"):
        gather(model, corpus(), [LENGTHS])


def test_the_others_have_a_plan():
    assert make_plan(bag(gaussian()), corpus(), [Experiment(fail, fail)], True).passes == 0


@pytest.mark.parametrize("then", [lambda: None, fail])
def test_an_experiment_that_leaves_an_edit_is_named(then):
    """Also one that raises: what is measured after it would be measured on a changed model."""

    def experiment(bench):
        with torch.no_grad():
            bench.anatomy.model.transformer.ln_f.weight.mul_(1.5)
        then()

    with pytest.raises(ModelChangedError, match=r"outside\.mistaken: an experiment changed the model"):
        conclude(Experiment(experiment))

"""Chapter A: where is a norm's output a sphere, a plane, a thin shell, and where not?"""

import torch
from torch import Tensor

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.specimens.models.assembled import (
    STEEP,
    D,
    alike,
    cycling,
    equally_long,
    few_long,
    gained,
    one_axis,
    paired,
    uneven,
    unpaired,
)
from armillary.specimens.models.bag import bag, gaussian
from armillary.specimens.models.perturbed import VOCABULARY, gpt2, llama, perturbed
from armillary.specimens.models.streams.sphere_models import (
    centred_llama,
    cone,
    default_gpt2,
    lengths,
    noisy_gains,
    separated_by_direction,
    separated_by_length,
    short_words,
    spheres,
    twinned,
)
from armillary.specimens.models.texts import chained, classed, corpus
from armillary.specimens.planted.case import Case, Specimen, certain, sized


def ordinary(seed: int) -> Specimen:
    return bag(gaussian(seed=seed)), corpus(seed=seed)


def on_few_words(anatomy: Anatomy, seed: int) -> Specimen:
    return anatomy, corpus(vocabulary=VOCABULARY, seed=seed)


def rmsnorm(seed: int) -> Specimen:
    return on_few_words(read(perturbed(llama, seed)), seed)


def steep(layer: int) -> Tensor:
    return STEEP


def even(layer: int) -> Tensor:
    return torch.ones_like(STEEP)


CASES: tuple[Case, ...] = (
    certain("radius, ordinary", "sphere.radius", "supported", ordinary),
    sized(
        "radius, ε as large as the variance",
        "sphere.radius",
        "refuted",
        "ε, beside a variance of 1",
        lambda size, seed: (bag(gaussian(seed=seed), eps=size), corpus(seed=seed)),
        (0.1, 1.0),
        matters=0.1,
    ),
    certain(
        "radius, ε bites on a few short tokens",
        "sphere.radius",
        "refuted",
        lambda seed: (bag(short_words(seed)), corpus(seed=seed)),
    ),
    certain("plane, LayerNorm", "sphere.plane", "supported", ordinary),
    certain(
        "plane, RMSNorm with centred weights",
        "sphere.plane",
        "supported",
        lambda seed: on_few_words(centred_llama(seed), seed),
    ),
    certain("plane, RMSNorm", "sphere.plane", "refuted", rmsnorm),
    sized(
        "ellipsoid, perturbed LayerNorm",
        "sphere.ellipsoid",
        "supported",
        "noise on gains and shifts, 0.3 in full",
        lambda size, seed: (read(perturbed(gpt2, seed, 0.3 * size)), None),
        matters=0.75,
    ),
    certain(
        "ellipsoid, RMSNorm cannot displace",
        "sphere.ellipsoid",
        "qualified",
        lambda seed: (read(perturbed(llama, seed)), None),
    ),
    certain("ellipsoid, gains of one", "sphere.ellipsoid", "refuted", lambda seed: (default_gpt2(seed), None)),
    certain("ellipsoid, noise on many axes", "sphere.ellipsoid", "qualified", lambda seed: (noisy_gains(seed), None)),
    certain("concentration, Gaussian", "sphere.concentration", "supported", ordinary),
    sized(
        "concentration, lengths of every size",
        "sphere.concentration",
        "refuted",
        "spread of the logarithm of lengths",
        lambda size, seed: (bag(lengths(size, seed)), corpus(seed=seed)),
        (0.25, 0.5, 1.0),
        matters=0.5,
    ),
    sized(
        "direction, tokens separated by direction",
        "sphere.direction",
        "supported",
        "length of a word, 1.4 times that of a position in full",
        lambda size, seed: (separated_by_direction(8 * size, seed), classed(seed=seed)),
        (0.25, 0.5, 1.0),
        matters=0.5,
    ),
    certain(
        "direction, tokens separated by length",
        "sphere.direction",
        "refuted",
        lambda seed: (separated_by_length(seed), chained(seed=seed)),
    ),
    certain(
        "two zeros, a second constraint",
        "spectrum.two-zeros",
        "supported",
        lambda seed: (bag(twinned(1, seed)), corpus(seed=seed)),
    ),
    certain("two zeros, LayerNorm alone", "spectrum.two-zeros", "refuted", ordinary),
    certain("two zeros, RMSNorm alone", "spectrum.two-zeros", "refuted", rmsnorm),
    certain(
        "local, a sphere of four dimensions",
        "spectrum.local",
        "supported",
        lambda seed: (bag(spheres(4, seed)), corpus(seed=seed)),
    ),
    certain(
        "local, ε lets lengths through",
        "spectrum.local",
        "refuted",
        lambda seed: (bag(lengths(0.5, seed), eps=1e4), corpus(seed=seed)),
    ),
    certain("local, neighbourhoods of many dimensions", "spectrum.local", "supported", ordinary),
    certain("local, RMSNorm has no plane", "spectrum.local", "qualified", rmsnorm),
    certain("dimension, a cone", "spectrum.dimension", "supported", lambda seed: (bag(cone(seed)), corpus(seed=seed))),
    certain("dimension, isotropic", "spectrum.dimension", "refuted", ordinary),
    certain("dimension, RMSNorm", "spectrum.dimension", "refuted", rmsnorm),
    sized(
        "cycle, a projection that evens out, writes along one axis",
        "cycle.isotropy",
        "supported",
        "how much longer a few words are, ten times in full",
        lambda size, seed: cycling(even, one_axis(seed), seed, few_long(1 + 9 * size, seed)),
        (0.1, 0.25, 0.5, 1.0),
        matters=0.25,
    ),
    certain(
        "cycle, gains that even out and a projection that does not",
        "cycle.isotropy",
        "refuted",
        lambda seed: cycling(lambda layer: STEEP**-0.5, one_axis(seed), seed, equally_long(seed)),
    ),
    certain(
        "cycle, a projection that evens out and gains that undo it in one layer of two",
        "cycle.isotropy",
        "qualified",
        lambda seed: cycling(
            # Gains so steep that y has three axes, where x has nine.
            lambda layer: even(layer) if layer else (STEEP / STEEP.max()) ** 8,
            one_axis(seed),
            seed,
            few_long(3, seed),
        ),
    ),
    certain(
        "cycle, gains that steepen", "cycle.isotropy", "refuted", lambda seed: cycling(steep, one_axis(seed), seed)
    ),
    certain(
        "cycle, each step in another layer",
        "cycle.isotropy",
        "refuted",
        lambda seed: cycling(
            lambda layer: STEEP if layer else STEEP**-0.5,
            lambda layer: one_axis(seed) if layer else torch.diag(STEEP**-0.5),
            seed,
        ),
    ),
    certain(
        "cycle, writes that even out",
        "cycle.isotropy",
        "refuted",
        lambda seed: cycling(lambda layer: STEEP**-0.5, torch.diag(STEEP**-0.5), seed),
    ),
    sized(
        "contrast, pairs of one direction and two lengths",
        "sphere.contrast",
        "supported",
        "how much longer and shorter the words of a pair are, half in full",
        lambda size, seed: paired(0.5 * size, seed=seed),
        matters=0.5,
    ),
    certain(
        "contrast, pairs of one direction and one length",
        "sphere.contrast",
        "refuted",
        lambda seed: paired(0.0, seed=seed),
    ),
    certain("contrast, words without pairs", "sphere.contrast", "refuted", unpaired),
    sized(
        "shared, one gain for all layers",
        "sphere.shared",
        "supported",
        "share of a layer's gains that all layers have",
        lambda share, seed: gained(alike(share, seed), seed=seed),
        (0.5, 0.75, 1.0),
    ),
    certain(
        "shared, gains of different size",
        "sphere.shared",
        "refuted",
        lambda seed: gained(lambda layer: torch.full((D,), 0.1 * 5**layer), seed=seed),
    ),
    certain(
        "shared, two layers alike and one not",
        "sphere.shared",
        "qualified",
        lambda seed: gained(lambda layer: uneven(max(1, layer), seed), seed=seed),
    ),
    # An exchange of nothing for nothing says nothing.
    certain(
        "shared, gains of 1",
        "sphere.shared",
        "undecided",
        lambda seed: gained(lambda layer: torch.ones(D), seed=seed),
    ),
)

"""Chapter B, heads: where is the score a cosine, a distance, a matter of the data's axes, or nothing?"""

from armillary.anatomy import Anatomy
from armillary.anatomy.read import read
from armillary.specimens.models.heads.scoring_heads import (
    across_the_data,
    along_the_data,
    half_blind,
    misread,
    one_axis_repeated,
    one_key_direction,
    query_bias_alone,
    random_heads,
    the_sphere_itself,
    unseen_words,
)
from armillary.specimens.models.perturbed import VOCABULARY, gpt2, perturbed
from armillary.specimens.models.texts import corpus
from armillary.specimens.planted.case import Case, Specimen, certain, sized


def on_text(anatomy: Anatomy, seed: int) -> Specimen:
    return anatomy, corpus(seed=seed)


def perturbed_gpt2(misreading: float, seed: int) -> Specimen:
    return misread(read(perturbed(gpt2, seed)), misreading), corpus(vocabulary=VOCABULARY, seed=seed)


CASES: tuple[Case, ...] = (
    certain("two views, a perturbed model", "attention.two-views", "supported", lambda seed: perturbed_gpt2(0.0, seed)),
    sized(
        "two views, a gain misread",
        "attention.two-views",
        "refuted",
        "how far a gain is read as 1",
        perturbed_gpt2,
        (0.1, 1.0),
        matters=0.1,
    ),
    certain(
        "cosine, random heads", "attention.cosine", "supported", lambda seed: on_text(random_heads(seed=seed), seed)
    ),
    certain(
        "cosine, one direction and many lengths",
        "attention.cosine",
        "refuted",
        lambda seed: on_text(one_key_direction(seed), seed),
    ),
    certain(
        "scale, random heads", "attention.scale", "supported", lambda seed: on_text(random_heads(4, seed=seed), seed)
    ),
    # The law of growth does not mind how large scores are.
    certain(
        "scale, sixty times as loud",
        "attention.scale",
        "supported",
        lambda seed: on_text(random_heads(4, 60, seed), seed),
    ),
    certain(
        "scale, one axis repeated",
        "attention.scale",
        "refuted",
        lambda seed: on_text(one_axis_repeated(seed), seed),
    ),
    certain(
        "scale, a stream that needs no norm",
        "attention.scale",
        "refuted",
        lambda seed: on_text(random_heads(seed=seed), seed),
    ),
    sized(
        "geodesic, W_Q and W_K the identity",
        "attention.geodesic",
        "supported",
        "share of the identity in W_Q and W_K; the rest is random",
        lambda share, seed: on_text(the_sphere_itself(share, seed), seed),
        (0.5, 0.75, 1.0),
    ),
    certain(
        "geodesic, random heads",
        "attention.geodesic",
        "refuted",
        lambda seed: on_text(random_heads(seed=seed), seed),
    ),
    sized(
        "axes, heads that read the long ones",
        "qk.axes",
        "supported",
        "share by which heads neglect all other axes",
        lambda share, seed: on_text(along_the_data(share, seed), seed),
        matters=0.75,
    ),
    certain(
        "axes, heads that read the others",
        "qk.axes",
        "refuted",
        lambda seed: on_text(across_the_data(seed), seed),
    ),
    sized(
        "null space, words unseen",
        "rank.nullspace",
        "supported",
        "share of unseen words, one in five in full",
        lambda share, seed: (unseen_words(0.2 * share, seed), corpus(20, seed=seed)),
        (0.1, 0.25, 0.5, 1.0),
        matters=0.25,
    ),
    certain("null space, words half seen", "rank.nullspace", "refuted", lambda seed: on_text(half_blind(seed), seed)),
    certain(
        "null space, a bias asks for all",
        "rank.nullspace",
        "refuted",
        lambda seed: on_text(query_bias_alone(seed), seed),
    ),
)

"""What do terms and sources mean? For readers who hover over them, and for searches by other words."""

import re

TERMS = {
    "S0": "Molina, Traveling Words (arXiv:2309.07315), a digest of it",
    "S1": "the abstract of Traveling Words and its peer reviews",
    "S2": "Why Transformer Representations Tend to Live on Hyperspheres (Deep Learning on Medium)",
    "S3": "A Geometric and Information-Theoretic Interpretation of LayerNorm, FFN, and MHA (submitted to NeurIPS 2025)",
    "ln1": "the norm before attention",
    "ln2": "the norm before the feed-forward layer",
    "ln_final": "the norm before the unembedding",
    "resid_pre": "the residual stream before a block",
    "resid_mid": "the residual stream between attention and feed-forward",
    "resid_post": "the residual stream after a block",
    "ln_cross": "the norm before attention to the encoder, or behind it where norms follow writes",
    "cross_out": "what attention to the encoder adds to the decoder's stream",
    "attn_out": "what attention adds to the stream",
    "mlp_out": "what the feed-forward layer adds to the stream",
    "mlp_pre": "the feed-forward layer's values before the activation",
    "mlp_post": "the feed-forward layer's values after the activation",
    "W_QK": "a head's score as a bilinear form on two directions",
    "W_VO": "what a head writes, as a linear map of one direction (often called OV)",
    "γ": "the gain of a norm: one factor per axis",
    "β": "the shift of a norm: one summand per axis",
    "null share": "share of |z|² that a head's matrix cannot see",
    "untrained twins": "the same architecture at random initialisation, several times",
    "massive": "a coordinate 1000 times the site's median magnitude",
    "logit lens": "what the model would predict if it stopped at this layer",
    "participation ratio": "how many axes the variance is spread over: (Σλ)² / Σλ²",
    "nats": "natural units of information: a loss of 1 nat is a factor e of probability",
    "Benjamini–Hochberg": "a correction for many tests: the expected share of false ones among those that pass",
    "AUC": "how often a score ranks a true pair above a false one: 0.5 by chance, 1 always",
}
SYNONYMS = {
    "dead": ("ffn.discard", "ffn.select"),
    "neuron": ("ffn.discard", "ffn.select", "ffn.store", "ffn.write"),
    "mlp": ("ffn.compress", "ffn.discard", "ffn.select", "ffn.store", "ffn.write"),
    "residual": ("words.travel", "sphere.concentration", "others.linear"),
    "layernorm": ("sphere.radius", "sphere.plane", "sphere.ellipsoid", "spectrum.two-zeros"),
    "rmsnorm": ("sphere.radius", "sphere.plane", "sphere.ellipsoid"),
    "ov": ("vo.store", "vo.subjects"),
    "outlier": ("others.massive", "others.anisotropy"),
    "sink": ("others.massive", "heads.specialise"),
    "induction": ("heads.specialise", "heads.emerge"),
    "anisotropy": ("others.anisotropy", "cycle.isotropy"),
    "rank": ("rank.nullspace", "others.collapse", "spectrum.dimension"),
    "collapse": ("others.collapse", "spectrum.dimension"),
    "superposition": ("ffn.store", "axes.privileged"),
    "polysemanticity": ("words.context", "axes.privileged"),
    "tsne": ("words.artifact",),
    "umap": ("words.artifact",),
    "pca": ("words.artifact",),
    "lens": ("words.refine", "words.travel"),
    "context length": ("stability.positions", "stability.drift", "stability.prefix"),
    "hallucination": ("manifold.errors", "stability.generation"),
}
# A site is a term also with its layer before it: L3.ln1.
_ANY = re.compile(
    r"(?<![\w.])(?:L\d+\.)?(" + "|".join(sorted(map(re.escape, TERMS), key=len, reverse=True)) + r")(?!\w)"
)


def explained(escaped: str, seen: set[str] | None = None) -> str:
    """HTML in which the first mention of every term says what it means; `escaped` has no tags.

    `seen` are the terms that were explained before, and those of this text are added.

    >>> explained("γ of ln1")[:40]
    "<abbr title='the gain of a norm: one fac"
    """
    known = set() if seen is None else seen

    def mark(match: re.Match[str]) -> str:
        if match[1] in known:
            return match[0]
        known.add(match[1])
        return f"<abbr title='{TERMS[match[1]].replace(chr(39), '&#39;')}' tabindex='0'>{match[0]}</abbr>"

    return _ANY.sub(mark, escaped)


def other_words(claim_id: str) -> str:
    """Words under which a claim is searched, and which it does not say itself."""
    return " ".join(word for word, claims in SYNONYMS.items() if claim_id in claims)

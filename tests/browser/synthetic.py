"""What does a realistic survey look like, without running a model? Eight claims over 61 sites."""

from dataclasses import replace

import numpy as np

from armillary.results import (
    Claim,
    Column,
    Control,
    Finding,
    LawCheck,
    ModelFacts,
    Provenance,
    Quantity,
    Statistic,
    Survey,
    Table,
    TextFacts,
    Times,
    Why,
)

EVIL = "<script>window.pwned=1</script>"
LAYERS, HEADS, WIDTH = 30, 9, 576
SITES = [f"L{layer}.{kind}" for layer in range(LAYERS) for kind in ("ln1", "ln2")] + ["ln_final"]
DEPTH = np.arange(len(SITES)) / len(SITES)
CAPTION = "smollm2-135m (random weights, planted geometry) · wikitext2_valid.txt · 64 documents, 16,384 tokens"
# id, verdict, statement, statistic name, value low high unit, control name and value, reading, headline
ROWS = [
    ("sphere.radius", "supported", "Normalised features have length √d.", "share of tokens within 1 % of √d",
     (0.99971, 0.99958, 0.99984, ""), ("Gaussian vectors", 0.2412, 0.238, 0.245),
     "Exact by definition; what is measured is this model's deviation: ε bites at no site but L0.ln1, where 0.9 % of "
     "the tokens are shorter than 0.99 √d.", "Lengths are √d to 0.03 % of tokens: r is within 1 % for 99.97 %"),
    ("sphere.plane", "refuted", "Features lie in the hyperplane perpendicular to the ones vector.",
     "largest |cos(z, 1)| over sites", (0.0831, 0.0792, 0.0874, ""), ("random directions", 0.0332, 0.0331, 0.0334),
     "RMSNorm has no such plane, and this model did not learn one: the mean is 2.5 times what chance gives.",
     "No plane: |cos(z, 1)| reaches 0.083 where chance gives 0.033"),
    ("sphere.ellipsoid", "supported", "γ warps the sphere into an ellipsoid, β displaces it.",
     "ratio of longest to shortest semi-axis", (41.72, 41.72, 41.72, ""), ("γ = 1 at initialisation", 1.0, 1.0, 1.0),
     "The gain is no detail: its axes differ by a factor of 42 in the median site, and 3 sites have flat axes.",
     "The gain makes an ellipsoid whose axes differ by a factor of 42"),
    ("sphere.concentration", "qualified", "High-dimensional vectors fall on a thin shell even without a norm.",
     "coefficient of variation of |x|", (0.1893, 0.1781, 0.2014, ""), ("Gaussian law 1/√(2d)", 0.0295, 0.0295, 0.0295),
     "Holds from L2 on once 3 massive-activation tokens are set aside; with them the shell is 6 times thicker than "
     "the Gaussian law says, because first tokens are 40 times longer than the rest.",
     "The shell is 6 times thicker than Gaussian: lengths vary by 19 %"),
    ("sphere.direction", "qualified", "Direction carries the meaning, length does not.",
     "AUC for 'same next token' from cosine, minus that from |Δlength|", (0.2137, 0.1911, 0.2369, ""),
     ("labels permuted", 0.0012, -0.0088, 0.0113),
     "Direction tells far more than length (0.81 against 0.60), yet length alone is above chance in 22 of 61 sites, "
     "and doubling the stream after L4 costs 0.31 nats: length is not free.",
     "Direction beats length by 0.21 in AUC, but length still tells something"),
    ("spectrum.two-zeros", "refuted", "The covariance of post-norm activations has two eigenvalues near zero.",
     "eigenvalues below 1e-6 of the median", (0.0, 0.0, 0.0, "per site"),
     ("LayerNorm, by linear algebra", 1.0, 1.0, 1.0),
     "Constant length is not a linear constraint, so it takes no eigenvalue away; only LayerNorm's plane does, and "
     "this model has RMSNorm: 0 of 61 sites show any.",
     "No vanishing eigenvalue at any of 61 sites, where two were predicted"),
    ("spectrum.local", "supported", "Both constraints show up locally, in small geodesic balls.",
     "exponent of radial over tangential variance in α", (1.962, 1.874, 2.051, ""),
     ("Gaussian cloud, no sphere", 0.021, -0.083, 0.127),
     "Inside balls of angle below 0.4 rad the radial variance dies like α², as it must on a sphere.",
     "Radial variance falls as the angle to the power 1.96; a sphere gives 2"),
    ("spectrum.dimension", "undecided", "Features fill fewer dimensions than the model has.",
     "participation ratio, median site", (87.31, 61.2, 131.9, "dimensions"),
     ("Gaussian, same covariance", 88.6, 62.0, 132.8),
     "The interval of the model and of its control overlap everywhere: 16,384 tokens cannot tell curvature from noise. "
     "About 100,000 tokens would decide it.",
     "Nothing can be concluded yet: participation ratio 87 [61, 132], as a Gaussian's"),
]  # fmt: skip


def noisy(seed, base, spread):
    return base + spread * np.random.default_rng(seed).standard_normal(np.shape(base))


def zigzag(early, late, gap):
    """A value that changes with depth and differs between a layer's two norms, as real ones do."""
    return early + (late - early) * DEPTH**0.7 + gap * (np.arange(len(SITES)) % 2)


def over_sites(name, meaning, unit, values, **more):
    half = more.pop("share", 0.06) * np.abs(values) + 0.15 * more.pop("slack", 0.0)
    return Quantity(name, meaning, unit, ("site",), {"site": SITES}, values, values - half, values + half, **more)


def quantities(claim_id, i):
    ones = np.ones(len(SITES))
    if claim_id == "sphere.radius":
        short = np.where(DEPTH < 0.05, 0.009, 0.0) + np.where(np.arange(61) % 7 == 3, 2e-4, 0.0)
        return (
            over_sites("mean radius", "mean of |z|/√d over tokens, with the theory's √(v/(v+ε))", "√d",
                       noisy(i, 1 - 3e-4 * ones, 4e-5), theory={"√(v/(v+ε))": 1 - 3e-4 * ones}, share=6e-5,
                       controls={"Gaussian vectors": noisy(9, 1 - 4e-4 * ones, 2e-5)}),
            over_sites("share below 0.99", "share of tokens with r < 0.99: where ε bites", "share", short,
                       logs=("value",)),
        )  # fmt: skip
    if claim_id == "sphere.concentration":
        gauss = np.full(61, 1 / np.sqrt(2 * WIDTH))
        values = noisy(i, zigzag(0.42, 0.16, 0.05), 0.012)
        return (
            over_sites("coefficient of variation", "sd of |x| over its mean, before each norm", "", values,
                       controls={"without 3 massive tokens": values * 0.4, "tokens shuffled": values * 1.04},
                       theory={"1/√(2d)": gauss}, logs=("value",)),
        )  # fmt: skip
    if claim_id == "sphere.direction":
        grid = noisy(i, 0.18 * np.outer(np.linspace(-0.4, 1, LAYERS), np.ones(HEADS)), 0.06)
        coords = {"layer": list(range(LAYERS)), "head": list(range(HEADS))}
        null = noisy(7, np.zeros((LAYERS, HEADS)), 0.02)
        tokens = {"token": [EVIL, " the", "\n\n", "עברית", "😀", "e\u0301", "a b", "x" * 60]}
        costs = np.array([0.31, 0.22, 0.2, 0.18, np.nan, 0.11, 0.08, 0.02])
        return (
            Quantity("AUC difference", "AUC from cosine minus AUC from |Δlength|, by head", "AUC", ("layer", "head"),
                     coords, grid, controls={"labels permuted": null}),
            Quantity("cost of doubling", "ΔNLL when the stream is doubled after L4, by token", "nats", ("token",),
                     tokens, costs, costs - 0.03, costs + 0.03, controls={"scaled by 1": np.zeros(8)}),
        )  # fmt: skip
    if claim_id == "spectrum.two-zeros":
        index = np.arange(1, WIDTH + 1)
        eigen = 40.0 / index**1.1
        return (
            Quantity("eigenvalues of Cov(z)", "median over sites, largest first", "variance", ("eigenvalue index",),
                     {"eigenvalue index": index.tolist()}, eigen, eigen * 0.8, eigen * 1.25,
                     controls={"Gaussian vectors": np.ones(WIDTH)},
                     theory={"S3: last two ≈ 0": np.where(index > WIDTH - 2, 0, np.nan)},
                     logs=("eigenvalue index", "value")),
        )  # fmt: skip
    if claim_id == "spectrum.local":
        angle = np.array([0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.2])
        ratio = noisy(i, 0.31 * angle**1.96, 0.001)
        return (
            Quantity("radial over tangential variance", "in geodesic balls, mean over 400 centres", "",
                     ("ball angle α, rad",), {"ball angle α, rad": angle.tolist()}, ratio, ratio * 0.85, ratio * 1.17,
                     controls={"Gaussian cloud, no sphere": np.full(8, 0.97)}, theory={"α²/3": angle**2 / 3},
                     logs=("ball angle α, rad", "value")),
        )  # fmt: skip
    if claim_id == "spectrum.dimension":
        values = noisy(i, zigzag(30, 140, 22), 5)
        return (
            over_sites("participation ratio", "(Σλ)²/Σλ² of Cov(z)", "dimensions", values, slack=60.0,
                       controls={"Gaussian, same covariance": noisy(3, values, 3)}),
        )  # fmt: skip
    if claim_id == "sphere.plane":
        values = np.abs(noisy(i, zigzag(0.02, 0.08, -0.01), 0.004))
        return (
            over_sites("|cos(z, 1)|", "mean over tokens", "cosine", values,
                       controls={"random directions": 0.0332 * ones},
                       theory={"√(2/πd)": 0.0332 * ones}),
        )  # fmt: skip
    return ()


def table(claim_id):
    columns = (Column("site", "the norm site"), Column("value", "the statistic there"), Column("n", "tokens"),
               Column("top token", "where it is largest"), Column("flat", "whether any axis is flat"))  # fmt: skip
    tokens = [" the", EVIL, "\udce2 half", "עברית", "", None, '"quoted", comma', "\r\nline"]
    return Table(columns, tuple(
        (site, float("nan") if i == 5 else 0.1 * i, 16384 + i, tokens[i % 8], i % 9 == 0)
        for i, site in enumerate(SITES)
    ))  # fmt: skip


def monte_carlo():
    columns = (Column("d", "dimension"), Column("cv of length", "sd over mean of |x|"), Column("1/√(2d)", "theory"),
               Column("cv of squared length", "sd over mean of |x|²"), Column("√(2/d)", "theory"))  # fmt: skip
    dims = (3, 10, 30, 100, 300, 1000, 3000, 10000)
    return Table(columns, tuple(
        (d, 0.98 / np.sqrt(2 * d), 1 / float(np.sqrt(2 * d)), 1.01 * np.sqrt(2 / d), float(np.sqrt(2 / d)))
        for d in dims
    ))  # fmt: skip


def synthetic_survey():
    findings = []
    for i, (claim_id, verdict, statement, name, number, control, reading, headline) in enumerate(ROWS):
        claim = Claim(
            claim_id, "A", statement, "S0, S2, S3", f"the {name}, by site, median over sites",
            "the same under " + control[0],
            "supported if the interval lies above the control's by half; refuted if below",
        )  # fmt: skip
        findings.append(Finding(
            claim, verdict, Statistic(name, *number), 64, (Control(*control),), reading, headline, table(claim_id),
            quantities(claim_id, i), ("ε is 1e-5 at every site",) if i == 0 else (),
            {"monte-carlo": monte_carlo()} if claim_id == "sphere.concentration" else {}, CAPTION,
            Why.SPANS_LIMIT if verdict == "undecided" else None,
        ))  # fmt: skip
    return Survey(
        tuple(findings),
        model=ModelFacts("smollm2-135m", layers=LAYERS, heads=HEADS, d=WIDTH, norm="rmsnorm"),
        text=TextFacts("wikitext2_valid.txt", documents=64, tokens=16384),
        laws=(
            LawCheck("stream", "embed + Σ writes", 3.1e-7, 7.6e-6, "L29"),
            LawCheck("heads", "Σ heads", 1.2e-6, 7.6e-6, "L3"),
        ),
        provenance=Provenance(dtype="float32"),
        thresholds={"radius_share": 0.99},
        times=Times(seconds=12.5),
    )  # fmt: skip


def failed(survey, claim_id="sphere.plane"):
    """The survey with one claim whose probe raised."""
    nothing = Statistic("not measured", *[float("nan")] * 3)
    words = {"reading": "The probe raised ValueError: no such thing", "headline": "The probe raised ValueError"}
    more = {"statistic": nothing, "controls": (), "quantities": (), "table": Table((), ()), "verdict": "failed"}
    rows = [replace(f, why=Why.FAILED, **words, **more) if f.id == claim_id else f for f in survey]
    return replace(survey, findings=tuple(rows), notes=("Traceback (most recent call last): …",))


def _renamed(q, text):
    controls, theory = ({f"{text}{i}": v for i, v in enumerate(d.values())} for d in (q.controls, q.theory))
    return replace(q, name=text, meaning=text, unit=text, controls=controls, theory=theory)


def hostile_survey():
    """A survey whose every word tries to become markup or a terminal command."""
    text = f"{EVIL}<b>\x1b[31m</script>[red]"
    survey, findings = synthetic_survey(), []
    for f in survey:
        claim = replace(f.claim, statement=text, rule=text, source=text, chapter=text)
        quantities = tuple(_renamed(q, text) for q in f.quantities)
        named = {
            "statistic": replace(f.statistic, name=text, unit=text),
            "controls": (replace(f.controls[0], name=text),),
        }
        words = {"reading": text, "headline": text, "caption": text, "notes": (text,)}
        findings.append(replace(f, claim=claim, quantities=quantities, more_tables={text: f.table}, **named, **words))
    return replace(survey, findings=tuple(findings), model=ModelFacts(text), text=TextFacts(text, tokens=1))

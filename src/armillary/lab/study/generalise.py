"""Do the verdicts on GPT hold for other kinds of models? Surveys of small models of each kind decide."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.lab.study.conclusions.decisions import Decision, StudyEvidence
from armillary.lab.study.conclusions.lab_claims import LabClaim
from armillary.lab.study.conclusions.paired_runs import Row
from armillary.results.claim import Claim, Rewording, Verdict

REFERENCE = "gpt"
# Of the verdicts that another kind has, so many must be GPT's.
AGREE = 0.75
# A claim is compared where so many other kinds decide it, and the whole where there are so many claims and kinds.
KINDS, CLAIMS, OTHERS = 3, 10, 4
# A kind that agrees on less than half of so many claims qualifies.
HALF, ENOUGH = 0.5, 5
DRAWS, SEED = 2000, 19

HOLDS, FAILS = "holds", "fails"
_SIDES = {"supported": HOLDS, "qualified": HOLDS, "refuted": FAILS}


@dataclass(frozen=True)
class Agreement:
    """Which claims of GPT each other kind decides, and whether alike."""

    claims: tuple[str, ...]
    kinds: tuple[str, ...]
    alike: np.ndarray
    """[claim, kind]: 1 alike, 0 not, NaN where a kind does not decide."""
    chance: float
    """The share that would be alike if each kind's verdicts fell on its claims at random."""

    @property
    def share(self) -> float:
        return float(np.nanmean(self.alike)) if np.isfinite(self.alike).any() else float("nan")

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """Kind → how many claims are alike, of how many."""
        columns = zip(self.kinds, self.alike.T, strict=True)
        return {kind: (int(np.nansum(column)), int(np.isfinite(column).sum())) for kind, column in columns}

    def carried(self) -> dict[str, bool]:
        """Claim → does GPT's verdict carry over to enough kinds?"""
        return {name: bool(np.nanmean(row) >= AGREE) for name, row in zip(self.claims, self.alike, strict=True)}

    def interval(self) -> tuple[float, float]:
        """Of the share, claims drawn again and again."""
        rng = np.random.default_rng(SEED)
        drawn = self.alike[rng.integers(len(self.claims), size=(DRAWS, len(self.claims)))]
        shares = np.nanmean(drawn, axis=(1, 2))
        return float(np.quantile(shares, 0.025)), float(np.quantile(shares, 0.975))


def sides(rows: Sequence[Row]) -> dict[str, dict[str, str]]:
    """Kind → claim → its side: that of most seeds, of at least two; claims that hold by definition are left out."""
    votes: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if row["claim_kind"] != "definition":
            votes.setdefault(row["arm"], {}).setdefault(row["claim"], []).append(_SIDES.get(row["verdict"], ""))
    by_kind: dict[str, dict[str, str]] = {}
    for kind, claims in votes.items():
        for claim, voted in claims.items():
            for side in (HOLDS, FAILS):
                if voted.count(side) >= 2 and 2 * voted.count(side) > len(voted):
                    by_kind.setdefault(kind, {})[claim] = side
    return by_kind


def agreement(rows: Sequence[Row], reference: str = REFERENCE) -> Agreement:
    decided = sides(rows)
    own = decided.pop(reference, {})
    kinds = tuple(sorted(decided))
    claims = tuple(c for c in own if sum(c in decided[kind] for kind in kinds) >= KINDS)
    alike = np.full((len(claims), len(kinds)), np.nan)
    expected = []
    for column, kind in enumerate(kinds):
        shared = [claim for claim in claims if claim in decided[kind]]
        for claim in shared:
            alike[claims.index(claim), column] = own[claim] == decided[kind][claim]
        share, other_share = (_rate(each, shared) for each in (own, decided[kind]))
        expected += [share * other_share + (1 - share) * (1 - other_share)] * len(shared)
    return Agreement(claims, kinds, alike, float(np.mean(expected)) if expected else float("nan"))


def _rate(decided: Mapping[str, str], claims: Sequence[str]) -> float:
    return sum(decided[claim] == HOLDS for claim in claims) / len(claims) if claims else 0.0


def carries_over(evidence: StudyEvidence) -> Decision:
    """Supported if the share alike is surely above three quarters and above chance."""
    agreed = agreement(evidence.rows, evidence.reference)
    if len(agreed.claims) < CLAIMS or len(agreed.kinds) < OTHERS:
        few = f"Only {len(agreed.claims)} claims are decided on GPT and {KINDS} other kinds; {len(agreed.kinds)} kinds."
        return Decision("undecided", few, ())
    low, high = agreed.interval()
    counts = agreed.by_kind()
    weak = [kind for kind, (alike, of) in counts.items() if of >= ENOUGH and alike < HALF * of]
    verdict: Verdict = "undecided"
    if high < AGREE:
        verdict = "refuted"
    elif low >= AGREE and low > agreed.chance:
        verdict = "qualified" if weak else "supported"
    carried = agreed.carried()
    lost = [claim for claim, over in carried.items() if not over]
    return Decision(
        verdict,
        f"{agreed.share:.0%} [{low:.0%}, {high:.0%}] of the verdicts are GPT's (by chance {agreed.chance:.0%}): "
        + ", ".join(f"{kind} {alike} of {of}" for kind, (alike, of) in counts.items())
        + f". {sum(carried.values())} of {len(carried)} claims carry over"
        + (f"; not {', '.join(lost)}." if lost else "."),
        (),
    )


GENERALISE = LabClaim(
    Claim(
        "lab.generalise", "G", "What is found of GPT holds for other kinds of models.", "R",
        "The share of verdicts that are the same as GPT's, over claims that GPT and at least three other kinds decide. "
        "Claims that hold by definition do not count.\n"
        "They come from quick surveys of small models of eight kinds, three seeds each, trained alike: GPT, Llama, "
        "BERT, LSTM and Mamba-2 on books, ViT, MLP-Mixer and ConvNeXt on CIFAR-10.\n"
        "A claim holds for a kind if most seeds, at least two, support or qualify it, and fails if as many refute it. "
        "Otherwise, and where it does not apply, it is open.",
        "The share that would be the same if each kind's verdicts fell on its claims at random. Seeds of one "
        "kind are shown side by side in `armillary matrix` and decide nothing.",
        f"The share is compared with {AGREE:.0%} and with chance, by its whole interval (claims drawn again).\n"
        f"Supported if it lies at or above {AGREE:.0%}, and above chance.\n"
        f"Qualified if it does, but one kind agrees with GPT on less than half of at least {ENOUGH} claims.\n"
        f"Refuted if it lies below {AGREE:.0%}.\n"
        f"Undecided otherwise, and with fewer than {CLAIMS} claims or {OTHERS} other kinds.\n"
        f"A claim carries over if at least {AGREE:.0%} of the kinds that decide it agree with GPT.",
        "learned",
        question="Armillary's verdicts were found on GPT models. Are they the same on small models of other kinds, "
        "trained in the same way?",
        rewordings=(Rewording("2026-11-19", "b94bbfb55fc7", 0),),
    ),
    "generalise",
    carries_over,
    how="python bench/generalise.py",
)  # fmt: skip

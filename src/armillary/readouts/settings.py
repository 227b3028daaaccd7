"""Check what was asked of a model's heads, and refuse what it cannot answer; imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from armillary.errors import ArmillaryError, nearest

if TYPE_CHECKING:
    from armillary.anatomy import Anatomy

Matrix = Literal["qk", "vo"]
MATRICES: tuple[Matrix, ...] = get_args(Matrix)
SHOWN: dict[Matrix, str] = {"qk": "W_QK", "vo": "W_VO"}
Ranking = Literal["dot", "cosine"]
RANKINGS: dict[Ranking, str] = {"dot": "dot product", "cosine": "cosine"}
PLACES = ("first", "middle", "last", "all")
Layers = str | int | Sequence[int] | None


def pick_layers(asked: Layers, anatomy: "Anatomy") -> tuple[int, ...]:
    """Layers by number, by place ('first,middle,last') or 'all'; None means all of them."""
    if asked is None:
        return tuple(range(anatomy.layers))
    names = asked.split(",") if isinstance(asked, str) else [asked] if isinstance(asked, int) else list(asked)
    layers: list[int] = []
    last = anatomy.layers - 1
    # The paper's middle layer of twelve is 5.
    places = {"first": [0], "middle": [last // 2], "last": [last], "all": list(range(anatomy.layers))}
    for given in names:
        name = str(given).strip().lower()
        if name in places:
            layers += places[name]
        elif name.lstrip("+-").isdecimal():
            layers.append(_within(int(name), anatomy.layers, "layer", anatomy))
        else:
            raise ArmillaryError(f"there is no layer {name!r}; give numbers from 0 to {last}, or {', '.join(PLACES)}.")
    return tuple(dict.fromkeys(layers))


def pick_heads(asked: int | None, anatomy: "Anatomy") -> tuple[int, ...]:
    if asked is None:
        return tuple(range(anatomy.n_heads))
    return (_within(asked, anatomy.n_heads, "head", anatomy),)


def _within(number: int, count: int, what: str, anatomy: "Anatomy") -> int:
    if not 0 <= number < count:
        where = anatomy.name if what == "layer" else f"every layer of {anatomy.name}"
        raise ArmillaryError(
            f"{what} {number} was asked for, but {where} has {count} of them; choose one from 0 to {count - 1}."
        )
    return number


def pick_matrices(asked: str | None) -> tuple[Matrix, ...]:
    """
    >>> pick_matrices("OV"), pick_matrices(None)
    (('vo',), ('qk', 'vo'))
    """
    if asked is None:
        return MATRICES
    name = {"ov": "vo"}.get(asked.lower(), asked.lower())
    chosen = tuple(matrix for matrix in MATRICES if matrix == name)
    if not chosen:
        raise ArmillaryError(f"there is no matrix {asked!r}; choose qk or vo (ov is the same).")
    return chosen


def pick_ranking(asked: str) -> Ranking:
    for ranking in RANKINGS:
        if asked == ranking:
            return ranking
    raise ArmillaryError(f"there is no ranking {asked!r}; {nearest(asked, RANKINGS)}")


def check_counts(top: int, directions: int = 1) -> None:
    if top < 1:
        raise ArmillaryError(f"--top {top} would list no word; give at least 1.")
    if directions < 1:
        raise ArmillaryError(f"--directions {directions} would read no direction; give at least 1.")


def check_offset(offset: int | None, anatomy: "Anatomy", matrices: Sequence[Matrix] = MATRICES) -> int:
    """Δ, how many positions a query stands after its key; 0 if none was asked for."""
    if offset is None:
        return 0
    if "qk" not in matrices:
        raise ArmillaryError(
            f"--offset {offset} was given with W_VO, which does not depend on positions; drop it, or use --matrix qk."
        )
    if not anatomy.rotates:
        raise ArmillaryError(
            f"--offset {offset} was given, but {anatomy.name} does not rotate queries and keys (its positions are "
            f"{anatomy.positions.kind}), so W_QK is the same at every offset; drop --offset."
        )
    if abs(offset) >= anatomy.context:
        raise ArmillaryError(
            f"--offset {offset} lies beyond the context of {anatomy.context} tokens; give less than {anatomy.context}."
        )
    if offset < 0 and anatomy.causal:
        raise ArmillaryError(
            f"--offset {offset} puts the key after its query, which a causal model cannot attend to; give 0 or more."
        )
    return offset


@dataclass(frozen=True)
class Settings:
    """The choices behind every number of a sheet."""

    offset: int
    ranking: Ranking
    top: int

    def about(self, anatomy: "Anatomy") -> dict[str, Any]:
        """The model and these choices, for the files that are saved."""
        facts = {"name": anatomy.name, "family": anatomy.family, **anatomy.provenance}
        facts |= {"layers": anatomy.layers, "heads": anatomy.n_heads, "d": anatomy.d, "k": anatomy.k}
        settings = {
            "folded": "the centring, gain and shift of the norm before attention, and all biases, are folded in",
            "offset": self.offset if anatomy.rotates else None,
            "ranking": self.ranking,
            "top": self.top,
            "words": "token embeddings alone, without position, as directions at the norm that attention reads",
            "output": describe_output(anatomy),
        }
        return {"model": facts, "settings": settings}

    def caption(self, anatomy: "Anatomy") -> str:
        return f"{self.short_caption(anatomy)} · ranked by {RANKINGS[self.ranking]}"

    def short_caption(self, anatomy: "Anatomy") -> str:
        """The caption without the ranking, for sheets that list no words."""
        rotation = f"Δ = {self.offset}" if anatomy.rotates else "no rotation"
        return f"{anatomy.name} · folded onto directions · {rotation}"


def describe_output(anatomy: "Anatomy") -> str:
    """What the stream passes through before it is compared with words."""
    end = "the unembedding" if anatomy.W_U is not None else "the embedding (there is no unembedding)"
    if anatomy.order == "post":
        return f"the norm after attention, then {end}"
    return f"the final norm, then {end}" if anatomy.ln_final is not None and anatomy.W_U is not None else end

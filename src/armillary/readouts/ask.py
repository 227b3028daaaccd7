"""What was asked for, and can this model answer it? Everything that can be refused is refused here, without torch."""

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
RANKINGS: tuple[Ranking, ...] = get_args(Ranking)
PLACES = ("first", "middle", "last", "all")
Layers = str | int | Sequence[int] | None


def pick_layers(asked: Layers, anatomy: "Anatomy") -> tuple[int, ...]:
    """Layers by number, by place ('first,middle,last') or 'all'; None is all of them."""
    if asked is None:
        return tuple(range(anatomy.layers))
    words = asked.split(",") if isinstance(asked, str) else [asked] if isinstance(asked, int) else list(asked)
    found: list[int] = []
    last = anatomy.layers - 1
    # The middle of twelve is 5: what the paper took.
    places = {"first": [0], "middle": [last // 2], "last": [last], "all": list(range(anatomy.layers))}
    for word in words:
        name = str(word).strip().lower()
        if name in places:
            found += places[name]
        elif name.lstrip("+-").isdecimal():
            found.append(_within(int(name), anatomy.layers, "layer", anatomy))
        else:
            raise ArmillaryError(f"there is no layer {name!r}; give numbers from 0 to {last}, or {', '.join(PLACES)}.")
    return tuple(dict.fromkeys(found))


def pick_heads(asked: int | None, anatomy: "Anatomy") -> tuple[int, ...]:
    if asked is None:
        return tuple(range(anatomy.n_heads))
    return (_within(asked, anatomy.n_heads, "head", anatomy),)


def _within(number: int, count: int, what: str, anatomy: "Anatomy") -> int:
    if not 0 <= number < count:
        where = anatomy.name if what == "layer" else f"every layer of {anatomy.name}"
        raise ArmillaryError(
            f"{what} {number} was asked for, and {where} has {count} of them; choose one from 0 to {count - 1}."
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
    for matrix in MATRICES:
        if name == matrix:
            return (matrix,)
    raise ArmillaryError(f"there is no matrix {asked!r}; choose qk or vo (ov is the same).")


def pick_ranking(asked: str) -> Ranking:
    for ranking in RANKINGS:
        if asked == ranking:
            return ranking
    raise ArmillaryError(f"there is no ranking {asked!r}; {nearest(asked, RANKINGS)}")


def check_top(top: int) -> None:
    if top < 1:
        raise ArmillaryError(f"--top {top} would list no word; give at least 1.")


def check_directions(directions: int) -> None:
    if directions < 1:
        raise ArmillaryError(f"--directions {directions} would read no direction; give at least 1.")


def check_offset(offset: int | None, anatomy: "Anatomy", matrices: Sequence[Matrix] = MATRICES) -> int:
    """Δ, how many places a query stands after its key; 0 where none was asked for."""
    if offset is None:
        return 0
    if "qk" not in matrices:
        raise ArmillaryError(
            f"--offset {offset} was given with W_VO, which knows no places; drop it, or use --matrix qk."
        )
    if not anatomy.rotary_path:
        raise ArmillaryError(
            f"--offset {offset} was given, but {anatomy.name} turns no queries or keys (its positions are "
            f"{anatomy.positions.kind}), so W_QK is the same at every offset; drop --offset."
        )
    if abs(offset) >= anatomy.context:
        raise ArmillaryError(
            f"--offset {offset} lies beyond the context of {anatomy.context} tokens; give less than {anatomy.context}."
        )
    if offset < 0 and anatomy.causal:
        raise ArmillaryError(
            f"--offset {offset} puts the key after its query, where a causal model never looks; give 0 or more."
        )
    return offset


@dataclass(frozen=True)
class Gauge:
    """The choices behind every number of a sheet."""

    offset: int
    ranking: Ranking
    top: int

    def about(self, anatomy: "Anatomy") -> dict[str, Any]:
        """The model and these choices, for whoever reads the files without us."""
        facts = {"name": anatomy.name, "family": anatomy.family, **anatomy.provenance}
        facts |= {"layers": anatomy.layers, "heads": anatomy.n_heads, "d": anatomy.d, "k": anatomy.k}
        gauge = {
            "folded": "centring, gain and shift of the norm before attention, and all biases, are multiplied in",
            "offset": self.offset if anatomy.rotary_path else None,
            "ranking": self.ranking,
            "top": self.top,
            "words": "token embeddings alone, without position, as directions at the norm that attention reads",
            "output": output_said(anatomy),
        }
        return {"model": facts, "gauge": gauge}

    def caption(self, anatomy: "Anatomy") -> str:
        turned = f"Δ = {self.offset}" if anatomy.rotary_path else "no rotation"
        return f"{anatomy.name} · folded onto directions · {turned} · ranked by {SAID[self.ranking]}"


def output_said(anatomy: "Anatomy") -> str:
    """What stands where the stream is read as words."""
    end = "the unembedding" if anatomy.W_U is not None else "the embedding itself, for there is no unembedding"
    if anatomy.order == "post":
        return f"the norm behind attention, then {end}"
    return f"the final norm, then {end}" if anatomy.ln_final is not None and anatomy.W_U is not None else end


SAID: dict[Ranking, str] = {"dot": "dot product", "cosine": "cosine"}

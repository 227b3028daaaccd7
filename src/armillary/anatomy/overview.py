"""A model at a glance, for notebooks: its facts, and the gains of its norms by depth."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.results import Column, Quantity, Table
from armillary.results.sheets.sheet import Sheet

if TYPE_CHECKING:
    from armillary.anatomy.anatomy import Anatomy

SHOWN = ("family", "parameters", "layers", "heads", "kv_heads", "d", "k", "m", "vocabulary", "context", "norm", "order",
         "positions", "activation")  # fmt: skip


def overview(anatomy: "Anatomy") -> Sheet:
    """The median semi-axis |γ| of every norm with its middle 90 %, the model's facts, and the map of its sites."""
    from armillary.anatomy.facts import facts

    model_facts = facts(anatomy)
    gains = [norm.gain.detach().double().abs().cpu().numpy() for norm in anatomy.norms.values()]
    low, middle, high = np.quantile(np.stack(gains), [0.05, 0.5, 0.95], axis=1)
    quantity = Quantity(
        "gain of the norms", "median |γ| of each norm, and its middle 90 %", "|γ|", ("site",),
        {"site": list(anatomy.norms)}, middle, low, high,
    )  # fmt: skip
    return Sheet(
        name="anatomy",
        title=f"{anatomy.name}: {anatomy.layers} layers of {anatomy.n_heads} heads, width {anatomy.d}",
        caption=f"{anatomy.family} · {model_facts['norm']}, {anatomy.order}-norm order · "
        f"{model_facts['parameters']:,} parameters",
        tables={"facts": _facts(model_facts), "sites": _sites(model_facts), "laws": _laws(model_facts)},
        quantities=(quantity,),
    )


def _facts(model_facts: Mapping[str, Any]) -> Table:
    columns = (Column("fact", "of the model"), Column("value", "its value"))
    return Table(columns, tuple((name.replace("_", " "), model_facts[name]) for name in SHOWN))


def _sites(model_facts: Mapping[str, Any]) -> Table:
    columns = (Column("site", "our name"), Column("module", "Hugging Face's module"), Column("side", "of the module"))
    return Table(columns, tuple((site["site"], site["module"], site["side"]) for site in model_facts["sites"]))


def _laws(model_facts: Mapping[str, Any]) -> Table:
    columns = (Column("law", "what must hold"), Column("error", "largest relative error"), Column("where", "its place"))
    return Table(columns, tuple((law["name"], law["error"], law["where"]) for law in model_facts["laws"]))

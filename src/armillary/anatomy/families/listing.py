"""The architectures that can be read, as a text: what is read of each, and what those that cannot be read lack."""

from armillary.anatomy.families import FAMILIES, MISSING
from armillary.anatomy.families.family import Family


def listing() -> str:
    """One line per architecture, whole ones first.

    >>> listing().splitlines()[1].split()
    ['gpt2', 'heads,', 'hidden', 'values']
    """
    whole = [family for family in FAMILIES if not lacks(family)]
    partial = [family for family in FAMILIES if lacks(family)]
    width = max(len(name) for name in (*(family.model_type for family in FAMILIES), *MISSING)) + 2
    lines = [f"Read whole ({len(whole)}): all claims apply, but for those that a variant lacks."]
    lines += [f"  {family.model_type:{width}}{_parts(family)}" for family in whole]
    lines += ["", f"Read in part ({len(partial)}): claims that need what is missing do not apply, all others do."]
    lines += [f"  {family.model_type:{width}}{lacks(family)}" for family in partial]
    lines += ["", "Known, and refused for what is missing:"]
    lines += [f"  {name:{width}}{why}" for name, why in sorted(MISSING.items())]
    return "\n".join(lines)


def lacks(family: Family) -> str:
    """What is not read of an architecture, in at least one of its layers; '' where nothing is missing."""
    parts = [f"no heads ({family.mixer})"] if family.mixer else []
    parts += [family.lacks] if family.lacks else []
    if family.experts is not None:
        parts.append("no dense hidden values (a mixture of experts)")
    if family.opaque_channels:
        parts.append(f"no hidden values ({family.opaque_channels})")
    if not family.channels:
        parts.append("no feed-forward layers")
    return ", ".join(parts)


def _parts(family: Family) -> str:
    parts = ["heads, hidden values"]
    parts += ["an encoder"] if not family.plain_head else []
    parts += ["norms on writes only"] if family.ln1 is None else []
    parts += [f"reads {family.patches.sense}"] if family.patches is not None else []
    return ", ".join(parts)

"""A methods paragraph for a paper, and how to cite Armillary."""

from armillary import __version__
from armillary.results.numbers import count
from armillary.results.survey import Survey
from armillary.views.text.quoting import show_text
from armillary.views.text.summary import counted

CITATION = f"Armillary contributors (2026). Armillary: the geometry of transformers, measured. Version {__version__}."


def methods_text(survey: Survey) -> str:
    """What was measured, on which text, with which controls and seeds, in sentences for a methods section."""
    model, text, run = survey.model, survey.text, survey.provenance
    shape = ", ".join(
        part
        for part in (
            counted(model.layers, "layer"),
            f"width {count(model.d)}" if model.d else "",
            counted(model.heads, "head"),
            show_text(model.norm),
            f"{count(model.parameters)} parameters" if model.parameters else "",
        )
        if part
    )
    sentences = [f"We measured {counted(len(survey), 'claim')} on {show_text(model.name)} ({shape})"]
    if model.fingerprint:
        sentences[0] += f", fingerprint {show_text(model.fingerprint[:12])}"
    sentences[0] += f", with Armillary {run.versions.get('armillary', __version__)}"
    sentences[0] += f", rules {run.rules_version}." if run.rules_version else "."
    if text.tokens:
        read = f"{counted(text.documents, 'document')} with {counted(text.tokens, 'token')} in total"
        sentences.append(f"The model read {read} ({show_text(text.source)}).")
        sentences.append(
            "Intervals are 95 % expanded percentile bootstrap intervals over documents; positions at the start of a "
            "document and massive activations were counted apart."
        )
    else:
        sentences.append("Only weights were read.")
    twins = [arm for arm in run.arms if arm.startswith("random")]
    controls = [f"{len(twins)} untrained models of the same shape"] if twins else []
    controls += ["the same text with its tokens shuffled"] if any("shuffled" in arm for arm in run.arms) else []
    if controls:
        sentences.append(f"Controls are {' and '.join(controls)}, and those that each claim names.")
    if survey.laws:
        worst = max(law.error / law.tolerance for law in survey.laws)
        sentences.append(
            f"The canonical form of the weights was checked against the running model by {len(survey.laws)} laws; "
            f"the largest error was {worst:.0%} of what rounding allows."
        )
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items() if name != "armillary")
    how = [part for part in (run.dtype, f"on {run.device}" if run.device else "", f"seed {run.seed}") if part]
    sentences.append(f"Computation: {', '.join(how)}{f'; {versions}' if versions else ''}.")
    return " ".join(sentences)

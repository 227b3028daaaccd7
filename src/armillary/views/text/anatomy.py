"""A model's canonical form as text."""

from collections.abc import Mapping
from typing import Any

from armillary.views.text.quoting import show_text


def anatomy_text(facts: Mapping[str, Any]) -> str:
    """Shapes and conventions, the map of our site names to Hugging Face's modules, and the laws' errors."""
    lines = [
        f"{facts['name']}  ({facts['family']}, {facts['parameters']:,} parameters, fingerprint {facts['fingerprint']})",
        "",
        f"  {facts['layers']} layers · d {facts['d']} · {facts['heads']} heads of k {facts['k']}"
        f" · {facts['kv_heads']} key/value heads · m {facts['m']} · vocabulary {facts['vocabulary']}"
        f" · context {facts['context']}",
        f"  norms      {facts['norm']}, {facts['order']}-norm order" + ", parallel sublayers" * facts["parallel"],
        f"  attention  {', '.join(_attention(facts))}",
        f"  positions  {_positions(facts)}",
        f"  feed-forward {_feed_forward(facts)}",
        f"  embedding  {_unembedding(facts)}"
        + (f", logits capped at {facts['logit_softcap']:g}" if facts["logit_softcap"] else ""),
        "  weights    " + "  ".join(f"{name} {shape}" for name, shape in facts["shapes"].items()),
    ]
    lines += [f"  not understood: {show_text(part)}" for part in facts["not_understood"]]
    if facts["weights_ignored"]:
        lines.append(f"  weights that the config does not call for: {show_text(', '.join(facts['weights_ignored']))}")
    if facts["config_ignored"]:
        lines.append(
            f"  config.json keys that Hugging Face's class ignores: {show_text(', '.join(facts['config_ignored']))}"
        )
    return "\n".join([*lines, "", *_norms(facts), "", *_sites(facts), "", *_laws(facts)])


def _unembedding(facts: Mapping[str, Any]) -> str:
    if not facts["unembedding"]:
        return "without an unembedding: no claim about logits applies"
    return f"{'tied to' if facts['tied'] else 'apart from'} the unembedding"


def _feed_forward(facts: Mapping[str, Any]) -> str:
    dense = f"{show_text(str(facts['activation']))}{' with a gate' if facts['gated'] else ''}"
    number, top = facts["experts"].get("number"), facts["experts"].get("top")
    experts = f"{number} experts, of which a token gets {top}" if number else ""
    return ", ".join(part for part in (dense, experts) if part) or "none that is read"


def _attention(facts: Mapping[str, Any]) -> list[str]:
    parts = ["causal" if facts["causal"] else "both ways", "biased q, k, v" if facts["qkv_bias"] else "no biases"]
    if facts["qk_norm"]:
        parts.append("q/k-norm")
    if facts["attention_softcap"]:
        parts.append(f"scores capped at {facts['attention_softcap']:g}")
    if facts["score_bias"]:
        parts.append("scores biased by distance")
    if facts["sinks"]:
        parts.append("sinks")
    if facts["windows"]:
        parts.append(f"sliding windows {facts['windows']}")
    return parts


def _positions(facts: Mapping[str, Any]) -> str:
    if facts["positions"] != "rotary":
        return str(facts["positions"])
    return f"rotary over {facts['rotary']['dims']} of {facts['k']} coordinates, θ {facts['rotary']['theta']:g}"


def _norms(facts: Mapping[str, Any]) -> list[str]:
    kinds: dict[tuple[str, float, bool], list[str]] = {}
    for norm in facts["norms"]:
        kinds.setdefault((norm["kind"], norm["eps"], norm["shift"]), []).append(norm["site"])
    return [
        f"{len(sites)} norm sites: {kind}, ε {eps:g}, {'γ and β' if shift else 'γ only'} ({sites[0]} … {sites[-1]})"
        for (kind, eps, shift), sites in kinds.items()
    ]


def _sites(facts: Mapping[str, Any]) -> list[str]:
    """The map for the first block and for sites outside the blocks; other blocks differ only in their number."""
    shown = [s for s in facts["sites"] if s["site"].startswith("L0.") or not s["site"].startswith("L")]
    shown += [s for s in facts["sites"] if s["site"].startswith("ln_") and s not in shown]
    width = max(len(s["site"]) for s in shown)
    lines = [f"  {s['site']:<{width}}  {s['side']:<6} of  {s['module']}" for s in shown]
    return [f"sites (L0 stands for L0 … L{facts['layers'] - 1}; --json has them all)", *lines]


def _laws(facts: Mapping[str, Any]) -> list[str]:
    width = max(len(law["name"]) for law in facts["laws"])
    lines = [
        f"  {law['name']:<{width}}  {law['error']:.1e} of {law['tolerance']:.0e} at {law['where']:<28}  "
        f"{law['statement']}"
        for law in facts["laws"]
    ]
    return ["laws (largest relative error on a tiny batch, of what rounding explains)", *lines]

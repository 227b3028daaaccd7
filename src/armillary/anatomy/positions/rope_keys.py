"""Which keys of a config's rotation does Hugging Face not know? It carries them along and obeys none of them."""

from typing import Any

# Keys that single architectures read, beside those of the library's own list.
OTHERS = frozenset("type llama_4_scaling_beta mrope_section mrope_interleaved interleaved".split())


def ignored_rope_keys(config: Any) -> tuple[str, ...]:
    """'rope_parameters.facter' and so on; a rotation per kind of layer is looked into."""
    from transformers.modeling_rope_utils import RopeParameters

    known = OTHERS | set(RopeParameters.__annotations__)
    rope = getattr(config, "rope_parameters", None)
    if not isinstance(rope, dict):
        return ()
    if rope and all(isinstance(each, dict) for each in rope.values()):
        keys = {f"{kind}.{key}" for kind, each in rope.items() for key in each if key not in known}
    else:
        keys = {str(key) for key in rope if key not in known}
    return tuple(sorted(f"rope_parameters.{key}" for key in keys))

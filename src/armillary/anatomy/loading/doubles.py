"""Is something said twice in a model's files? The library takes one of the two, and does not say which.

One weight may lie in two files, or under two of its names; one setting may stand in config.json under two keys.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from armillary.errors import ModelError

# What a config says of where it came from, and how an answer is packed: the library writes these itself.
ASIDE = frozenset("dtype torch_dtype transformers_version model_type return_dict architectures".split())
# Keys of a rotation and the keys of the config itself that say the same.
ROTATION = {
    "rope_theta": ("rope_theta", "rotary_emb_base"),
    "partial_rotary_factor": ("partial_rotary_factor", "rotary_pct"),
    "original_max_position_embeddings": ("original_max_position_embeddings",),
}
ROTATIONS = ("rope_parameters", "rope_scaling")
# Versions of transformers with which the library's own way from a name to a weight was tested.
CHECKED = ("5.21", "5.23")
Target = Callable[[str], tuple[str, str]]
ADVICE = "so it is not clear which is meant; remove one, or fetch the model again."


def check_settings(path: Any, given: Mapping[str, Any], config: Any) -> None:
    """Refuse a config.json in which two keys name one setting and disagree.

    Whatever the reason, a plain value that the file gives and the config does not have was overruled by another key.
    """
    for key, value in given.items():
        if isinstance(value, dict) and key in getattr(config, "sub_configs", {}) and hasattr(config, key):
            check_settings(f"{path} ({key})", value, getattr(config, key))
        if key in ASIDE or key.startswith("_") or not isinstance(value, bool | int | float | str):
            continue
        read = getattr(config, key, value)
        if isinstance(read, bool | int | float | str) and read != value:
            name = config.attribute_map.get(key, key)
            same = [other for other in given if other != key and config.attribute_map.get(other, other) == name]
            other = f"{same[0]}={given[same[0]]!r}" if same else f"another key makes it {read!r}"
            raise ModelError(f"{path} says {key}={value!r}, and {other}, {ADVICE}")
    _check_rotation(path, given)


def _check_rotation(path: Any, given: Mapping[str, Any]) -> None:
    """The settings of a rotation stand in a record of their own, in an older one, or beside both."""
    records = [(f"{name}.", given[name]) for name in ROTATIONS if isinstance(given.get(name), dict)]
    places: dict[str, list[tuple[str, Any]]] = {}
    for within, record in records:
        for key, value in record.items():
            setting = "rope_type" if key == "type" else key
            places.setdefault(setting, []).append((within + key, value))
    for setting, keys in ROTATION.items():
        places.setdefault(setting, []).extend((key, given[key]) for key in keys if given.get(key) is not None)
    for settings in places.values():
        for key, value in settings[1:]:
            if value != settings[0][1]:
                raise ModelError(f"{path} says {settings[0][0]}={settings[0][1]!r}, and {key}={value!r}, {ADVICE}")


def check_names(path: Any, names: Iterable[str], model: Any, unread: Iterable[str] = ()) -> None:
    """Refuse files in which two names lead to one weight: with and without a prefix, an old name and a new one.

    `unread` are the names that the library took for none of the model's.
    """
    held, seen = model.state_dict(), dict[tuple[str, str], str]()
    target_of = _library_names(model, held) or _plain_names(path, model, held, frozenset(unread))
    for name in sorted(names):
        target, part = target_of(name)
        if target not in held and name in held:
            target, part = name, ""
        if target not in held:
            continue
        first = seen.setdefault((target, part), name)
        if first != name:
            raise ModelError(f"{path} holds the weight {target} twice, as {first} and as {name}, {ADVICE}")


def _library_names(model: Any, held: Mapping[str, Any]) -> Target | None:
    """The library's own way from a name in a file to a weight, and to the part of it where many make one.

    These functions are no public part of the library: where a version has others, None.
    """
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

        changes = get_model_conversion_mapping(model)
        renamings = [entry for entry in changes if isinstance(entry, WeightRenaming)]
        converters = [entry for entry in changes if isinstance(entry, WeightConverter)]
        prefix = model.base_model_prefix

        def target_of(name: str) -> tuple[str, str]:
            target, packed = rename_source_key(name, renamings, converters, prefix, held)
            part = "" if packed is None else rename_source_key(name, renamings, [])[0].removeprefix(f"{prefix}.")
            return target, part

        known = next(iter(held), "")
        return target_of if target_of(known) == (known, "") else None
    except (ImportError, AttributeError, TypeError, ValueError):
        return None


def _plain_names(path: Any, model: Any, held: Mapping[str, Any], unread: frozenset[str]) -> Target:
    """Names with and without the prefix of the model's body; any other that the library read cannot be followed."""
    prefix, ignored = f"{model.base_model_prefix}.", model._keys_to_ignore_on_load_unexpected or ()

    def target_of(name: str) -> tuple[str, str]:
        for target in (name, prefix + name, name.removeprefix(prefix)):
            if target in held:
                return target, ""
        if name in unread or any(re.search(pattern, name) for pattern in ignored):
            return name, ""
        import transformers

        raise ModelError(
            f"{path} holds the weight {name} under a name that transformers {transformers.__version__} renames in a "
            f"way that Armillary does not support; install transformers {CHECKED[0]} to {CHECKED[1]}."
        )

    return target_of

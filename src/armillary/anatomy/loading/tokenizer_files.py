"""The tokenizer that lies beside a model, if it can be used."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from armillary.anatomy.loading.weights import check_entries
from armillary.errors import ModelError
from armillary.results.disk.files import read_bytes, strict_json

FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
# The most by which a tokenizer may lengthen a text, by its own replacements.
GROWTH = 1000
# The settings of one token.
SETTINGS = ("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", "__type")


def load_tokenizer(where: dict[str, Any]) -> Any:
    """None where a model comes without one; whatever needs it reports it."""
    from transformers import AutoTokenizer

    check_tokens(Path(where["pretrained_model_name_or_path"]))
    try:
        tokenizer = AutoTokenizer.from_pretrained(**where)
        tokenizer("a")  # some settings of the wrong type are noticed only here
        # Where its files are missing, Hugging Face may build a tokenizer without any words.
        words = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
    except Exception as error:
        _check_file(Path(where["pretrained_model_name_or_path"]) / "tokenizer.json", error)
        return None
    if getattr(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None), "dropout", None):
        raise ModelError(
            f"{where['pretrained_model_name_or_path']}/tokenizer.json drops merges at random, so that the same text "
            "would not give the same tokens; set its dropout to null."
        )
    return tokenizer if words else None


def _check_file(path: Path, error: Exception) -> None:
    """A tokenizer that is damaged is not the same as none; one that needs a package that is not here is."""
    if isinstance(error, ImportError) or not os.path.lexists(path):
        return
    first = (str(error).strip().splitlines() or [""])[0][:160]
    raise ModelError(
        f"{path} and the files next to it cannot be read as a tokenizer ({type(error).__name__}: {first}); fetch the "
        "model again, or remove them to read the weights alone."
    ) from error


def check_tokens(folder: Path) -> None:
    """Refuse a token with an unknown setting: the library prints its name as it stands and ignores it. And a word or a
    setting that is given twice: the library takes the last."""
    if not folder.is_dir():
        return
    check_entries(folder)
    for path in (folder / name for name in FILES):
        if not os.path.lexists(path):
            continue
        try:
            content = read_bytes(path)
        except OSError as error:
            raise ModelError(f"{path} cannot be read ({error.strerror}); check its permissions.") from error
        try:
            record = strict_json(content)
        except ValueError as error:
            if not _is_json(content):
                continue  # what cannot be read is no tokenizer
            raise ModelError(f"{path} is damaged ({error}); fetch the model again.") from error
        _check_ids(path, record)
        _check_growth(path, record)
        strange = (key for token in _tokens(record) for key in token if key not in SETTINGS)
        if (key := next(strange, None)) is not None:
            raise ModelError(
                f"{path} gives a token the unknown setting {key[:60]!r} (known: {', '.join(SETTINGS[1:-1])}); "
                "correct its name, or fetch the model again."
            )


def _check_ids(path: Path, record: Any) -> None:
    """A token's number is that of one word."""
    model = record.get("model") if isinstance(record, dict) else None
    words = model.get("vocab") if isinstance(model, dict) else None
    first = dict[Any, str]()
    for word, number in words.items() if isinstance(words, dict) else ():
        if isinstance(number, int) and first.setdefault(number, word) != word:
            raise ModelError(
                f"{path} gives the token {number} to two words, {first[number][:40]!r} and {word[:40]!r}; fetch the "
                "model again."
            )


def _check_growth(path: Path, record: Any) -> None:
    """A few steps that each make a text ten times as long fill all memory, and the library then ends the process."""
    factor = _growth(record.get("normalizer")) if isinstance(record, dict) else 1
    if factor > GROWTH:
        shown = f"{factor:,}" if factor < 10**12 else "10¹² and more"
        raise ModelError(
            f"{path} makes a text up to {shown} times as long before it is cut into tokens, and no tokenizer does more "
            f"than {GROWTH} times; fetch the model again."
        )


def _growth(step: Any) -> int:
    """How many times as long the steps of a normalizer may make one character."""
    if not isinstance(step, dict):
        return 1
    if isinstance(steps := step.get("normalizers"), list):
        return math.prod(map(_growth, steps))
    return max([1, *(len(step[key]) for key in ("content", "prepend") if isinstance(step.get(key), str))])


def _is_json(content: bytes) -> bool:
    """Would the library read it?"""
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def _tokens(record: Any) -> Iterator[dict[str, Any]]:
    """The records of tokens: in a list of tokenizer.json, or anywhere in the smaller files."""
    if not isinstance(record, dict):
        return
    if isinstance(record.get("added_tokens"), list):
        yield from (token for token in record["added_tokens"] if isinstance(token, dict))
        return
    for value in record.values():
        if isinstance(value, dict) and "content" in value:
            yield value
        elif isinstance(value, dict):
            yield from _tokens(value)
        elif isinstance(value, list):
            yield from (token for token in value if isinstance(token, dict) and "content" in token)

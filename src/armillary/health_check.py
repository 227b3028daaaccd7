"""Is something wrong with my model? Load it, read a text, check; `armillary health` prints the answer."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from armillary.anatomy import Anatomy
from armillary.errors import BrokenWeightsError, TextError
from armillary.flow.documents import from_any
from armillary.readouts.health.health_report import against as beside
from armillary.readouts.health.health_report import broken_health, check_health
from armillary.results.sheets.health import Health
from armillary.run import DEFAULT_MODEL, DEFAULT_TOKENS, SEED, load, text_of
from armillary.views.text.progress import progress_bar

LEAST = 32
"""Tokens. On fewer, units and heads that only happen to do one thing count as those that can do no other."""


def health(
    model: Any = DEFAULT_MODEL,
    text: Any = None,
    *,
    against: Any = None,
    tokens: int = DEFAULT_TOKENS,
    device: str | None = None,
    dtype: str | None = None,
    tokenizer: Any = None,
    trust_remote_code: bool = False,
    seed: int = SEED,
    progress: bool = True,
) -> Health:
    """Check a model: each line is ok, look or bad, with the value, the usual range and what to do.

    `text` is a path, a string, a list of documents, or None for the built-in sample. With `against`, a second model
    reads the same text, and lines that are clearly worse than that model's become look.
    """
    started = time.time()
    if tokens < 1:
        raise TextError(f"--tokens {tokens} leaves nothing to read; give at least 1, better 2000 or more.")
    documents = from_any(text)

    how: dict[str, Any] = {"device": device, "dtype": dtype, "trust_remote_code": trust_remote_code}

    def checked(source: Any, its_tokenizer: Any) -> Health:
        anatomy = source
        if not isinstance(source, Anatomy):
            try:
                anatomy = load(source, tokenizer=its_tokenizer, progress=progress, **how)
            except BrokenWeightsError as error:
                # What every other command refuses is the answer here.
                name = str(source) if isinstance(source, str | Path) else type(source).__name__
                return broken_health(name, error.peaks)
        with progress_bar(progress) as bar:
            corpus = text_of(anatomy, documents, tokens, seed)
            if corpus.tokens < LEAST:
                raise TextError(
                    f"{corpus.source} gives {corpus.tokens} tokens, on which a sound model looks broken; give at least "
                    f"{LEAST}, better 2000 or more."
                )
            return check_health(anatomy, corpus, seed, lambda what: bar.say(f"checking {anatomy.name}: {what}"))

    result = checked(model, tokenizer)
    if against is not None:
        result = beside(result, checked(against, None))
    return replace(result, about={"seconds": round(time.time() - started, 1)})

"""Silence Hugging Face's progress bars and messages: what matters is checked and reported here, and what the library
prints of a file could hold terminal escapes."""

import logging as levels
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet() -> Iterator[None]:
    import transformers.modeling_gguf_pytorch_utils as unpacking
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    # Unpacking a GGUF draws a bar that no setting turns off.
    progress_bar: Any = getattr(unpacking, "tqdm", None)
    # Errors too: the library raises them as well.
    logging.set_verbosity(levels.CRITICAL)
    logging.disable_progress_bar()
    unpacking.tqdm = lambda tensors, **options: tensors
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        unpacking.tqdm = progress_bar
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()

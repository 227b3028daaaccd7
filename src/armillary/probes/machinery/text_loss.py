"""What does the unedited model lose on the evaluation text, document by document?"""

import hashlib

from armillary.probes.machinery.bench import Bench
from armillary.results import TextLoss


def text_loss(bench: Bench) -> TextLoss | None:
    """Tokens, bytes and nats of every document (group of documents); None for a model that predicts no next token."""
    if not bench.scored:
        return None
    sums = bench.losses(bench.batches())
    sizes, digest, tokenizer = [0] * len(sums), hashlib.sha256(), bench.anatomy.tokenizer
    for window in sorted(bench.text.windows, key=lambda w: w.document):
        # The first token of a window is not predicted.
        ids = list(window.ids[max(1, window.prefix) : len(window.ids) - window.suffix])
        read = b"" if tokenizer is None else tokenizer.decode(ids, skip_special_tokens=True).encode()
        sizes[window.document % bench.corpus.groups] += len(read)
        digest.update(read if read else repr(ids).encode())
    rows = [(int(count), size, float(nats)) for (count, nats), size in zip(sums, sizes, strict=True) if count]
    tokens, lengths, losses = zip(*rows, strict=True) if rows else ((), (), ())
    return TextLoss(tokens, lengths, losses, digest.hexdigest()[:16])

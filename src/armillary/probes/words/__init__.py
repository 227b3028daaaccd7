"""Chapter C: where words go on their way through the layers, one claim per file."""

"""Chapter E: what the activation of a feed-forward lets through, one claim per file."""

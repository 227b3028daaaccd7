"""Chapter A: the sphere on which norms put every token, one claim per file."""

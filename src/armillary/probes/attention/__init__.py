"""Chapter B: what attention does on the sphere, one claim per file."""

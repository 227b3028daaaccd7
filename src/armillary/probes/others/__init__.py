"""Chapter H: claims of others, each with the paper that makes it."""

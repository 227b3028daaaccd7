"""Lists of words, which of them a model knows, and what its directions say in words."""

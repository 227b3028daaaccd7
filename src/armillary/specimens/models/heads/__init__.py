"""Which heads behave in a known way? Heads that score, match words, resolve language, have regions or roles."""

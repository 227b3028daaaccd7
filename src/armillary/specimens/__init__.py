"""Models of which the answer is known: small ones that were never trained, and planted ones."""

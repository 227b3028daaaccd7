"""Results as plain text: for a terminal, a CSV or a LaTeX file."""

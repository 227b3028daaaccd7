"""One sentence in one model, seen from several sides: sheets without verdicts, for the page and for notebooks."""

"""How are small models trained so that their geometry can be watched? Text → tokens → model → checkpoints."""

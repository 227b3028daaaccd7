"""Train small models whose geometry is measured during training: text → tokens → model → checkpoints."""

"""How does a model's geometry change while it trains? Snapshots, a callback, and the training run itself."""

"""How does a model know where its tokens stand? By turning queries and keys, or by a bias of the scores."""
